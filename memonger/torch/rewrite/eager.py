"""Runs an ATen graph node by node with eager kernels, and lets go of each value in time.

What the process then allocates is what the graph says, byte for byte, but for what operators take
while they run.
"""
from __future__ import annotations

from typing import Any, Callable, Dict, List, Sequence

import torch.fx as fx

from ..pytorch.private import boxed


def runner(module: fx.GraphModule, inputs: Sequence[Any] = ()) -> Callable[[List[Any]], Any]:
    """The graph as a function of one list of arguments, which it empties."""
    program = Program(module)

    def run(args: List[Any]) -> Any:
        return program.run(args)

    return boxed(run)


class Program:
    """A graph's nodes, and the values to drop after each.

    A value is dropped after its last reader; an argument that nobody reads, at once.
    """

    def __init__(self, module: fx.GraphModule):
        last: Dict[fx.Node, fx.Node] = {}
        nodes = list(module.graph.nodes)
        for node in nodes:
            for read in node.all_input_nodes:
                last[read] = node
        drops: Dict[fx.Node, List[fx.Node]] = {}
        for node, user in last.items():
            drops.setdefault(user, []).append(node)
        self.module = module
        self.program = [(node, drops.get(node, ()), node in last) for node in nodes]

    def run(self, args: List[Any]) -> Any:
        """The graph's outputs."""
        given = list(args)
        args.clear()
        given.reverse()
        values: Dict[fx.Node, Any] = {}
        for node, drops, is_read in self.program:
            if node.op == "placeholder":
                value = given.pop()
            elif node.op == "output":
                return fx.node.map_arg(node.args[0], values.__getitem__)
            elif node.op == "get_attr":
                value = getattr(self.module, str(node.target))
            else:
                operands, options = fx.node.map_arg((node.args, node.kwargs),
                                                    values.__getitem__)
                value = node.target(*operands, **options)
                del operands, options
            if is_read:
                values[node] = value
            del value
            for dropped in drops:
                del values[dropped]
        raise AssertionError("a graph ends with its output")
