"""Several graphs of one step laid in one: first all forward passes, then backward from the last.

What crosses between them is found by its storage, and counted once. What runs between them, and is
in no graph, counts with what it was seen to take: its results and what it keeps for its backward
are there until that, and backward takes beside them at most what forward took.
"""
from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Callable, Dict, Hashable, List, Mapping, Optional, Sequence, Set, Tuple

import torch.fx as fx

from ...graph.decisions import decisions_of
from ...graph.schedule import Consumer, Schedule, expand_in_part
from ...graph.types import Graph, Op, Tensor
from ..pytorch import private_joint
from .captured import BUFFER, INPUT, PARAMETER, TANGENT, Captured
from .written import Written

#: Kind of the ops that no graph has.
BETWEEN = "between"
#: The gradient of one operator takes at most so many tensors as large as its operands, as that of
#: ``x.square()`` does: the gradient that comes, twice x, and their product.
FOR_ONE_OP = 3


@dataclass
class Between:
    """What ran in front of a graph, or behind the last one."""

    #: Bytes that it left, the most that it took at a time, and for one tensor.
    kept_bytes: int = 0
    most_bytes: int = 0
    largest_bytes: int = 0
    #: What it made or changed, as far as gradients go through it: bytes of storages.
    made: Dict[Hashable, int] = field(default_factory=dict)


@dataclass
class Run:
    """One graph of a step, with the storages of what it was called with and what it gave."""

    captured: Captured
    #: By the argument of the Dynamo graph, and its output; None for what is no tensor.
    inputs: Sequence[Optional[Hashable]]
    outputs: Sequence[Optional[Hashable]]
    before: Between = field(default_factory=Between)
    #: Op of the whole step for each op of the graph.
    ops: Dict[int, int] = field(default_factory=dict)


def lay(runs: Sequence[Run], behind: Between, given: Set[Hashable], results: Set[Hashable],
        other_bytes: Mapping[str, int]) -> Captured:
    """The whole step.

    ``behind``: what ran behind the last graph. ``given``: storages of what the step has to begin
    with.
    ``results``: of what it gives to its caller. ``other_bytes``: of parameters, buffers and
    arguments that no graph has, and of such parameters' gradients.
    """
    return _Layer(runs, behind, given, results, other_bytes).laid()


def divided(laid: Captured, schedule: Schedule) -> List[Schedule]:
    """The schedule of each graph in a schedule of the whole step."""
    decisions = decisions_of(laid.graph, schedule)
    schedules = []
    for run in laid.runs:
        own = {op: number for number, op in run.ops.items()}
        schedules.append(expand_in_part(run.captured.graph, {
            own[op]: {(own[reader], number): clone for (reader, number), clone in served.items()
                      if reader in own}
            for op, served in decisions.items() if op in own}))
    return schedules


def joined(laid: Captured, schedules: Sequence[Schedule]) -> Schedule:
    """The schedule of the whole step in which each graph has its own."""
    decisions: Dict[int, Mapping[Consumer, int]] = {}
    for run, schedule in zip(laid.runs, schedules):
        decisions.update({
            run.ops[op]: {(run.ops[reader], number): clone
                          for (reader, number), clone in served.items()}
            for op, served in decisions_of(run.captured.graph, schedule).items()})
    return expand_in_part(laid.graph, decisions)


