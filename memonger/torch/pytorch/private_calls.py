"""Every call into what is not public of how PyTorch calls operators from Python."""
from __future__ import annotations

import functools
import types
from typing import Any, Callable, Dict, Hashable, Iterator, List, Tuple

import torch
import torch.fx as fx

from .private_ops import DispatchMode, is_operator, pytree

_ATEN = torch.ops.aten


def _batch_norm(data: torch.Tensor, weight: Any, bias: Any, mean: torch.Tensor,
                variance: torch.Tensor, training: bool, momentum: float,
                epsilon: float) -> Tuple[torch.Tensor, ...]:
    mean, variance = mean.clone(), variance.clone()
    return (*torch._native_batch_norm_legit(
        data, weight, bias, mean, variance, training, momentum, epsilon), mean, variance)


#: What does as an operator does, and is called sooner.
_KERNELS: Dict[Any, Callable[..., Any]] = {
    _ATEN.view.default: torch.reshape, _ATEN._unsafe_view.default: torch.reshape,
    _ATEN._native_batch_norm_legit_functional.default: _batch_norm}


def only_operators() -> Any:
    """Functions of ``torch`` in the block are operators, whatever modes of functions are active."""
    return torch._C.DisableTorchFunction()


class Calls:
    """Finds what calls the operators of graphs with the least work around them."""

    def __init__(self) -> None:
        self._known: Dict[Hashable, Callable[..., Any]] = {}

    def fastest(self, node: fx.Node) -> Callable[..., Any]:
        """What calls a node's operator.

        That is the function of ``torch`` with its name, where PyTorch makes of the node's operands
        the same call of the same operator.
        """
        operator: Any = node.target
        if operator in _KERNELS:
            return _KERNELS[operator]
        if isinstance(operator, types.BuiltinFunctionType):
            return operator
        if not is_operator(operator) or operator.namespace != "aten":
            return functools.partial(_with_functions, operator)
        operands = fx.node.map_arg((node.args, node.kwargs), lambda n: n.meta.get("val"))
        leaves, form = pytree.tree_flatten(operands)
        key = operator, form, tuple(
            (type(leaf), isinstance(leaf, torch.Tensor) and leaf.dim() == 0) for leaf in leaves)
        if key not in self._known:
            self._known[key] = next((function for function in _functions(operator)
                                     if _calls(function, operator, *operands)), operator._op)
        return self._known[key]


def _with_functions(operator: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """A call of what may be written in functions of ``torch``."""
    with torch._C._EnableTorchFunction():
        return operator(*args, **kwargs)


def _functions(operator: Any) -> Iterator[Callable[..., Any]]:
    name = operator._opname
    kinds = types.BuiltinFunctionType, types.MethodDescriptorType
    for found in (getattr(torch._C._VariableFunctions, name, None),
                  getattr(torch._C._nn, name, None), getattr(torch.Tensor, name, None)):
        if isinstance(found, kinds):
            yield found


class _Called(Exception):
    """Ends a call of an operator."""


class _Stop(DispatchMode):
    """Stops at the first operator that is called in the block."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.namespace == "prim":  # where a tensor lies
            return func(*args, **(kwargs or {}))
        raise _Called(func, args, kwargs or {})


def _calls(function: Callable[..., Any], operator: Any, args: Any, kwargs: Any) -> bool:
    """Whether a function calls this operator with these operands."""
    with only_operators(), torch._C._AutoDispatchBelowAutograd(), _Stop():
        try:
            function(*args, **kwargs)
        except _Called as call:
            called, *operands = call.args
            return called is operator and \
                _operands(operator, *operands) == _operands(operator, args, kwargs)
        except (TypeError, RuntimeError):
            pass
    return False


def _operands(operator: Any, args: Any, kwargs: Any) -> List[Any]:
    """What an operator is given with its default values, tensors by their identity."""
    schema = operator._schema.arguments
    given = {**dict(zip((a.name for a in schema), args)), **kwargs}
    values = [given.get(a.name, a.default_value) for a in schema]
    return [id(leaf) if isinstance(leaf, torch.Tensor) else (type(leaf), leaf)
            for leaf in pytree.tree_leaves(values)]
