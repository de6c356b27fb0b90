"""What the native search decides: also for schedules, and for decisions of other searches."""
from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from typing import Dict, List, Sequence, Tuple

from ...graph.in_use import graph_in_use
from ...graph.schedule import Schedule
from ...graph.types import Graph

#: How a search ended, by the library's number: all its work is done.
FINISHED = 0
#: The clock ended it.
TIME_LIMIT = 1
#: The caller ended it.
INTERRUPTED = 2
#: What can be decided: (op, number of the gap, begin, end, behind the last use).
Gap = Tuple[int, int, int, int, bool]


@dataclass(frozen=True)
class Decisions:
    """What the search decides: see ``plugins/core/simulator.h``."""

    #: For each gap: 0 keep, 1 drop and keep again once recomputed, 2 drop after every op.
    choices: Tuple[int, ...]
    #: For each gap -1, or the op from which on a value dropped after every op stays once it is
    #: recomputed.
    advance: Tuple[int, ...]
    #: For each variant whether it is in use.
    variants: Tuple[bool, ...]


@dataclass(frozen=True)
class SearchResult:
    """The steps of some decisions, and what they cost."""

    schedule: Schedule
    decisions: Decisions
    cost_s: float
    #: Live bytes at the worst step and those outside the pool, as the simulator counts them.
    peak_bytes: int
    #: Pool under the storage model.
    pool_bytes: int
    #: Workspace and objects.
    outside_pool_bytes: int
    feasible: bool
    #: FINISHED, TIME_LIMIT or INTERRUPTED.
    stop: int = FINISHED
    #: It takes more of the host than ``Options.host_budget_bytes``.
    above_host: bool = False


def closest(graph: Graph, gaps: Sequence[Gap], allowed_variants: Sequence[int],
            schedule: Schedule) -> Decisions:
    """The decisions that come closest to a schedule.

    A value is kept through a gap if whoever ends the gap reads the run that was at hand where
    the gap begins. The run that the end of the gap reads is the one that stays.
    O(size of the schedule) time.
    """
    steps = schedule.steps
    used = graph_in_use(graph, schedule)
    runs: List[List[int]] = [[] for _ in used.ops]
    last_read = list(range(len(steps)))
    read_run: Dict[Tuple[int, int], int] = {}
    kept = {tensor for op in used.ops for slot, tensor in enumerate(op.outputs)
            if slot in op.kept_outputs}
    for index, step in enumerate(steps):
        runs[step.op].append(index)
        op = used.ops[step.op]
        read = {source for position, source in enumerate(step.sources)
                if source >= 0 and position not in op.ignored_inputs
                and op.inputs[position] not in kept}
        if op.uses_state:
            read.add(runs[op.forward_op][-1])
        for source in sorted(read):
            last_read[source] = index
            read_run[index, steps[source].op] = source
    # What another op of a variant does happens right after the op before it.
    first = [0] * (len(used.ops) + 1)
    for number, own in enumerate(runs):
        first[number] = own[0] if own else first[number - 1]
    first[-1] = len(steps)
    choices: List[int] = []
    advance: List[int] = []
    for maker, _, begin, end, trailing in gaps:
        at_hand = bisect_right(runs[maker], first[begin])
        again = bisect_right(runs[maker], first[end]) - at_hand
        run = runs[maker][at_hand - 1] if at_hand else -1
        read_until = last_read[run] if at_hand else -1
        if trailing:
            stays = read_until > first[begin]
        elif (first[end], maker) in read_run:
            stays = read_run[first[end], maker] == run
        else:
            stays = read_until >= first[end]
        if stays:
            choices.append(0)
        else:
            choices.append(1 if again == 1 or not trailing and not again else 2)
        early = -1
        if not stays and not trailing:
            # The op that runs next after the run which the end of the gap reads.
            source = read_run.get((first[end], maker), -1)
            stage = bisect_left(first, source)
            if begin < stage < end and again > 1:
                early = stage
        advance.append(early)
    return Decisions(tuple(choices), tuple(advance),
                     tuple(i in schedule.variants for i in allowed_variants))


def adopted(gaps: Sequence[Gap], allowed_variants: Sequence[int], other_gaps: Sequence[Gap],
            other_variants: Sequence[int], decisions: Decisions) -> Decisions:
    """Decisions of a search that may use fewer variants, as those of one with these gaps.

    Unlike :func:`closest` it loses nothing. A gap there may be several here, where an op in between
    reads the value as a variant only: the first part decides as the whole did, and what was made
    again in it stays. O(gaps log gaps) time.
    """
    there: Dict[int, List[Tuple[int, int, int]]] = {}
    for number, (op, _, begin, end, _) in enumerate(other_gaps):
        there.setdefault(op, []).append((begin, end, number))
    choices: List[int] = []
    advance: List[int] = []
    seen = set()
    for op, _, begin, end, trailing in gaps:
        spans = there.get(op, [])
        span = bisect_right(spans, (begin, float("inf"), 0)) - 1
        if span < 0 or spans[span][1] < end:
            choices.append(2 if trailing else 0)
            advance.append(-1)
            continue
        number = spans[span][2]
        first = number not in seen
        seen.add(number)
        choice = decisions.choices[number]
        choices.append(choice if first or choice != 1 else 0)
        advance.append(decisions.advance[number])
    used = {index for index, on in zip(other_variants, decisions.variants) if on}
    return Decisions(tuple(choices), tuple(advance),
                     tuple(index in used for index in allowed_variants))
