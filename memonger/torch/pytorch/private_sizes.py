"""Every call into what is not public of PyTorch's symbolic sizes and fake tensors."""
from __future__ import annotations

import contextlib
from typing import Any, Iterator, List, Mapping, Optional, Sequence

import torch
import torch.fx as fx
from torch._dynamo.symbolic_convert import TensorifyState

from .private_ops import known_sizes


def evaluated(size: torch.SymInt, values: Optional[Mapping[Any, int]]) -> int:
    """A symbolic size with these values of its symbols; without any that of the example inputs."""
    return int(size.node.hint if values is None else size.node.expr.xreplace(values))


def symbol_of(size: Any) -> Any:
    """The symbol that a size consists of; None for numbers and for what is made of symbols."""
    expression = size.node.expr if isinstance(size, torch.SymInt) else None
    return expression if getattr(expression, "is_Symbol", False) else None


@contextlib.contextmanager
def compiling_again(fakes: Sequence[Any]) -> Iterator[List[Any]]:
    """In the block a graph with symbols is compiled once more, after Dynamo is done with it.

    The list is filled when the block is over: what was taken for granted about the symbols, which
    nobody else checks.
    """
    mode = next(v.fake_mode for v in fakes if is_fake(v))
    shapes, conditions = mode.shape_env, []  # type: Any, List[Any]
    before, frozen = len(shapes.guards), shapes.frozen
    # Else numbers for which Dynamo has put constants would ask it to begin again.
    constants = TensorifyState.force_specializations
    known = set(constants)
    constants.update(map(str, known_sizes(shapes)))
    shapes.frozen = False
    try:
        with torch._guards.tracing(torch._guards.TracingContext(mode)):
            yield conditions
    finally:
        shapes.frozen = frozen
        constants.intersection_update(known)
    conditions += [guard.expr for guard in shapes.guards[before:]]


def is_fake(value: Any) -> bool:
    """Whether it is a tensor without values."""
    return isinstance(value, torch._subclasses.FakeTensor)


def example_values(module: fx.GraphModule) -> List[Any]:
    """What stands for each input of a Dynamo graph while that is compiled: a fake tensor, ..."""
    return [node.meta.get("example_value")
            for node in module.graph.find_nodes(op="placeholder")]
