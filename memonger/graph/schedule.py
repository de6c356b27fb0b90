"""From decisions to the exact order of execution.

A *schedule* is the list of all steps that one training step runs, clones included, each saying
which earlier step made each value that it reads. It is general: any op may run any number of
times, anywhere after its inputs. Decisions are a small way to write the schedules that MXNet
runs; :func:`expand` turns them into a schedule exactly as the plugin and MXNet's depth-first
order do: a clone runs right before the first op that needs it.
"""
from __future__ import annotations

from dataclasses import dataclass
from numbers import Integral
from typing import Dict, List, Mapping, Tuple

from ..util.argument_checks import shown
from ..util.errors import InputError
from .clock import Run, Times, times_of
from .types import Graph

#: Who reads a recomputed value: (backward op, 0), or (forward op, k) for its k-th clone, k >= 1.
Consumer = Tuple[int, int]

#: Op id of each recomputed op -> the consumers that do not use clone 1, with the number of the
#: clone that they use instead; 0 is the first run itself. ``{op: {}}``: one clone serves all.
Recompute = Mapping[int, Mapping[Consumer, int]]
#: In place of a clone's number: the value as another op hands it on (:attr:`Op.hands_on`).
HANDED_ON = -1


@dataclass(frozen=True)
class Step:
    """One execution of one op."""

    op: int
    #: For each input of the op, in order: the step that made the value, or -1 when the tensor
    #: exists before the training step.
    sources: Tuple[int, ...]


@dataclass(frozen=True)
class Schedule:
    """All steps, in order, and the variants (indices into ``graph.variants``) in use."""

    steps: Tuple[Step, ...]
    variants: Tuple[int, ...] = ()

    def time_s(self, graph: Graph) -> float:
        """Time of one training step, variants considered: the end of the last stream.

        With one stream that is the sum over all steps.
        """
        if graph.has_streams:
            return self.times(graph).total_s
        times = [op.time_s for op in graph.ops]
        for index in self.variants:
            for op, implementation in graph.implementations_of(index):
                times[op] = implementation.time_s
        return sum(times[step.op] for step in self.steps)

    def times(self, graph: Graph) -> Times:
        """When each step runs: see :mod:`memonger.graph.clock`."""
        running = [op.implementations[0] for op in graph.ops]
        for index in self.variants:
            for op, implementation in graph.implementations_of(index):
                running[op] = implementation
        return times_of(Run(
            graph.ops[step.op].stream, running[step.op].time_s,
            [source for position, source in enumerate(step.sources)
             if source >= 0 and position not in running[step.op].ignored_inputs])
            for step in self.steps)

    def recomputed(self) -> Tuple[int, ...]:
        """Ids of the ops that run more than once, each as often as it runs again."""
        seen: Dict[int, int] = {}
        for step in self.steps:
            seen[step.op] = seen.get(step.op, 0) + 1
        return tuple(op for op, count in sorted(seen.items()) for _ in range(count - 1))


def expand(graph: Graph, recompute: Recompute) -> Schedule:
    """The steps that MXNet runs with the plugin under these decisions.

    Forward ops run once, in the graph's order. Before a backward op come the clones that it
    needs and that no op before it needed: its inputs in order, each clone after its own inputs.

    Parameters
    ----------
    graph : Graph
        Without variants in use.
    recompute : Recompute
        The ops to run again; one that is not ``recomputable`` never is, whatever is asked.

    Returns
    -------
    Schedule
        O(number of edges) time and size.

    Raises
    ------
    InputError
        If a decision has another form, or names an op or a run that does not exist.
    """
    _check(graph, recompute)
    schedule, runs = _steps(graph, recompute)
    for op, served in recompute.items():
        for (reader, run), clone in served.items():
            for index, number in ((reader, run), (op, clone)):
                handed_on = (index, number) == (op, HANDED_ON) and not graph.handed_on.keys(
                    ).isdisjoint(graph.ops[op].outputs)
                if (index, number) not in runs and not handed_on and graph.ops[op].recomputable:
                    raise InputError("the decision on op %r names run %d of op %r, which does not "
                                     "run so often" % (graph.ops[op].name, number,
                                                       graph.ops[index].name))
    return schedule


