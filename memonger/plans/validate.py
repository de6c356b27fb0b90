"""The check of every plan: deliberately naive, and independent of what made the plan.

It checks that a schedule can run and gives the results of the unplanned step. It shares no code
with the solvers or the simulator.
"""
from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Dict, List, Optional, Sequence, Set, Tuple

from ..graph.clock import COMPUTE
from ..graph.schedule import Schedule, Step
from ..graph.types import Graph, Op


class Kind(str, enum.Enum):
    """The kinds of faults of a plan."""

    UNKNOWN_OP = "a step runs an op that does not exist"
    UNKNOWN_VARIANT = "a variant does not exist"
    VARIANTS_OVERLAP = "two variants change the same op"
    REPLACED_OP = "a step runs an op whose work is part of another op of the variant"
    SOURCE_COUNT = "a step does not name one source for each input"
    SOURCE_LATE = "a step reads from a step that is not earlier"
    SOURCE_WRONG = "a step reads from a step that does not make the tensor"
    NOT_RUN = "an op never runs"
    BASE_ORDER = "first runs are not in the graph's order"
    DEPENDENCY = "an op runs before one that must run before it"
    RUN_TWICE = "an op that must not run again does"
    KEPT_OUTPUT = "a value that stays with the first run is read from a clone"
    FIRST_RUN_READS_CLONE = "the first run of a forward op reads from a clone"
    USELESS_CLONE = "no op reads what a clone makes"
    CLONE_IN_FORWARD = "a clone runs before the forward pass is over"
    CLONE_EARLY = "a clone does not run right before the first op that needs it"
    OUTPUT_MISSING = "an output of the network is not made"
    FREED_EARLY = "memory is free while a step of another stream may work in it"


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong, where, and the numbers in words."""

    kind: enum.Enum
    message: str
    #: Step of the schedule; -1 when it concerns the whole plan.
    step: int = -1

    def __str__(self) -> str:
        where = "step %d: " % self.step if self.step >= 0 else ""
        return "%s%s: %s" % (where, self.kind.value, self.message)


def chosen_ops(graph: Graph, variants: Sequence[int]) -> List[Optional[Op]]:
    """The ops as they run under these variants; None for one that does not run."""
    ops = list(graph.ops)
    for index in variants:
        for op, number in graph.variants[index].choices:
            ops[op] = ops[op].running_as(number)
    return [op if op.runs else None for op in ops]


def structure(graph: Graph, schedule: Schedule) -> List[Problem]:
    """What keeps a schedule from running, or from giving the results of the unplanned step.

    O(size of the schedule): every plan passes it before a user gets it.
    """
    problems = _variants(graph, schedule)
    if problems:
        return problems
    ops = chosen_ops(graph, schedule.variants)
    problems = _steps(graph, schedule, ops)
    if problems:
        return problems
    running = [op for op in (ops[step.op] for step in schedule.steps) if op is not None]
    for check in (_runs, _clones, _outputs, _guards):
        problems += check(graph, schedule, running)
    return problems


# --------------------------------------------------------------------------------- structure
def _variants(graph: Graph, schedule: Schedule) -> List[Problem]:
    problems: List[Problem] = []
    taken: Dict[int, str] = {}
    for index in schedule.variants:
        if not 0 <= index < len(graph.variants):
            problems.append(Problem(
                Kind.UNKNOWN_VARIANT, "%d of %d" % (index, len(graph.variants))))
            continue
        for op, _ in graph.variants[index].choices:
            if op in taken:
                problems.append(Problem(Kind.VARIANTS_OVERLAP, "%s and %s change %s" % (
                    taken[op], graph.variants[index].name, graph.ops[op].name)))
            taken[op] = graph.variants[index].name
    return problems


def _steps(graph: Graph, schedule: Schedule, ops: Sequence[Optional[Op]]) -> List[Problem]:
    """Each step by itself: it exists, and its sources are right."""
    problems = []
    made_by_ops = {t for op in ops if op is not None for t in op.outputs}
    for index, step in enumerate(schedule.steps):
        if not 0 <= step.op < len(graph.ops):
            problems.append(Problem(Kind.UNKNOWN_OP, "op %d" % step.op, index))
            continue
        op = ops[step.op]
        if op is None:
            problems.append(Problem(Kind.REPLACED_OP, graph.ops[step.op].name, index))
            continue
        if len(step.sources) != len(op.inputs):
            problems.append(Problem(Kind.SOURCE_COUNT, "%s has %d inputs and %d sources" % (
                op.name, len(op.inputs), len(step.sources)), index))
            continue
        for tensor, source in zip(op.inputs, step.sources):
            name = graph.tensors[tensor].name
            if source >= index:
                problems.append(Problem(Kind.SOURCE_LATE, "%s reads %s from step %d" % (
                    op.name, name, source), index))
                continue
            if source < 0:
                if tensor in made_by_ops:
                    problems.append(Problem(Kind.SOURCE_WRONG, "%s reads %s from before the "
                                         "training step" % (op.name, name), index))
                continue
            maker = ops[schedule.steps[source].op] \
                if 0 <= schedule.steps[source].op < len(ops) else None
            if maker is None or tensor not in (*maker.outputs, maker.hands_on):
                problems.append(Problem(Kind.SOURCE_WRONG, "%s reads %s from step %d" % (
                    op.name, name, source), index))
    return problems


def _runs(graph: Graph, schedule: Schedule, running: Sequence[Op]) -> List[Problem]:
    """Which ops run, how often and in which order."""
    problems = []
    ops = chosen_ops(graph, schedule.variants)
    last_first = -1
    before: Set[int] = set()
    for index, step in enumerate(schedule.steps):
        op = running[index]
        if step.op in before:
            if op.not_recomputable_because or op.is_backward:
                problems.append(Problem(Kind.RUN_TWICE, "%s: %s" % (
                    op.name, op.not_recomputable_because or "a backward op"), index))
            continue
        # What hands a value on may run before its place, for what runs again.
        if step.op < last_first and op.hands_on < 0:
            problems.append(Problem(Kind.BASE_ORDER, "%s runs after %s" % (
                op.name, graph.ops[last_first].name), index))
        last_first = max(last_first, step.op if op.hands_on < 0 else -1)
        for needed in op.control_deps:
            if ops[needed] is not None and needed not in before:
                problems.append(Problem(Kind.DEPENDENCY, "%s runs before %s" % (
                    op.name, graph.ops[needed].name), index))
        before.add(step.op)
    ran = {step.op for step in schedule.steps}
    for number, planned in enumerate(ops):
        if planned is not None and number not in ran:
            problems.append(Problem(Kind.NOT_RUN, planned.name))
    return problems


def _clones(graph: Graph, schedule: Schedule, running: Sequence[Op]) -> List[Problem]:
    """Where clones run, who reads them, and what."""
    problems = []
    steps = schedule.steps
    first: Dict[int, int] = {}
    clones = [i for i, step in enumerate(steps) if first.setdefault(step.op, i) != i]
    is_clone = set(clones)
    for index, (step, op) in enumerate(zip(steps, running)):
        for tensor, source in zip(op.inputs, step.sources):
            if source not in is_clone:
                continue
            if running[source].outputs.index(tensor) in running[source].kept_outputs:
                problems.append(Problem(Kind.KEPT_OUTPUT, "%s reads %s from step %d" % (
                    op.name, graph.tensors[tensor].name, source), index))
            if not op.is_backward and index not in is_clone:
                problems.append(Problem(Kind.FIRST_RUN_READS_CLONE, "%s reads %s from step %d" % (
                    op.name, graph.tensors[tensor].name, source), index))
    needs = _needs(schedule, running)
    readers: List[List[int]] = [[] for _ in steps]
    for index, sources in enumerate(needs):
        for source in set(sources):
            readers[source].append(index)
    # Between a clone and the next op of the unplanned step there are only clones, and that op
    # must need it, directly or through them.
    base, wanted = -1, set(clones)
    early = _early(steps, running)
    for clone in range(len(steps) - 1, -1, -1):
        if clone not in is_clone | early:
            base, wanted = clone, set()
        if clone == base or clone in wanted:
            wanted.update(source for source in needs[clone] if source in is_clone | early)
        if clone not in is_clone:
            continue
        name = running[clone].name
        if not readers[clone]:
            problems.append(Problem(Kind.USELESS_CLONE, name, clone))
        if base >= 0 and not running[base].is_backward:
            problems.append(Problem(Kind.CLONE_IN_FORWARD, "%s runs before %s" % (
                name, running[base].name), clone))
        elif readers[clone] and (base < 0 or clone not in wanted):
            problems.append(Problem(Kind.CLONE_EARLY, "%s is first needed by %s, not by %s" % (
                name, running[readers[clone][0]].name,
                running[base].name if base >= 0 else "the end"), clone))
    return problems


def _early(steps: Sequence[Step], running: Sequence[Op]) -> Set[int]:
    """Steps of what hands a value on that run before their place, like clones."""
    early: Set[int] = set()
    following = len(steps)  # the op of the unplanned step that runs next
    first = {step.op: index for index, step in reversed(list(enumerate(steps)))}
    for index in range(len(steps) - 1, -1, -1):
        if running[index].hands_on >= 0:
            early |= {index} if following < steps[index].op else set()
        elif first[steps[index].op] == index:
            following = steps[index].op
    return early


def _needs(schedule: Schedule, running: Sequence[Op]) -> List[List[int]]:
    """Steps that each step needs: those it reads, and runs of the op whose state it continues."""
    runs: Dict[int, List[int]] = {}
    result = []
    for index, (step, op) in enumerate(zip(schedule.steps, running)):
        needs = [s for k, s in enumerate(step.sources) if s >= 0 and k not in op.ignored_inputs]
        if op.uses_state:
            needs += runs.get(op.forward_op, [])
        result.append(needs)
        runs.setdefault(step.op, []).append(index)
    return result


def _outputs(graph: Graph, schedule: Schedule, running: Sequence[Op]) -> List[Problem]:
    made = {tensor for op in running for tensor in op.outputs}
    return [Problem(Kind.OUTPUT_MISSING, graph.tensors[tensor].name) for tensor in graph.outputs
            if tensor not in made and graph.tensors[tensor].producer >= 0]


def _guards(graph: Graph, schedule: Schedule, running: Sequence[Op]) -> List[Problem]:
    """Check that compute waits for each step of another stream before the memory of that is free.

    See :mod:`memonger.graph.clock`.
    """
    if not graph.has_streams:
        return []
    end = len(running)
    last: Dict[Tuple[int, int], int] = {}
    touches: List[List[Tuple[int, int]]] = [[] for _ in running]
    #: For each step the first one of compute that waits for it, or for a later one of its stream.
    waited = [end] * end
    made: Set[int] = set()
    for index, (step, op) in enumerate(zip(schedule.steps, running)):
        read = [(source, graph.read_as(tensor, schedule.steps[source].op))
                for position, (source, tensor) in enumerate(zip(step.sources, op.inputs))
                if source >= 0 and position not in op.ignored_inputs]
        touches[index] = read + [(index, tensor) for tensor in op.outputs]
        for value in touches[index]:
            lasts = value[0] == index and value[1] in graph.output_set and value[1] not in made
            last[value] = max(last.get(value, 0), end if lasts else index)
        made.update(op.outputs)
        if op.stream == COMPUTE:
            for source, _ in read:
                waited[source] = min(waited[source], index)
    problems = []
    following: Dict[str, int] = {}
    for index in range(end - 1, -1, -1):
        op = running[index]
        waited[index] = min(waited[index], following.get(op.stream, end))
        following[op.stream] = waited[index]
        for source, tensor in touches[index] if op.stream != COMPUTE else ():
            if graph.tensors[tensor].pooled and last[source, tensor] < waited[index]:
                problems.append(Problem(Kind.FREED_EARLY, "%s works in %s" % (
                    op.name, graph.tensors[tensor].name), index))
    return problems
