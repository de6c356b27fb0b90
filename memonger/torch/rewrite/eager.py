"""Runs an ATen graph with eager kernels, and lets go of each value in time.

What the process then allocates is what the graph says, byte for byte, but for what operators take
while they run. The graph is written as one Python function: a step of many small kernels is as fast
as they are called.
"""
from __future__ import annotations

from functools import partial
from typing import Any, Callable, Dict, List, Sequence, Set

import torch.fx as fx

from ..capture.layouts import as_traced
from ..pytorch import private_calls, private_ops
from ..pytorch.private import boxed
from .dropout import KERNELS
from .views import fold_views


def runner(module: fx.GraphModule, inputs: Sequence[Any] = ()) -> Callable[[List[Any]], Any]:
    """The graph as a function of one list of arguments, which it empties."""
    program = Program(module)

    def run(args: List[Any]) -> Any:
        return program.run(args)

    return boxed(run)


class Program:
    """A graph as a function that drops each value after its last reader.

    An argument that nobody reads is dropped at once.
    """

    def __init__(self, module: fx.GraphModule):
        fold_views(module)
        self.module = module
        self._names: Dict[fx.Node, str] = {}
        self._constants: Dict[str, Any] = {}
        self._calls = private_calls.Calls()
        #: Nodes whose kernels lay their results otherwise than traced: the first run finds them.
        self._otherwise: Set[fx.Node] = set()
        self._looks = True
        self._function = self._written_out()

    def run(self, args: List[Any]) -> Any:
        """The graph's outputs."""
        with private_calls.only_operators():
            outputs = self._function(args)
            if self._looks:
                self._looks = False
                self._function = self._written_out()
        return outputs

    def _written_out(self) -> Callable[[List[Any]], Any]:
        self._constants = {}
        lines = self._lines(list(self.module.graph.nodes))
        exec("def function(args):\n    " + "\n    ".join(lines), self._constants)
        return self._constants.pop("function")

    def _lines(self, nodes: List[fx.Node]) -> List[str]:
        """The function's statements."""
        self._names = {node: "v%d" % number for number, node in enumerate(nodes)}
        last = {read: node for node in nodes for read in node.all_input_nodes}
        drops: Dict[fx.Node, List[fx.Node]] = {}
        for node, user in last.items():
            drops.setdefault(user, []).append(node)
        given = [self._names[node] for node in nodes if node.op == "placeholder"]
        lines = ["[%s] = args" % ", ".join(given), "args.clear()"]
        for node in nodes:
            if node.op == "output":
                return [*lines, "return " + self._written(node.args[0])]
            if node.op != "placeholder":
                lines.append("%s = %s" % (self._names[node], self._value(node)))
            dropped = drops.get(node, []) + ([] if node in last else [node])
            if dropped:
                lines.append("del " + ", ".join(map(self._names.__getitem__, dropped)))
        raise AssertionError("a graph ends with its output")

    def _value(self, node: fx.Node) -> str:
        """The expression of a node."""
        if node.op == "get_attr":
            return self._constant(getattr(self.module, str(node.target)))
        target = KERNELS.get(node.target) or self._calls.fastest(node)
        operands = [*map(self._written, node.args),
                    *("%s=%s" % (key, self._written(value)) for key, value in node.kwargs.items())]
        call = "%s(%s)" % (self._constant(target), ", ".join(operands))
        new = private_ops.is_operator(node.target) and not private_ops.makes_view(node.target)
        if node in self._otherwise or self._looks and new:
            return "%s(%s)" % (self._constant(partial(self._as_traced, node)), call)
        return call

    def _as_traced(self, node: fx.Node, value: Any) -> Any:
        laid = as_traced(node, value)
        if laid is not value:
            self._otherwise.add(node)
        return laid

    def _written(self, value: Any) -> str:
        """The expression of an operand."""
        if isinstance(value, fx.Node):
            return self._names[value]
        if isinstance(value, list):
            return "[%s]" % ", ".join(map(self._written, value))
        if isinstance(value, tuple):
            return "(%s)" % "".join(self._written(item) + ", " for item in value)
        if isinstance(value, dict):
            return "{%s}" % ", ".join("%s: %s" % (self._constant(key), self._written(item))
                                      for key, item in value.items())
        if isinstance(value, slice):
            return "slice(%s)" % ", ".join(
                map(self._written, (value.start, value.stop, value.step)))
        return repr(value) if value is None or type(value) in (bool, int) else self._constant(value)

    def _constant(self, value: Any) -> str:
        name = "c%d" % len(self._constants)
        self._constants[name] = value
        return name