class _Layer:
    """One laying of the graphs of a step."""

    def __init__(self, runs: Sequence[Run], behind: Between, given: Set[Hashable],
                 results: Set[Hashable], other_bytes: Mapping[str, int]):
        self.runs = [replace(run, ops={}) for run in runs]
        self.betweens = [*(run.before for run in runs), behind]
        self.given, self.results, self.other_bytes = given, results, other_bytes
        self.tensors: List[Tensor] = []
        self.ops: List[Op] = []
        self.nodes: List[Optional[fx.Node]] = []
        self.parts: List[List[fx.Node]] = []
        self.outputs: Dict[int, None] = {}
        #: Tensors by storage, and for each run those of its graph's.
        self.by_storage: Dict[Hashable, int] = {}
        self.own: List[Dict[int, int]] = [{} for _ in runs]
        #: What is made between graphs: the number of the between by tensor.
        self.made_between: Dict[int, int] = {}
        #: For each between what it left for its backward, if anything.
        self.kept: List[Optional[int]] = [None] * len(self.betweens)
        #: Outputs of each run.
        self.given_out: List[List[int]] = [[] for _ in runs]
        #: Gradients by the tensor that they are of.
        self.gradients: Dict[int, List[int]] = {}

    def laid(self) -> Captured:
        for number in range(len(self.runs)):
            self._inputs(number)
            self._ops(number, False)
            self._outputs(number)
        self._between(len(self.runs), [])
        # The module's code holds them until it is over.
        self._add("forward.end", [*self.made_between, *(
            t for given in self.given_out for t in given), *(
            t for t, between in zip(self.kept, self.betweens) if t is not None)], [], False)
        for number in reversed(range(len(self.runs))):
            self._between_backward(number + 1)
            if any(op.is_backward for op in self.runs[number].captured.graph.ops):
                self._incoming(number)
                self._ops(number, True)
                self._gradients(number)
        self._between_backward(0)
        for name, category in (("other parameters", PARAMETER), ("other buffers", BUFFER),
                               ("other inputs", INPUT)):
            self._outside(name, self.other_bytes.get(name, 0), category)
        self._keep_what_leaves()
        captured = [run.captured for run in self.runs]
        first = next((c for c in captured if c.device != "cpu"), captured[0] if captured else None)
        graph = Graph(tuple(self.tensors), tuple(self.ops), tuple(self.outputs),
                      name=first.graph.name if first else "")
        graph.check()
        sizes: List[Callable[[], int]] = [
            lambda size=t.size_bytes: size for t in self.tensors]  # type: ignore[misc]
        return Captured(
            graph, first.joint if first else fx.GraphModule({}, fx.Graph()), 0, self.nodes, {},
            set(), self.parts, Written(set(), set(), [], []), False,
            first.device if first else "cpu", first.costs if first else "units", sizes, {},
            runs=tuple(self.runs))

    # ------------------------------------------------------------------ forward
    def _inputs(self, number: int) -> None:
        """What a run reads from before it: from earlier runs, from between, from before the step.
        """
        run, made = self.runs[number], []
        graph = run.captured.graph
        for node, position in zip(*_forward_inputs(run.captured)):
            storage = None if position is None else run.inputs[position]
            for tensor in _tensors_of(run.captured, node):
                known = self.by_storage.get(storage) if storage is not None else None
                if known is None:
                    record = graph.tensors[tensor]
                    if record.category != INPUT or storage in self.given:
                        known = self._outside(record.name, record.size_bytes, record.category)
                    else:
                        known = self._tensor(record.name + ":between", record.size_bytes)
                        made.append(known)
                    if storage is not None:
                        self.by_storage[storage] = known
                self.own[number][tensor] = known
        self._between(number, made)
        for tensor, record in enumerate(graph.tensors):  # constants of the graph
            if record.producer < 0 and record.category != TANGENT and \
                    tensor not in self.own[number]:
                self.own[number][tensor] = self._outside(record.name, record.size_bytes,
                                                         record.category)

    def _between(self, number: int, made: List[int]) -> None:
        """The op for what runs in front of a run: it makes what nothing else makes."""
        between = self.betweens[number]
        for storage, size_bytes in between.made.items():
            if storage not in self.by_storage and storage not in self.given:
                made.append(self._tensor("between.%d:made" % number, size_bytes))
                self.by_storage[storage] = made[-1]
                if storage in self.results:
                    self.outputs[made[-1]] = None
        outputs = list(made)
        made_bytes = sum(self.tensors[t].size_bytes for t in made)
        kept_bytes = max(0, between.kept_bytes - made_bytes)
        if kept_bytes:
            self.kept[number] = self._tensor("between.%d:kept" % number, kept_bytes)
            outputs.append(self.kept[number])  # type: ignore[arg-type]
        if between.most_bytes > made_bytes + kept_bytes:
            outputs.append(self._tensor("between.%d:temporary" % number,
                                        between.most_bytes - made_bytes - kept_bytes))
        if outputs:
            self.made_between.update(dict.fromkeys(made, number))
            self._add("between.%d" % number, self.given_out[number - 1] if number else [],
                      outputs, False)

    def _outputs(self, number: int) -> None:
        """Note the storages of what a run gives."""
        run = self.runs[number]
        joint = run.captured.joint
        values, written = joint.graph.output_node().args[0], private_joint.written_back(joint)
        for place, position in enumerate(private_joint.output_positions(joint)):
            if place >= run.captured.num_forward_outputs or written[place] or \
                    not isinstance(values[place], fx.Node):
                continue
            for tensor in _tensors_of(run.captured, values[place]):
                mine = self.own[number][tensor]
                if not self.tensors[mine].pooled or self.tensors[mine].producer < 0:
                    continue
                self.given_out[number].append(mine)
                storage = None if position is None else run.outputs[position]
                if storage is None or storage in self.results:
                    self.outputs[mine] = None
                if storage is not None:
                    self.by_storage[storage] = mine

    # ------------------------------------------------------------------ backward
    def _between_backward(self, number: int) -> None:
        """The op for the backward of what ran in front of a run: gone is what it kept."""
        between, kept = self.betweens[number], self.kept[number]
        made = [t for t, place in self.made_between.items() if place == number]
        gradients = [g for t in made for g in self.gradients.pop(t, ())]
        if not between.made and not gradients:
            return
        read = self.given_out[number - 1] if number else []
        largest_bytes = max([between.largest_bytes, *(self.tensors[t].size_bytes for t in read)])
        reads = [*gradients, *made, *read, *(() if kept is None else (kept,))]
        makes = [self._tensor(
            "between.%d:backward" % number,
            max(0, between.most_bytes - between.kept_bytes) + FOR_ONE_OP * largest_bytes)]
        gradient_bytes = self.other_bytes.get("gradients", 0)
        if gradient_bytes and not any(op.name.endswith(":backward") for op in self.ops):
            makes.append(self._tensor("other gradients", gradient_bytes))
            self.outputs[makes[-1]] = None
        self._add("between.%d:backward" % number, reads, makes, True)

    def _incoming(self, number: int) -> None:
        """The gradients of what a run gave: those that later runs made of it, summed up."""
        run, reads, makes = self.runs[number], [], []
        graph = run.captured.graph
        outputs = {position: node for node, position in zip(
            run.captured.joint.graph.output_node().args[0],
            private_joint.output_positions(run.captured.joint)[:run.captured.num_forward_outputs])
            if position is not None}
        for node, position in zip(*_tangents(run.captured)):
            value = None if position is None else outputs.get(position)
            given = [self.own[number][t] for t in (
                _tensors_of(run.captured, value) if isinstance(value, fx.Node) else ())]
            arriving = [g for t in given for g in self.gradients.pop(t, ())]
            storage = run.outputs[position] if position is not None else None
            for tensor in _tensors_of(run.captured, node):
                record = graph.tensors[tensor]
                if storage in self.results:
                    mine = self._outside(record.name, record.size_bytes, TANGENT)
                if storage in self.results and not arriving:
                    pass
                elif storage not in self.results and len(arriving) == 1 and \
                        not self.betweens[number + 1].made and \
                        self.tensors[arriving[0]].size_bytes == record.size_bytes:
                    mine = arriving[0]
                else:
                    mine = self._tensor(record.name, record.size_bytes)
                    makes.append(mine)
                    reads += arriving
                self.own[number][tensor] = mine
        if makes:
            self._add("gradients.%d" % (number + 1), list(dict.fromkeys(reads)), makes, True)

    def _gradients(self, number: int) -> None:
        """Where a run's gradients go; all of them are there until its backward is over."""
        run, returned = self.runs[number], []
        values = run.captured.joint.graph.output_node().args[0]
        positions = private_joint.gradient_positions(run.captured.joint)
        for value, position in zip(values, positions):
            if position is None or not isinstance(value, fx.Node):
                continue
            storage = run.inputs[position]
            source = self.by_storage.get(storage) if storage is not None else None
            for tensor in _tensors_of(run.captured, value):
                mine = self.own[number][tensor]
                if not self.tensors[mine].pooled or self.tensors[mine].producer < 0:
                    continue
                returned.append(mine)
                if source is None:
                    self.outputs[mine] = None
                    continue
                earlier = self.gradients.setdefault(source, [])
                if not self.tensors[source].pooled:
                    if not earlier:  # later ones are added to it
                        self.outputs[mine] = None
                earlier.append(mine)
        self._add("returned.%d" % (number + 1), list(dict.fromkeys(returned)), [], True)

    # ------------------------------------------------------------------ both
    def _keep_what_leaves(self) -> None:
        """What others than the graph's own ops read stays as its first run made it."""
        left = {t for given in self.given_out for t in given}
        for index, op in enumerate(self.ops):
            kept = {place for place, t in enumerate(op.outputs) if t in left}
            if op.is_backward or not op.recomputable or not kept:
                continue
            self.ops[index] = replace(op, kept_outputs=tuple(sorted({*op.kept_outputs, *kept}))) \
                if len(kept) < len(op.outputs) else \
                replace(op, not_recomputable_because="other graphs read its result")

    def _ops(self, number: int, late: bool) -> None:
        """The forward or backward ops of a run."""
        run, own = self.runs[number], self.own[number]
        captured = run.captured
        for index, op in enumerate(captured.graph.ops):
            if op.is_backward != late:
                continue
            place = run.ops[index] = len(self.ops)
            for tensor in op.outputs:
                own[tensor] = self._tensor(
                    _named(captured.graph.tensors[tensor].name, number), 0,
                    replace(captured.graph.tensors[tensor], producer=place))
            implementation = op.implementations[0]
            self.ops.append(replace(
                op, name=_named(op.name, number), forward_op=run.ops.get(op.forward_op, -1),
                control_deps=tuple(run.ops[dep] for dep in op.control_deps),
                implementations=(replace(
                    implementation, inputs=tuple(own[t] for t in implementation.inputs),
                    outputs=tuple(own[t] for t in implementation.outputs)),)))
            self.nodes.append(captured.nodes[index])
            self.parts.append(captured.parts[index])

    def _add(self, name: str, inputs: Sequence[int], outputs: Sequence[int], late: bool) -> None:
        """An op that no graph has."""
        if not inputs and not outputs:
            return
        for tensor in outputs:
            self.tensors[tensor] = replace(self.tensors[tensor], producer=len(self.ops))
        self.ops.append(Op.of(
            name, BETWEEN, tuple(t for t in dict.fromkeys(inputs) if self.tensors[t].pooled),
            tuple(outputs), late, not_recomputable_because="a backward op" if late else
            "runs between graphs"))
        self.nodes.append(None)
        self.parts.append([])

    def _tensor(self, name: str, size_bytes: int, record: Optional[Tensor] = None) -> int:
        self.tensors.append(replace(record, name=name) if record is not None else Tensor(
            name, size_bytes, -1, shape=(size_bytes,), dtype="uint8"))
        return len(self.tensors) - 1

    def _outside(self, name: str, size_bytes: int, category: str) -> int:
        return self._tensor(name, 0, Tensor(name, size_bytes, -1, category, "outside",
                                            (size_bytes,), "uint8"))


def _named(name: str, number: int) -> str:
    """A name that is the whole step's own."""
    return "%s@%d" % (name, number + 1) if number else name


def _forward_inputs(captured: Captured) -> Tuple[List[fx.Node], List[Optional[int]]]:
    nodes = [n for n in captured.joint.graph.find_nodes(op="placeholder")
             if not private_joint.is_tangent(n)]
    return nodes, private_joint.input_positions(nodes)


def _tangents(captured: Captured) -> Tuple[List[fx.Node], List[Optional[int]]]:
    nodes = [n for n in captured.joint.graph.find_nodes(op="placeholder")
             if private_joint.is_tangent(n)]
    return nodes, private_joint.tangent_positions(nodes)


def _tensors_of(captured: Captured, node: fx.Node) -> List[int]:
    return [t for t in captured.tensors_of.get(node, ()) if t is not None]
