"""From a schedule back to PyTorch: forward and backward graphs that run its steps."""
from __future__ import annotations

import operator
from typing import Any, Dict, List, Optional, Sequence, Set, Tuple

import torch
import torch.fx as fx

from ...graph.in_use import graph_in_use
from ...graph.offload import GATE, WAIT
from ...graph.schedule import Schedule, Step, expand
from ...graph.types import Graph, Op
from ..capture.captured import TANGENT, Captured
from ..capture.fusion import is_small_beside
from ..capture.laid import joined
from ..capture.layouts import strides_of, with_channels_last
from ..capture.operators import run_again
from ..capture.written import copy_of, with_copies
from ..pytorch import private_joint, private_kernels, private_ops, private_scheduler
from .offload import written_copy

#: Says in a node's meta which value of the joint graph it is, from its first run.
_VALUE = "memonger_value"


def split(captured: Captured, schedule: Schedule,
          fused: bool = False) -> private_joint.Modules:
    """Forward and backward that run exactly these steps, in this order.

    Views and values that no kernel writes are made beside their readers, once for each run of
    these, symbolic sizes are computed once. Not for sizes that depend on values; see
    :func:`tagged`.

    ``fused``: for Inductor, which runs operators in the memory of inputs that get new values.
    """
    forward, backward = _Writer(captured, schedule, fused).write()
    if fused:
        with_copies(forward, captured.num_forward_outputs)
    return forward, backward


def run_twice(graph: Graph, schedule: Schedule) -> Schedule:
    """A schedule whose forward pass runs once more, in front of backward, where it may.

    So the first pass keeps the least whatever the schedule keeps, and need not know it.
    """
    steps = schedule.steps
    first_late = next((i for i, s in enumerate(steps) if graph.ops[s.op].is_backward), len(steps))
    needed: Set[int] = set()
    for index in range(len(steps) - 1, -1, -1):
        if index in needed or index >= first_late:
            needed.update(s for t, s in zip(graph.ops[steps[index].op].inputs,
                                            steps[index].sources)
                          if 0 <= s < first_late and _again(graph, steps[s].op, t))
    again: Dict[int, int] = {}

    def moved(step: Step) -> Step:
        return Step(step.op, tuple(
            s + len(again) if s >= first_late else
            again[s] if s in again and _again(graph, steps[s].op, t) else s
            for t, s in zip(graph.ops[step.op].inputs, step.sources)))

    twice = []
    for index in sorted(needed):
        twice.append(moved(steps[index]))
        again[index] = first_late + len(again)
    return Schedule((*steps[:first_late], *twice, *map(moved, steps[first_late:])))


def _again(graph: Graph, op: int, tensor: int) -> bool:
    """Whether a tensor is that of a second run of its op, where there is one."""
    made = graph.ops[op]
    return made.recomputable and made.outputs.index(tensor) not in made.kept_outputs


def value_names(half: fx.GraphModule) -> List[str]:
    """The inputs of a half that :func:`split` gave, each by the value that it is."""
    return [node.meta.get(_VALUE, node.name) for node in half.graph.find_nodes(op="placeholder")]


def tagged(captured: Captured, schedule: Optional[Schedule], inputs: Sequence[Any], fused: bool,
           **kwargs: Any) -> private_joint.Modules:
    """PyTorch's own split with the ops that run again marked: at most one clone of each.

    ``schedule``: None for what PyTorch does unplanned, and the module's own checkpoints.
    ``fused``: Inductor's split, which also decides about all that the schedule keeps.
    """
    divide = private_joint.min_cut if fused else private_joint.default_partition
    forward, backward = divide(
        captured.joint, inputs, None if schedule is None else _run_again(captured, schedule),
        num_fwd_outputs=captured.num_forward_outputs, **kwargs)
    with_copies(forward, captured.num_forward_outputs)
    return forward, backward


