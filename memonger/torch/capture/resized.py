"""A step that was read with one batch as it is with another: no other trace."""
from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Callable, List

from ...graph.types import Graph
from ..pytorch import private_ops
from ..pytorch.sizes import at_batch
from .captured import TEMPORARY, Captured
from .costs import ROOFLINES, roofline_for, times_s
from .operators import kept_results


def with_other_batch(captured: Captured, read: int, batch: int, fused: bool,
                     costs: str = "") -> Captured:
    """The step with another batch, by sizes in proportion.

    PyTorch may trace and divide a step otherwise at other sizes, so that what is said of the result
    holds when a reading with that batch has confirmed it.

    ``read``: the batch that it was read with, a prime number that divides no other dimension.
    ``costs``: estimates of times; "": they stay those of the batch that it was read with.
    """
    with at_batch(read, batch):
        sizes: List[Callable[[], int]] = [partial(int, size()) for size in captured.sizes]
        graph = _with_kept_results(captured, captured.graph_now())
        if costs:
            roofline = ROOFLINES[roofline_for(costs, captured.device)]
            graph = graph.with_times(times_s(captured.nodes, captured.parts, roofline, fused, {}))
    return replace(captured, graph=graph, sizes=sizes)


def _with_kept_results(captured: Captured, graph: Graph) -> Graph:
    """The graph with what its ops keep at its sizes: small results stay with the first run."""
    ops = list(graph.ops)
    for number, node in enumerate(captured.nodes):
        if node is None or private_ops.writes(node.target):
            continue
        held = captured.tensors_of[node]
        made = [t for t in ops[number].outputs if not graph.tensors[t].name.endswith(TEMPORARY)]
        kept = kept_results(node, [held.index(t) for t in made],
                            [graph.tensors[t].size_bytes for t in made])
        if kept != ops[number].kept_outputs:
            ops[number] = ops[number].changed(kept_outputs=kept)
    return replace(graph, ops=tuple(ops))
