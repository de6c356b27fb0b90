"""What all reports tell about a plan, computed once.

Step numbers count the executions of the planned step from 0, clones included.
"""
from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Dict, List, Optional, Sequence, Set, Tuple

from ..graph.clock import COMPUTE
from ..graph.decisions import decisions_of
from ..graph.in_use import graph_in_use
from ..graph.schedule import Schedule, expand
from ..graph.types import Graph, Tensor
from ..memory.timeline import Timeline, step_names, timeline
from ..plans.plan import Plan
from .formatting import short_kind


@dataclass(frozen=True)
class OpFacts:
    """One forward op in a plan."""

    op: int
    name: str
    kind: str
    #: As in ``Plan.decisions``.
    decision: str
    #: "keep", "recompute", "variant", "variant+recompute", "host" (its value goes to the host and
    #: comes back), "pinned" (kept, for it must not be recomputed) or "absorbed" (its work is part
    #: of a variant that is named after another op).
    group: str
    #: Bytes of all its outputs in the pool.
    size_bytes: int
    #: Of these, bytes that wait in memory from forward to backward.
    held_bytes: int
    time_s: float
    #: How often it is recomputed.
    again: int
    shape: Tuple[int, ...]
    #: The decision's reason in a few words.
    why: str


class Facts:
    """A plan and everything that reports derive from it; each part is computed on first use."""

    def __init__(self, plan: Plan):
        self.plan = plan
        #: Variants in use are in the place of the ops that they replace.
        self.graph: Graph = graph_in_use(plan.graph, plan.schedule)

    # ------------------------------------------------------------------ memory
    @cached_property
    def baseline(self) -> Schedule:
        """The unplanned step."""
        return expand(self.plan.graph, {})

    @cached_property
    def timeline(self) -> Timeline:
        """Memory of the planned step."""
        return self.plan.timeline()

    @cached_property
    def baseline_timeline(self) -> Timeline:
        """Memory of the unplanned step, with the pool that the plan states for it.

        MXNet's own assignment where the plan was compared with that, else the plan's.
        """
        if self.plan.storage in ("arena", "best"):
            stock = timeline(self.plan.graph, self.baseline, "stock")
            if stock.pool_bytes == self.plan.baseline_pool_bytes:
                return stock
        return timeline(self.plan.graph, self.baseline, self.plan.storage)

    @cached_property
    def recompute(self) -> Dict[int, Dict[Tuple[int, int], int]]:
        """As :func:`memonger.graph.decisions.decisions_of` gives it."""
        return decisions_of(self.plan.graph, self.plan.schedule)

    # ------------------------------------------------------------------ the schedule
    @cached_property
    def runs(self) -> List[List[int]]:
        """For each op the steps that run it."""
        result: List[List[int]] = [[] for _ in self.graph.ops]
        for index, step in enumerate(self.plan.schedule.steps):
            result[step.op].append(index)
        return result

    @cached_property
    def readers(self) -> List[List[int]]:
        """For each step the steps that read a value of it, in order, each once."""
        result: List[List[int]] = [[] for _ in self.plan.schedule.steps]
        for index, step in enumerate(self.plan.schedule.steps):
            ignored = self.graph.ops[step.op].ignored_inputs
            for source in {s for position, s in enumerate(step.sources)
                           if s >= 0 and position not in ignored}:
                result[source].append(index)
        return result

    def is_late(self, step: int) -> bool:
        """Whether a step belongs to a backward pass: a backward op's, or a forward op's again."""
        op = self.plan.schedule.steps[step].op
        return self.graph.ops[op].is_backward or self.runs[op][0] != step

    # ------------------------------------------------------------------ ops
    @cached_property
    def ops(self) -> List[OpFacts]:
        """All forward ops, in execution order, without those that only unused variants run."""
        decisions = self.plan.decisions
        return [self._op(index, decisions.get(op.name, "keep"))
                for index, op in enumerate(self.graph.ops) if not op.is_backward
                and (self.runs[index] or op.name in decisions)]

    @cached_property
    def by_name(self) -> Dict[str, OpFacts]:
        """Forward ops by their names."""
        return {fact.name: fact for fact in self.ops}

    def _op(self, index: int, decision: str) -> OpFacts:
        op = self.graph.ops[index]
        pooled = [self.graph.tensors[t] for t in op.outputs if self.graph.tensors[t].pooled]
        again = len(self.runs[index]) > 1
        group = decision if decision == "recompute" else \
            "host" if index in self.moved else \
            "variant+recompute" if decision != "keep" and again else \
            "variant" if decision != "keep" else "absorbed" if not self.runs[index] else \
            "keep" if op.recomputable else "pinned"
        shape = self.graph.tensors[op.outputs[0]].shape if op.outputs else ()
        return OpFacts(index, op.name, short_kind(op.kind), decision, group,
                       sum(t.size_bytes for t in pooled), self._held_bytes(index), op.time_s,
                       max(0, len(self.runs[index]) - 1), shape, self._why(index, group))

    @cached_property
    def moved(self) -> Set[int]:
        """The ops whose values go to the host and come back, and those that move them."""
        graph = self.plan.graph
        moves = [variant for variant in map(graph.variants.__getitem__,
                                            self.plan.schedule.variants)
                 if any(graph.ops[op].stream != COMPUTE for op, _ in variant.choices)]
        return {variant.op for variant in moves} | {
            op for variant in moves for op, _ in variant.choices if not graph.ops[op].runs}

    def late_readers(self, index: int) -> List[int]:
        """Steps of backward that read what the first run of an op made."""
        if not self.runs[index]:
            return []
        return [s for s in self.readers[self.runs[index][0]] if self.is_late(s)]

    def _held_bytes(self, index: int) -> int:
        late = self.late_readers(index)
        first = self.runs[index][0] if self.runs[index] else -1
        held = set()
        for reader in late:
            step = self.plan.schedule.steps[reader]
            op = self.graph.ops[step.op]
            held |= {t for position, (t, source) in enumerate(zip(op.inputs, step.sources))
                     if source == first and position not in op.ignored_inputs}
        return sum(self.graph.tensors[t].size_bytes for t in held
                   if self.graph.tensors[t].pooled)

    def _why(self, index: int, group: str) -> str:
        op = self.graph.ops[index]
        if not self.runs[index]:
            return "its work is part of the variant of %s" % self._host(index)
        if len(self.runs[index]) > 1:
            reader = next(iter(self.readers[self.runs[index][1]]), None)
            again = "" if reader is None else " for " + self.step_name(reader)
            return "recomputed%s instead of waiting in memory" % again
        late = self.late_readers(index)
        if group == "pinned":
            return "must not be recomputed: " + op.not_recomputable_because
        if group == "host":
            return "goes to the host and comes back for backward"
        if group == "variant":
            return "replaced by an operator that keeps less"
        if not late:
            return "backward does not read it"
        return "read in backward by %s" % self.step_name(late[0]) + \
            (" and %d more" % (len(late) - 1) if len(late) > 1 else "")

    def _host(self, index: int) -> str:
        """The op that the variant is named after in which an op has no run of its own."""
        graph = self.plan.graph
        return next(graph.ops[graph.variants[i].op].name for i in self.plan.schedule.variants
                    if any(op == index for op, _ in graph.variants[i].choices))

    def step_name(self, step: int) -> str:
        """Name of a step; ``"<op>#k"`` for the k-th repeated run."""
        return self._step_names[step]

    @cached_property
    def _step_names(self) -> Sequence[str]:
        return step_names(self.plan.graph, self.plan.schedule)

    @property
    def recomputed_s(self) -> float:
        """Time of all repeated runs."""
        return sum(self.graph.ops[op].time_s for op in self.plan.schedule.recomputed())

    @property
    def extra_shares(self) -> Tuple[float, float]:
        """Of the unplanned step: what repeated runs and what variants add; in all the overhead.

        With several streams the second also holds what is hidden beside compute or waited for.
        """
        base_s = self.plan.graph.time_s
        again = self.recomputed_s / base_s if base_s > 0 else 0.0
        return again, self.plan.overhead - again

    @property
    def dtype(self) -> str:
        """The dtype that holds most bytes of the pool."""
        sizes: Dict[str, int] = {}
        for tensor in self.graph.tensors:
            if tensor.pooled:
                sizes[tensor.dtype] = sizes.get(tensor.dtype, 0) + tensor.size_bytes
        return max(sorted(sizes), key=lambda d: sizes[d]) if sizes else "float32"

    @property
    def largest_input(self) -> Optional[Tensor]:
        """The network's largest input tensor; None where the graph has none."""
        inputs = [t for t in self.graph.tensors if t.category == "input"]
        return max(inputs, key=lambda t: t.size_bytes) if inputs else None
