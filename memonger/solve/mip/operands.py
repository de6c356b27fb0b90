"""The fewest bytes in which the operands of an op can be brought together.

When an op runs, each of its operands has been made, by a first run or a repeat that had operands of
its own. Going back in time from the op, a *state* is a position in the base order and the groups
that must be alive there. Either the step before makes some of them: then they were alive from here
on, and before it its operands were. Or it does not: then all of them are alive beside its operands.
Steps that repeat an op and make nothing of the state are left out, and so is the choice of one
implementation for all runs of an op. The fewest bytes over all paths back, of the most on each, are
therefore alive at some step of every schedule. This is a pebble game with sizes (Sethi 1975),
played backward as a bottleneck shortest path (Dijkstra 1959). Where it is ended early, the least
that is open is a bound as well.
"""
from __future__ import annotations

import heapq
from typing import Dict, FrozenSet, Iterable, Iterator, List, NamedTuple, Optional, Set, Tuple

from .problem import Reduced

_Groups = FrozenSet[int]


class _Run(NamedTuple):
    """What one run of an op touches."""

    reads: _Groups
    #: By the first run, and by a repeat.
    writes: _Groups
    rewrites: _Groups
    #: Groups whose memory another may take, and that one.
    inplace: Tuple[Tuple[int, int], ...]


class OperandSearch:
    """A reduced graph, ready for any op.

    Parameters
    ----------
    reduced : Reduced
    """

    def __init__(self, reduced: Reduced):
        self._reduced = reduced
        self._reuses = {reuse.op: reuse for reuse in reduced.inplace_reuses}
        self._between = reduced.fixed_between
        #: By op and implementation; None where the op is left out.
        self._runs = [self._runs_of(op) for op in range(reduced.num_ops)]

    def least_bytes(self, op: int, most_states: int) -> float:
        """Bytes that are alive at or before ``op`` in every schedule.

        Parameters
        ----------
        op : int
        most_states : int
            States to look at; O(operands) time each.
        """
        queue: List[Tuple[float, float, int, Tuple[int, ...]]] = []
        seen: Set[Tuple[int, _Groups]] = set()

        def add(most: float, position: int, alive: _Groups) -> None:
            if (position, alive) not in seen:
                heapq.heappush(queue, (most, self._bytes(alive), position, tuple(sorted(alive))))

        for run in self._runs[op]:
            if run is None:
                return 0.0  # a variant leaves it out
            add(self._first_bytes(op, run, frozenset()), op, run.reads)
        while queue:
            most, _, position, groups = heapq.heappop(queue)
            alive = frozenset(groups)
            if not alive or not position or len(seen) >= most_states:
                return most
            if (position, alive) in seen:
                continue
            seen.add((position, alive))
            for size, before in self._first_runs(position - 1, alive):
                add(max(most, size), position - 1, before)
            for size, before in self._repeats(position, alive):
                add(max(most, size), position, before)
        return float("inf")

    def _first_runs(self, op: int, alive: _Groups) -> Iterator[Tuple[float, _Groups]]:
        """Bytes at the first run of an op, and what was alive before it; by implementation."""
        late = op >= self._reduced.first_backward
        for run in self._runs[op]:
            if run is None:
                yield 0.0, alive
                continue
            made = alive & (run.writes - run.reads)
            # What comes before a forward op that nothing can repeat is no decision.
            before = (alive - made) | run.reads if made and late else alive - made
            yield self._first_bytes(op, run, alive), before

    def _repeats(self, position: int, alive: _Groups) -> Iterator[Tuple[float, _Groups]]:
        """As :meth:`_first_runs` for each repeat, right before an op, that makes something."""
        reduced = self._reduced
        if position < reduced.first_backward:
            return
        for op, number in sorted({maker for group in alive for maker in reduced.makers[group]}):
            run = self._runs[op][number] if reduced.again[op] else None
            if run is None or not alive & (run.rewrites - run.reads):
                continue
            others = alive - (run.rewrites - run.reads)
            saved: Dict[int, float] = {}
            for source, target in run.inplace:
                if source not in others:
                    size = min(reduced.size_bytes[source], reduced.size_bytes[target])
                    saved[target] = max(saved.get(target, 0.0), size)
            size = self._between[position] + self._bytes(others | run.reads | run.rewrites)
            yield size - sum(saved.values()), others | run.reads

    def _first_bytes(self, op: int, run: _Run, alive: _Groups) -> float:
        """Bytes at the first run of an op with some groups alive before and after."""
        size = self._reduced.profile_bytes[op] + self._bytes(alive | run.reads | run.writes)
        reuse = self._reuses.get(op)
        if reuse:
            size += reuse.unsaved_bytes(
                saved for group, saved in reuse.sources if group not in alive)
        return float(size)

    def _bytes(self, groups: _Groups) -> float:
        return float(sum(self._reduced.size_bytes[group] for group in groups))

    def _runs_of(self, op: int) -> List[Optional[_Run]]:
        group_of = self._reduced.group_of
        kept = self._reduced.graph.ops[op].kept_outputs

        def groups(tensors: Iterable[int]) -> _Groups:
            return frozenset(int(group_of[t]) for t in tensors) - {-1}

        runs: List[Optional[_Run]] = []
        for number, own in enumerate(self._reduced.implementations[op]):
            if not own.runs:
                runs.append(None)
                continue
            # Variants have no outputs that stay with the first run.
            again = [t for position, t in enumerate(own.outputs) if number or position not in kept]
            inplace = [(int(group_of[own.inputs[option.input]]),
                        int(group_of[own.outputs[option.output]])) for option in own.inplace]
            runs.append(_Run(
                groups(own.reads), groups(own.outputs), groups(again),
                tuple((a, b) for a, b in inplace if min(a, b) >= 0 and a != b)))
        return runs
