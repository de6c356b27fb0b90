"""Inputs that the step reads and forward writes into: running statistics, queues, codebooks.

A joint graph is functional: an input is read as it is before the step, wherever the reader stands.
Forward, when it runs, leaves new values there. So what reads such an input runs in forward alone,
and once, and what of backward does reads a copy. PyTorch's partitioners do neither (its issue
197039), and Inductor drops copies that a module makes itself.
"""
from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import Dict, List, Mapping, Set

import torch
import torch.fx as fx

from ..pytorch import private_joint, private_ops
from .operators import first_operands
from .storages import Held

#: As ``aten.clone``, which Inductor leaves out where it reads an input.
_library = torch.library.Library("memonger", "FRAGMENT")
_library.define("copy_of(Tensor data) -> Tensor", tags=torch.Tag.flexible_layout)
_library.impl("copy_of", torch.clone, "CompositeExplicitAutograd")
#: Marks nodes whose values lie in memory that forward writes into.
_MARK = "memonger_written"


@dataclass
class Written:
    """The inputs of a joint graph that forward writes into, and who reads them."""

    inputs: Set[fx.Node]
    #: Nodes whose values lie in their memory: themselves, and views of them.
    values: Set[fx.Node]
    #: Forward nodes that read such values, and make others.
    readers: List[fx.Node]
    #: Forward nodes among the values that backward reads.
    read_late: List[fx.Node]

    @property
    def views_read_late(self) -> List[fx.Node]:
        """Views to make again in backward, of a copy of their input."""
        return [node for node in self.read_late if node not in self.inputs]


def written(joint: fx.GraphModule, held: Mapping[fx.Node, Held], views: Set[fx.Node],
            late: Set[fx.Node]) -> Written:
    """Look for such inputs, and mark nodes for PyTorch's partitioners and :func:`with_copies`.

    ``held``: the storages of each node's value. ``views``: the nodes that make none.
    ``late``: the nodes of backward.
    """
    inputs = set(private_joint.written_inputs(joint))
    memory = {storage[0] for node in inputs for storage in held[node] if storage}
    values: Set[fx.Node] = set()
    readers: List[fx.Node] = []
    read_late: Dict[fx.Node, None] = {}
    for node in held:
        read = [i for i in node.all_input_nodes if i in values and i not in first_operands(node)]
        if node in inputs or node in views and not private_ops.writes(node.target) and any(
                storage and storage[0] in memory for storage in held[node]):
            values.add(node)
            node.meta[_MARK] = True
        elif read and node not in late and not private_ops.writes(node.target):
            readers.append(node)
            private_joint.run_once(node)
        if node in late and not private_ops.writes(node.target) \
                and not private_joint.is_symbolic(node):
            read_late.update(dict.fromkeys(i for i in read if i not in late))
    return Written(inputs, values, readers, list(read_late))


def copy_of(value: fx.Node) -> fx.Node:
    """A new last node of the graph: a copy of a tensor."""
    made = value.graph.call_function(torch.ops.memonger.copy_of.default, (value,))
    original = value.meta["val"]
    with original.fake_mode:
        made.meta = {"val": original.clone()}
    return made


def with_copies(forward: fx.GraphModule, num_forward_outputs: int) -> None:
    """Copy values in the memory of inputs that forward writes into, if they are read after that.

    These are values kept for backward, and inputs that become the new values of other inputs.
    """
    graph = forward.graph
    copies: Dict[fx.Node, fx.Node] = {}
    output = graph.output_node()
    writing = [node for node in graph.nodes if private_ops.writes(node.target)]

    def copied(value: fx.Node) -> fx.Node:
        if not value.meta.get(_MARK):
            return value
        if value not in copies:
            with graph.inserting_before((writing or [output])[0]):
                copies[value] = copy_of(value)
        return copies[value]

    for node in writing:
        for value in node.all_input_nodes:
            if value not in private_ops.written_arguments(node):
                node.replace_input_with(value, copied(value))
    _keep_apart(graph, writing)
    values = output.args[0]
    output.args = (tuple(values[:num_forward_outputs])
                   + fx.node.map_arg(tuple(values[num_forward_outputs:]), copied),)
    forward.recompile()


def _keep_apart(graph: fx.Graph, writing: List[fx.Node]) -> None:
    """Give operators of libraries that write into their inputs copies of them.

    Inductor runs such an operator in the memory of an input that gets new values later, whichever
    these are. That is right where they are the operator's results and nothing keeps these.
    """
    for node in list(graph.nodes) if writing else ():
        if node.op != "call_function" or private_ops.is_operator(node.target) or \
                node.target is operator.getitem:
            continue
        readers = {reader for result in node.users for reader in result.users}
        storing = [reader for reader in writing if reader in readers]
        is_kept = graph.output_node() in readers
        for value in node.all_input_nodes:
            is_right = storing and not is_kept and all(
                value in private_ops.written_arguments(reader) for reader in storing)
            if value.meta.get(_MARK) and not is_right:
                with graph.inserting_before(node):
                    node.replace_input_with(value, copy_of(value))