def _run_again(captured: Captured, schedule: Schedule) -> List[fx.Node]:
    """The nodes of the ops that run again, and the views of their results."""
    again = set(schedule.recomputed())
    graph = captured.graph
    nodes = [part for op in sorted(again) for part in captured.parts[op]
             if not is_small_beside(part, captured.nodes[op])]
    nodes += captured.written.views_read_late
    for node in captured.joint.graph.nodes:
        held = [t for t in captured.tensors_of.get(node, ()) if t is not None]
        if captured.ops_by_node.get(node) in again or node in captured.views and any(
                graph.tensors[t].producer in again for t in held):
            nodes.append(node)
    return nodes


def kept_whole(joint: fx.GraphModule, inputs: Sequence[Any], num_forward_outputs: int,
               **kwargs: Any) -> private_joint.Modules:
    """Forward that keeps all that backward reads, and begins with copies of what it writes into.

    It shares nothing with plans, to compare them with.
    """
    for node in private_joint.written_inputs(joint):
        with joint.graph.inserting_before(next(
                n for n in joint.graph.nodes if n.op != "placeholder")):
            copied = copy_of(node)
        private_joint.place(copied, False)
        for reader in [n for n in node.users if n is not copied and n.op != "output"
                       and node not in private_ops.written_arguments(n)]:
            reader.replace_input_with(node, copied)
    return private_joint.default_partition(joint, inputs, (), num_fwd_outputs=num_forward_outputs,
                                     **kwargs)


def usual_schedule(captured: Captured, fused: bool) -> Schedule:
    """What runs again without a plan: what the module's own checkpoints and, under Inductor,
    PyTorch's partitioner compute again. Random numbers are drawn once, and kept.
    """
    graph = captured.graph
    if captured.runs:
        own = {id(run.captured): usual_schedule(run.captured, fused) for run in captured.runs}
        return joined(captured, [own[id(run.captured)] for run in captured.runs])
    late = captured.usually_late
    if not fused and captured.checkpoints:
        late = private_joint.usual_halves(captured.joint, captured.num_forward_outputs, False)[1]
    return expand(graph, {op: {} for op, node in enumerate(captured.nodes) if node is not None
                          and node.name in late and graph.ops[op].recomputable})


