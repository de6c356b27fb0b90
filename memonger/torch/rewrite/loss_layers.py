"""Loss layers in a network's graph, and the same network with them in chunks.

Looked for in what Dynamo traced, before autograd: a projection without a bias whose scores only a
cross-entropy reads. Views, conversions of floating-point types and a logarithm of softmax may be
between. :func:`..pytorch.loss_layer.linear_cross_entropy` takes their place; results differ in the
last bits, so plans use it under ``variants="all"`` only.
"""
from __future__ import annotations

import inspect
import operator
from typing import Any, Dict, List, NamedTuple, Optional, Sequence

import torch
import torch.fx as fx
import torch.nn.functional as F

from ..pytorch import private
from ..pytorch.loss_layer import linear_cross_entropy

#: Losses, and whether they read logarithms of probabilities.
_LOSSES = {F.cross_entropy: False, F.nll_loss: True}
_LOGARITHMS = (F.log_softmax, torch.log_softmax, "log_softmax")
_PRODUCTS = (torch.matmul, torch.mm, operator.matmul, "matmul", "mm")
_CONVERSIONS = ("float", "to", "bfloat16", "half", "contiguous")
_RESHAPES = ("view", "reshape", "flatten", torch.flatten, torch.reshape)
_FLOATS = (torch.float32, torch.bfloat16, torch.float16)


class LossLayer(NamedTuple):
    """A projection and its loss, from the loss back to the projection."""

    chain: List[fx.Node]
    #: ``target``, ``ignore_index``, ``label_smoothing`` and ``reduction`` of the loss.
    options: Dict[str, Any]


def with_chunks(module: fx.GraphModule) -> Optional[fx.GraphModule]:
    """A copy of a Dynamo graph with all its loss layers in chunks; None where it has none."""
    if not any(_loss_layer(node) for node in module.graph.nodes):
        return None
    module = private.copied_graph(module)
    for node in list(module.graph.nodes):
        layer = _loss_layer(node)
        if layer is not None:
            _replace(module.graph, layer)
    module.recompile()
    return module


def _value(node: Any) -> Any:
    return node.meta.get("example_value") if isinstance(node, fx.Node) else None


def _loss_layer(loss: fx.Node) -> Optional[LossLayer]:
    """The layer that ends in ``loss``; None where that is no loss, or another layer."""
    if loss.target not in _LOSSES:
        return None
    options = inspect.signature(loss.target).bind(*loss.args, **loss.kwargs)
    options.apply_defaults()
    asked = options.arguments
    node, target = asked["input"], _value(asked["target"])
    if asked["weight"] is not None or asked["size_average"] is not None or \
            asked["reduce"] is not None or getattr(target, "dtype", None) is not torch.int64:
        return None
    chain = _projection(loss, node, _LOSSES[loss.target])
    names = ("target", "ignore_index", "label_smoothing", "reduction")
    return LossLayer(chain, {n: asked.get(n, 0.0) for n in names}) if chain else None


def _projection(loss: fx.Node, node: fx.Node, logarithms: bool) -> Optional[List[fx.Node]]:
    """The nodes from ``loss``, whose input is ``node``, to the projection.

    None where another node reads the scores, or the classes do not stay one dimension of them.
    """
    chain, dimension = [loss], 1
    while isinstance(_value(node), torch.Tensor) and _value(node).dim() > 1 and \
            _value(node).dtype in _FLOATS and set(node.users) == {chain[-1]}:
        chain.append(node)
        value, last = _value(node), _value(node).dim() - 1
        source, second, bias = (*node.args, None, None, None)[:3]
        before, weight = _value(source), _value(second)
        if not isinstance(before, torch.Tensor) or before.device != value.device:
            return None
        if node.target is F.linear or node.target in _PRODUCTS:
            fits = dimension == last and not logarithms and isinstance(weight, torch.Tensor) and \
                weight.dim() == 2 and bias is None and not node.kwargs
            return chain if fits else None
        order = _order(node, before.dim())
        if node.target in _LOGARITHMS:
            at = node.kwargs.get("dim", second)
            if not logarithms or at is None or at % value.dim() != dimension:
                return None
            logarithms = False
        elif order is not None:
            others = [k for k in order if k != order[dimension]]
            if others != sorted(others):
                return None
            dimension = order[dimension]
        elif node.target in _RESHAPES:
            if dimension != last or before.shape[-1] != value.shape[-1]:
                return None
            dimension = before.dim() - 1
        elif node.target not in _CONVERSIONS or before.shape != value.shape:
            return None
        node = source
    return None


def _order(node: fx.Node, dimensions: int) -> Optional[Sequence[int]]:
    """Which dimension of its input each dimension of a transposed value is."""
    order = list(range(dimensions))
    numbers = [n for n in node.args[1:] if isinstance(n, int)]
    if node.target in ("permute", torch.permute):
        order = [n % dimensions for n in numbers or node.args[1]]
    elif node.target in ("transpose", torch.transpose) and len(numbers) == 2:
        a, b = numbers
        order[a], order[b] = order[b], order[a]
    elif node.target is torch.ops.aten.mT or node.target is getattr and node.args[1] == "mT":
        order[-1], order[-2] = order[-2], order[-1]
    else:
        return None
    return order


def _replace(graph: fx.Graph, layer: LossLayer) -> None:
    loss, projection = layer.chain[0], layer.chain[-1]
    hidden, weight = projection.args[:2]
    with graph.inserting_before(loss):
        if projection.target is not F.linear:
            weight = graph.call_method("t", (weight,))
        made = graph.call_function(_in_chunks, (hidden, weight), {
            **layer.options, "scores": _value(projection).dtype, "result": _value(loss).dtype})
    made.meta = dict(loss.meta)
    loss.replace_all_uses_with(made)
    for node in layer.chain:
        graph.erase_node(node)


def _in_chunks(hidden: torch.Tensor, weight: torch.Tensor, target: torch.Tensor,
               scores: torch.dtype, result: torch.dtype, **options: Any) -> torch.Tensor:
    """A loss layer whose projection gives the type ``scores``, and whose loss ``result``."""
    loss = linear_cross_entropy(hidden.reshape(-1, hidden.shape[-1]).to(scores), weight.to(scores),
                                target.reshape(-1), **options)
    return (loss.reshape(target.shape) if options["reduction"] == "none" else loss).to(result)