def expand_in_part(graph: Graph, recompute: Recompute) -> Schedule:
    """The same where some decisions may be about runs that there are no longer."""
    return _steps(graph, recompute)[0]


def _check(graph: Graph, recompute: Recompute) -> None:
    """Raise InputError for decisions of another form, or about ops that the graph does not have."""
    try:
        numbers = [number for op, served in recompute.items()
                   for (reader, run), clone in (((op, 0), 0), *served.items())
                   for number in (reader, run, clone)]
        well_formed = all(isinstance(number, Integral) for number in numbers)
    except (AttributeError, TypeError, ValueError):
        well_formed = False
    if not well_formed:
        raise InputError("decisions must be {op: {(reader, its run): run of op}}, all in numbers, "
                         "not %s" % shown(recompute))
    unknown = sorted(set(numbers[::3]).difference(range(len(graph.ops))))
    if unknown:
        raise InputError("a decision names op %s, and the graph has ops 0 to %d"
                         % (unknown[0], len(graph.ops) - 1))


def _may_hand_on(graph: Graph, op: int, made: Mapping[Consumer, int]) -> bool:
    """Whether an op may run before its place: what it reads was made in backward, and is there."""
    makers = [graph.tensors[t].producer for t in graph.ops[op].inputs] if op >= 0 else [-1]
    return all(graph.ops[by].is_backward and (by, 0) in made for by in makers)


def _steps(graph: Graph, recompute: Recompute) -> Tuple[Schedule, Dict[Consumer, int]]:
    """The schedule, and the step of each run of each op."""
    steps: List[Step] = []
    made: Dict[Consumer, int] = {}

    def run(first_op: int, first_clone: int) -> None:
        # An explicit stack: chains of clones can be longer than Python's recursion limit.
        stack: List[Tuple[int, int, List[int]]] = [(first_op, first_clone, [])]
        while stack:
            index, clone, sources = stack[-1]
            op = graph.ops[index]
            reads_clones = clone > 0 or op.is_backward
            missing = None
            while len(sources) < len(op.inputs) and missing is None:
                position = len(sources)
                tensor = op.inputs[position]
                producer = graph.tensors[tensor].producer
                if producer < 0:
                    sources.append(-1)
                    continue
                number = 0
                made_by = graph.ops[producer]
                if reads_clones and producer in recompute and position not in op.ignored_inputs:
                    wanted = recompute[producer].get((index, clone), 1)
                    handed = (graph.handed_on.get(tensor, -1), 0)
                    if wanted == HANDED_ON and handed in made:
                        sources.append(made[handed])
                        continue
                    if wanted == HANDED_ON and _may_hand_on(graph, handed[0], made):
                        missing = handed
                        continue
                    if made_by.recomputable and not made_by.is_backward \
                            and made_by.outputs.index(tensor) not in made_by.kept_outputs:
                        number = 1 if wanted == HANDED_ON else wanted
                if (producer, number) in made:
                    sources.append(made[producer, number])
                else:
                    missing = (producer, number)
            if missing is None and op.uses_state and op.forward_op in recompute \
                    and graph.ops[op.forward_op].recomputable:
                number = recompute[op.forward_op].get((index, clone), 1)
                number = 1 if number == HANDED_ON else number
                if (op.forward_op, number) not in made:
                    missing = (op.forward_op, number)
            if missing is not None:
                stack.append((missing[0], missing[1], []))
                continue
            stack.pop()
            made[index, clone] = len(steps)
            steps.append(Step(index, tuple(sources)))

    for index, op in enumerate(graph.ops):
        if op.runs and (index, 0) not in made:
            run(index, 0)
    return Schedule(tuple(steps)), made