class _Writer:
    """Writes one schedule as a new joint graph, and cuts that in two."""

    def __init__(self, captured: Captured, schedule: Schedule, fused: bool):
        self.captured, self.schedule, self.fused = captured, schedule, fused
        self.graph = graph_in_use(captured.graph, schedule)
        self.new = fx.Graph()
        self.inputs: Dict[fx.Node, fx.Node] = {}
        #: Copies of inputs that the step writes into, for backward.
        self.copies: Dict[fx.Node, fx.Node] = {}
        #: New node of each step, and of what makes no storage by what it is made from.
        self.of_step: List[Any] = []
        self.view_copies: Dict[Tuple[Any, ...], fx.Node] = {}
        self.made_of: Dict[fx.Node, List[int]] = {}
        self.first: Dict[int, int] = {}
        #: How often each op has run again, and the one that is written.
        self.clones: Dict[int, int] = {}
        self.clone = 0
        for index, step in enumerate(schedule.steps):
            self.first.setdefault(step.op, index)
        #: Of each tensor the step that makes it first.
        self.made_first = {t: self.first[item.producer] for t, item in enumerate(self.graph.tensors)
                           if item.producer in self.first}
        self.channels_last = with_channels_last(list(captured.joint.graph.nodes))
        self.arranged = bool(self.channels_last)
        #: Parts of the op that is written which are taken from forward.
        self.kept: Set[fx.Node] = set()

    def write(self) -> private_joint.Modules:
        joint = self.captured.joint
        for node in joint.graph.nodes:
            if node.op in ("placeholder", "get_attr"):
                self.inputs[node] = self.new.node_copy(node)
        steps = self.schedule.steps
        backward = next((i for i, s in enumerate(steps) if self.graph.ops[s.op].is_backward
                         or i != self.first[s.op]), len(steps))
        for index in range(len(steps)):
            self._step(index, index >= backward)
        self._output(joint.graph.output_node())
        self.new.lint()
        module = fx.GraphModule(joint, self.new)
        saved = self._saved()
        module.recompile()
        return private_joint.extract(module, saved, self.captured.num_forward_outputs)

    def _step(self, index: int, in_backward: bool) -> None:
        step = self.schedule.steps[index]
        op, node = self.graph.ops[step.op], self.captured.nodes[step.op]
        if step.op in self.captured.moves:
            self._move(op, index, in_backward)
            return
        if node is None:
            self.of_step.append(None)
            return
        sources = {self.captured.value_of.get(t, t): s
                   for t, s in zip(op.inputs, step.sources) if s >= 0}
        if not in_backward and private_ops.writes(node.target):
            for value in self.inputs:  # as they are before that
                self._input(value, True)
        again = index != self.first[step.op]
        self.clone = self.clones[step.op] = self.clones.get(step.op, -1) + 1
        self.kept = {part for part in self.captured.parts[step.op]
                     if is_small_beside(part, node) and self._is_of_forward(part)} \
            if again or op.is_backward else set()
        made = self.new.node_copy(node, lambda a: self._value(a, sources, in_backward))
        self.kept = set()
        if again:
            run_again(made)
        made.meta = {**made.meta, _VALUE: node.name}
        private_joint.place(made, in_backward)
        if again and self.fused and self._stays_in_place(node):
            made = private_kernels.written(made, strides_of(
                node.meta["val"], node in self.channels_last))
        private_scheduler.mark_step(made, index)
        self.of_step.append(made)

    def _stays_in_place(self, node: fx.Node) -> bool:
        """Whether Inductor may be told to write a value, which it would else make of others, that
        then live, in each kernel that reads it. Beside convolutions only masks: it writes others
        over what they are made of, where it chooses the layout.
        """
        value = node.meta["val"]
        return private_kernels.is_pointwise(node) and not (
            self.arranged and value.dim() > 3 and value.dtype != torch.bool) and all(
                isinstance(stride, int) for stride in value.stride())

    def _move(self, op: Op, index: int, in_backward: bool) -> None:
        """An op that moves a value to the host or back, or hands it on."""
        step = self.schedule.steps[index]
        kind, tensor = self.captured.moves[step.op]
        value = self.captured.value_nodes[tensor]
        read = [self._value(value, {tensor: source}, in_backward) if t == tensor
                else self.of_step[source]
                for t, source in zip(reversed(op.inputs), reversed(step.sources))]
        hands_on = kind == GATE and op.inputs[0] == tensor
        made = read[0]
        if not hands_on:
            made = written_copy(self.new, kind, read, value, in_backward, self.arranged)
            private_scheduler.mark_step(made, index)
        self.of_step.append(made)
        if kind == WAIT:  # what is fetched has ended
            self.of_step[step.sources[-1]] = made

    def _value(self, node: fx.Node, sources: Dict[int, int], in_backward: bool,
               wanted: Sequence[int] = ()) -> fx.Node:
        """The new node of ``node`` where tensors come from the steps ``sources``."""
        if node in self.inputs:
            return self._input(node, in_backward)
        moved = self._moved(node, sources)
        if moved is not None:
            return moved
        op = self.captured.ops_by_node.get(node)
        if op is not None:
            outputs = [t for t in wanted or self.graph.ops[op].outputs if t in sources]
            return self.of_step[sources[outputs[0]] if outputs else self.first[op]]
        if private_joint.is_symbolic(node):  # a size is computed once, where it is known first
            sources, in_backward = {}, in_backward and private_joint.is_backward(node)
        if node in self.kept:
            sources, in_backward = self.made_first, False
        held = [t for t in self.captured.tensors_of[node] if t is not None]
        key = (node, tuple(sources.get(t, -1) for t in self._made_of(node)), in_backward,
               self.clone)
        if key not in self.view_copies:
            made = self.new.node_copy(
                node, lambda a: self._value(a, sources, in_backward, held))
            made.meta = {**made.meta, _VALUE: node.name}
            private_joint.place(made, in_backward)
            self.view_copies[key] = made
        return self.view_copies[key]

    def _moved(self, node: fx.Node, sources: Dict[int, int]) -> Optional[fx.Node]:
        """What an op of a move made of the node's value, where that is where it comes from."""
        held = self.captured.tensors_of.get(node, [])
        tensor = held[0] if len(held) == 1 else None
        source = -1 if tensor is None else sources.get(tensor, -1)
        if tensor is None or source < 0 \
                or self.schedule.steps[source].op not in self.captured.moves:
            return None
        value = self.captured.value_nodes[tensor]
        return self.of_step[source] if node is value or \
            node.target is value.target is operator.getitem else None

    def _made_of(self, node: fx.Node) -> List[int]:
        """The tensors that a value lies in, or that a value in registers is computed from."""
        if node not in self.made_of:
            held = [t for t in self.captured.tensors_of.get(node, ()) if t is not None]
            self.made_of[node] = held or list(dict.fromkeys(
                t for operand in node.all_input_nodes for t in self._made_of(operand)))
        return self.made_of[node]

    def _is_of_forward(self, node: fx.Node) -> bool:
        """Whether a value is computed from values of forward alone."""
        made_of = [self.graph.tensors[t] for t in self._made_of(node)]
        return bool(made_of) and not any(
            t.category == TANGENT if t.producer < 0 else self.graph.ops[t.producer].is_backward
            for t in made_of)

    def _input(self, node: fx.Node, in_backward: bool) -> fx.Node:
        """An input as it is before the step: in backward a copy, where forward writes into it."""
        if not in_backward or node not in self.captured.written.inputs:
            return self.inputs[node]
        if node not in self.copies:
            self.copies[node] = copy_of(self.inputs[node])
            private_joint.place(self.copies[node], False)
        return self.copies[node]

    def _output(self, output: fx.Node) -> None:
        count = self.captured.num_forward_outputs
        made = self.new.output(tuple(
            self._value(value, self.made_first, position >= count)
            if isinstance(value, fx.Node) else value
            for position, value in enumerate(output.args[0])))
        made.meta = dict(output.meta)

    def _saved(self) -> List[fx.Node]:
        """What backward reads of forward; of tuples the elements that it reads."""
        forward = {n for n in self.new.nodes if n.op in ("placeholder", "get_attr")
                   and not (n.op == "placeholder" and private_joint.is_tangent(n))
                   or n.meta.get("partitioner_tag") == "must_be_in_forward"}
        saved: Dict[fx.Node, None] = {}
        for node in [n for n in self.new.nodes if n in forward]:
            late = [u for u in node.users if u not in forward and u.op != "output"]
            if not isinstance(node.meta.get("val"), (tuple, list)):
                if late:
                    saved[node] = None
                continue
            for user in late:
                if user.target is operator.getitem:
                    saved[self._element(node, user, forward)] = None
        count = self.captured.num_forward_outputs
        for value in self.new.output_node().args[0][count:]:
            if isinstance(value, fx.Node) and value in forward:
                saved[value] = None
        return list(saved)

    def _element(self, node: fx.Node, user: fx.Node, forward: Set[fx.Node]) -> fx.Node:
        """The element of a tuple that ``user`` takes in backward, taken in forward instead."""
        twin = next((u for u in node.users if u in forward and u.target is operator.getitem
                     and u.args[1] == user.args[1]), None)
        if twin is None:
            with self.new.inserting_after(node):
                twin = self.new.node_copy(user, lambda a: a)
            private_joint.place(twin, False)
            forward.add(twin)
        user.replace_all_uses_with(twin)
        self.new.erase_node(user)
        return twin
