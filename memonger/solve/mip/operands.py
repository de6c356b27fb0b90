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
    #: What the first run makes and does not read, and a repeat.
    makes: _Groups
    remakes: _Groups
    #: All that is alive during the first run because of it, and during a repeat.
    touches: _Groups
    retouches: _Groups
    #: Groups whose memory another may take, and that one.
    inplace: Tuple[Tuple[int, int], ...]


#: Groups that are alive, and their bytes.
_State = Tuple[_Groups, float]
#: No group at all.
_NONE: _Groups = frozenset()
#: Groups alive in a state of usual size: states with more count as several.
_GROUPS = 20


class OperandSearch:
    """A reduced graph, ready for any op.

    Parameters
    ----------
    reduced : Reduced
    """

    def __init__(self, reduced: Reduced):
        self._reduced = reduced
        # Lists: one element of an array costs as much as ten of a list.
        self._size_bytes: List[float] = reduced.size_bytes.tolist()
        self._profile_bytes: List[float] = reduced.profile_bytes.tolist()
        self._between_bytes: List[float] = reduced.fixed_between.tolist()
        self._reuses = {reuse.op: reuse for reuse in reduced.inplace_reuses}
        #: By op and implementation; None where the op is left out.
        self._runs = [self._runs_of(op) for op in range(reduced.num_ops)]

    def least_bytes(self, op: int, most_states: int) -> float:
        """Bytes that are alive at or before ``op`` in every schedule.

        Parameters
        ----------
        op : int
        most_states : int
            States to look at, fewer where many values are alive; O(operands) time each.
        """
        queue: List[Tuple[float, float, int, Tuple[int, ...]]] = []
        seen: Set[Tuple[int, _Groups]] = set()
        left = _GROUPS * most_states

        def add(most: float, position: int, state: _State) -> None:
            alive, alive_bytes = state
            if (position, alive) not in seen:
                heapq.heappush(queue, (most, alive_bytes, position, tuple(sorted(alive))))

        for run in self._runs[op]:
            if run is None:
                return 0.0  # a variant leaves it out
            add(self._first_bytes(op, run, (_NONE, 0.0)), op, (run.reads, self._bytes(run.reads)))
        while queue:
            most, alive_bytes, position, groups = heapq.heappop(queue)
            alive = frozenset(groups)
            if not alive or not position or len(seen) >= most_states or left <= 0:
                return most
            if (position, alive) in seen:
                continue
            seen.add((position, alive))
            left -= len(alive)
            for size, before in self._first_runs(position - 1, (alive, alive_bytes)):
                add(max(most, size), position - 1, before)
            for size, before in self._repeats(position, (alive, alive_bytes)):
                add(max(most, size), position, before)
        return float("inf")

    def _first_runs(self, op: int, state: _State) -> Iterator[Tuple[float, _State]]:
        """Bytes at the first run of an op, and what was alive before it; by implementation."""
        late = op >= self._reduced.first_backward
        for run in self._runs[op]:
            if run is None:
                yield 0.0, state
                continue
            made = state[0] & run.makes
            # What comes before a forward op that nothing can repeat is no decision.
            before = self._changed(state, made, run.reads if made and late else _NONE)
            yield self._first_bytes(op, run, state), before

    def _repeats(self, position: int, state: _State) -> Iterator[Tuple[float, _State]]:
        """As :meth:`_first_runs` for each repeat, right before an op, that makes something."""
        reduced = self._reduced
        if position < reduced.first_backward:
            return
        alive = state[0]
        for op, number in sorted({maker for group in alive for maker in reduced.makers[group]}):
            run = self._runs[op][number] if reduced.again[op] else None
            if run is None or not alive & run.remakes:
                continue
            others = self._changed(state, alive & run.remakes, _NONE)
            saved: Dict[int, float] = {}
            for source, target in run.inplace:
                if source not in others[0]:
                    size = min(self._size_bytes[source], self._size_bytes[target])
                    saved[target] = max(saved.get(target, 0.0), size)
            size = self._between_bytes[position] + others[1] + self._bytes(
                run.retouches - others[0])
            yield size - sum(saved.values()), self._changed(others, _NONE, run.reads)

    def _first_bytes(self, op: int, run: _Run, state: _State) -> float:
        """Bytes at the first run of an op with some groups alive before and after."""
        alive, alive_bytes = state
        size = self._profile_bytes[op] + alive_bytes + self._bytes(run.touches - alive)
        reuse = self._reuses.get(op)
        if reuse:
            size += reuse.unsaved_bytes(
                saved for group, saved in reuse.sources if group not in alive)
        return float(size)

    def _changed(self, state: _State, without: _Groups, more: _Groups) -> _State:
        """A state without some of its groups, and with others."""
        alive, alive_bytes = state
        rest = alive - without
        return rest | more, alive_bytes - self._bytes(without) + self._bytes(more - rest)

    def _bytes(self, groups: _Groups) -> float:
        return sum([self._size_bytes[group] for group in groups])

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
            reads, writes, rewrites = groups(own.reads), groups(own.outputs), groups(again)
            runs.append(_Run(
                reads, writes - reads, rewrites - reads, reads | writes, reads | rewrites,
                tuple((a, b) for a, b in inplace if min(a, b) >= 0 and a != b)))
        return runs
