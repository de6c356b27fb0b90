"""What a training step takes: a pool, and bytes outside it by category."""
from __future__ import annotations

from dataclasses import dataclass, field
from typing import Mapping, Optional


@dataclass(frozen=True)
class Footprint:
    """Bytes of one training step.

    Attributes
    ----------
    pool_bytes : int
        What is allocated for internal tensors. Outputs of the network are part of it.
    outside_bytes : mapping
        Bytes outside the pool by category: "parameters", "gradients", "aux", "inputs",
        "head_gradients", "workspace", "optimizer", on a CPU "recurrent_states", what operators of
        several recurrent layers keep for themselves, and on a GPU "rounding", "random_states",
        "autotuning". "objects" are those of MXNet's executor, counted on CPUs in networks of
        thousands of ops. "never_written", below 0, are pages of the unplanned pool that nothing
        touches, "layout_copies" what stock MXNet keeps on a CPU for operators that are not
        MKLDNN's.
    predicted_pool_bytes : int or None
        The pool that follows from the graph, where the framework allocates another.
    """

    pool_bytes: int
    outside_bytes: Mapping[str, int] = field(default_factory=dict)
    predicted_pool_bytes: Optional[int] = None

    @property
    def total_bytes(self) -> int:
        """Pool and all bytes outside it."""
        return self.pool_bytes + sum(self.outside_bytes.values())

    @property
    def pool_by_graph_bytes(self) -> int:
        """The pool that follows from the graph."""
        predicted = self.predicted_pool_bytes
        return self.pool_bytes if predicted is None else predicted


@dataclass(frozen=True)
class Footprints:
    """Bytes of a step that is planned.

    Attributes
    ----------
    planned : Footprint
        What it takes with the plan.
    unplanned : Footprint
        What it takes without one, on the framework as it comes.
    """

    planned: Footprint
    unplanned: Footprint
