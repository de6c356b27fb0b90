"""The graphs of a step, and the step that runs."""
from __future__ import annotations

import bisect
from dataclasses import dataclass, field
from typing import Any, Callable, Dict, Hashable, List, Optional, Sequence, Set, Tuple

import torch
import torch.fx as fx

from ...graph.schedule import Schedule, expand
from ...plans.plan import Plan
from ..capture.captured import Captured
from ..capture.laid import Between
from ..pytorch import private, private_joint, private_ops, private_sizes
from ..pytorch.allocations import Window
from ..pytorch.module_step import set_random_states
from ..pytorch.sizes import Symbols, Values, in_force
from ..rewrite.apply import run_twice, split, value_names
from ..rewrite.eager import Program

#: Graphs and their sizes, from the beginning of a step.
Beginning = Tuple[Tuple[int, Tuple[int, ...]], ...]


@dataclass
class Call:
    """One run of a graph in a step."""

    part: "Part"
    values: Values
    #: Storages.
    inputs: List[Optional[Hashable]]
    before: Between
    outputs: List[Optional[Hashable]] = field(default_factory=list)
    is_new: bool = False


class Step:
    """The step that runs."""

    def __init__(self, given: Sequence[torch.Tensor]):
        #: Tensors among the arguments.
        self.given = given
        self.calls: List[Call] = []
        self.beginning: Beginning = ()
        self.plan: Optional[Plan] = None
        self.is_new = False
        self.window = Window()
        self.betweens: List[Between] = []
        #: For each graph the number that the next operator with a gradient had when it began.
        self.began: List[int] = []
        #: Memory that graphs write into with what was in it, and random states.
        self.undo: List[Tuple[torch.Tensor, torch.Tensor]] = []
        self.random: Any = None

    def between(self, tensors: Sequence[Any]) -> Between:
        """What ran since the last graph; it or earlier code has made these, or handed them on."""
        self.betweens.append(Between(*self.window.taken()))
        for tensor in tensors:
            storage = private_ops.storage_reference(tensor)
            if storage is not None and not private_ops.made_in_graph(tensor):
                place = bisect.bisect(self.began, private_ops.gradient_number(tensor))
                self.betweens[place].made[storage] = tensor.untyped_storage().nbytes()
        self.began.append(private_ops.gradient_number())
        return self.betweens[-1]

    def restore(self) -> None:
        """Put back what was there before the first new graph."""
        with torch.no_grad():
            for tensor, value in reversed(self.undo):
                tensor.copy_(value)
        if self.random is not None:
            set_random_states(self.random)


class Part:
    """One graph of a step: a callable that Dynamo calls, with code for each schedule.

    ``compiler(part, module, inputs, schedule)`` makes code, ``run(part, arguments)`` runs the part
    in the step that goes on.
    """

    def __init__(self, number: int, module: fx.GraphModule, inputs: Sequence[Any],
                 compiler: Callable[..., Any], run: Callable[..., Any]):
        self.number, self.compiler, self.run = number, compiler, run
        self.sources = private.input_names(module)
        self.fakes = private_sizes.example_values(module)
        self.symbols = Symbols(self.fakes)
        self.module = private.copied_graph(module)  # Dynamo empties its own when it is done
        self.captured: Optional[Captured] = None
        #: As Inductor reads it, in that mode.
        self.fused: Optional[Captured] = None
        self.trains = False
        #: Schedules for backward of new runs, the last one first.
        self.pending: List[Schedule] = []
        self._late: Dict[Schedule, Program] = {}
        self._codes: List[Tuple[Optional[Schedule], Callable[..., Any], Sequence[Any]]] = []
        self._codes.append((None, compiler(self, module, inputs, None), ()))

    def __call__(self, *arguments: Any) -> Any:
        return self.run(self, arguments)

    def code(self, schedule: Optional[Schedule], values: Values) -> Callable[..., Any]:
        """Code by a schedule; None: what keeps least, and serves any."""
        for known, call, conditions in self._codes:
            if (known == schedule or not self.trains) and \
                    all(condition.xreplace(values) for condition in conditions):
                return call
        with in_force(values), private_sizes.compiling_again(self.fakes) as conditions:
            call = self.compiler(self, self.module, self.fakes, schedule)
        self._codes.append((schedule, call, conditions))
        return call

    def written(self, arguments: Sequence[Any]) -> List[torch.Tensor]:
        """The arguments that the graph writes into."""
        assert self.captured is not None
        places = private_joint.input_positions(
            private_joint.written_inputs(self.captured.joint, backward=True))
        return [arguments[k] for k in places if k is not None]

    def halves_for_any(self, captured: Captured) -> private_joint.Modules:
        """Halves of which the first keeps the least."""
        return split(captured, run_twice(captured.graph, expand(captured.graph, {})))

    def backward_for_any(self, half: fx.GraphModule) -> Callable[[List[Any]], Any]:
        """The second of these halves, by the schedule that is pending when it runs."""
        names, usual = value_names(half), Program(half)

        def run(arguments: List[Any]) -> Any:
            schedule = self.pending.pop() if self.pending else None
            if schedule is None:
                return usual.run(arguments)
            if schedule not in self._late:
                assert self.captured is not None
                self._late[schedule] = Program(split(
                    self.captured, run_twice(self.captured.graph, schedule))[1])
            program = self._late[schedule]
            given = dict(zip(names, arguments))
            arguments.clear()
            wanted = value_names(program.module)
            chosen = [given.pop(name) for name in wanted]
            given.clear()
            return program.run(chosen)
        return private.boxed(run)


def storages_of(tensors: Sequence[torch.Tensor]) -> Set[Hashable]:
    return {private_ops.storage_reference(t) for t in tensors} - {None}
