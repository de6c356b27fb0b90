"""dmlc's rule on stock MXNet, for ``search_plan`` where the plugin is missing or switched off.

Forward ops and shapes come from the symbol, thresholds are tried as in Chen et al. 2016, and each
trial is bound without allocation and judged by what ``debug_str`` prints, whole megabytes at
4 bytes an element.
"""
from __future__ import annotations

import json
import logging
import re
from dataclasses import replace
from typing import Any, Dict, List, Sequence, Tuple

import numpy as np

from ...graph.types import Graph, Op, Tensor
from ...solve.baselines.sublinear import thresholds
from ..capture.binding import Arguments, bind_delayed, infer_arguments
from ..capture.record import refuse_unknown_shapes
from ..plugin import loading as native
from ..plugin.environment import mxnet
from ..rewrite.apply import from_json, without_plan
from ..symbol.common_subexpressions import to_json
from ..symbol.planned_symbol import apply_mirroring
from .binding import Binding

logger = logging.getLogger("memonger")

#: Never run again: random, stateful, or wrong when MXNet asks for no output.
_KEPT = re.compile(
    r"^(Dropout|RNN|Custom|LayerNorm|GroupNorm|Crop|hard_sigmoid|Deconvolution|BlockGrad|"
    r"_?(random|sample|shuffle|npi).*|_(foreach|while_loop|cond)|.*(uniform|normal|multinomial).*|"
    r"SoftmaxOutput|.*RegressionOutput|MakeLoss|_zeros|_ones|_arange)$")


def printed_megabytes(symbol: Any, arguments: Arguments, ctx: Any = None) -> int:
    """The pool as ``Executor.debug_str`` prints it."""
    text = bind_delayed(symbol, arguments, ctx).debug_str()
    return int(re.findall(r"^Total (\d+) MB allocated", text, re.MULTILINE)[-1])


def forward_graph(symbol: Any, arguments: Arguments) -> Graph:
    """Forward ops with the sizes of their visible outputs, and one op for all of backward."""
    nodes = json.loads(to_json(symbol))["nodes"]
    internals = symbol.get_internals()
    shapes = dict(zip(arguments.names + arguments.aux_names,
                      arguments.shapes + arguments.aux_shapes))
    _, out_shapes, _ = internals.infer_shape_partial(
        **{n: s for n, s in shapes.items() if n in arguments.names})
    least = 0 if mxnet().util.is_np_shape() else 1
    refuse_unknown_shapes([(item.name, "forward") for item in internals], [
        None if shape is None or min(shape, default=0) < least else shape for shape in out_shapes])
    sizes: Dict[str, List[Tuple[int, ...]]] = {}
    for item, shape in zip(internals, out_shapes):
        sizes.setdefault(item.name, []).append(tuple(shape or ()))
    tensors: List[Tensor] = []
    ops: List[Op] = []
    first: Dict[Tuple[int, int], int] = {}
    for index, node in enumerate(nodes):
        is_op = node["op"] != "null"
        made = []
        for position, shape in enumerate(sizes.get(node["name"], [()])):
            first[index, position] = len(tensors)
            made.append(len(tensors))
            tensors.append(Tensor("%s[%d]" % (node["name"], position),
                                  4 * int(np.prod(shape, dtype=np.int64)),
                                  len(ops) if is_op else -1,
                                  "activation" if is_op else "parameter",
                                  "device" if is_op else "outside", shape))
        if is_op:
            attributes = node.get("attrs", {})
            ops.append(Op.of(
                node["name"], node["op"],
                tuple(first[i[0], i[1]] for i in node["inputs"] if (i[0], i[1]) in first),
                tuple(made), not_recomputable_because="it is not safe to run again on stock MXNet"
                if _KEPT.match(node["op"]) else "", time_s=1.0,
                mirror_stage=attributes.get("__mirror_stage__", ""),
                force_mirroring=attributes.get("__force_mirroring__", "")))
    ops = [_fragile(ops, index) for index in range(len(ops))]
    ops.append(Op.of("backward", "backward", (), (), True, time_s=2.0 * len(ops),
                     not_recomputable_because="it is a gradient"))
    return Graph(tuple(tensors), tuple(ops), (), pools="executor")


def _fragile(ops: Sequence[Op], index: int) -> Op:
    """A convolution may run again only where a BatchNorm behind it reads the second result."""
    op = ops[index]
    if op.kind != "Convolution" or any(reader.kind == "BatchNorm" and
                                       set(op.outputs) & set(reader.inputs) for reader in ops):
        return op
    return replace(op, not_recomputable_because="stock MXNet cannot run it for nothing")


def mirrored(symbol: Any, binding: Binding, ntrial: int = 6) -> Any:
    """The symbol with the marks of the best of some thresholds; no worse than without marks.

    Bytes are what MXNet prints. A warning says what the plugin is missing for.
    """
    logger.warning("planning by dmlc's rule for MXNet's own mirroring (plugin %s), sizes in whole "
                   "megabytes", native.status())
    symbol = without_plan(symbol)
    arguments = infer_arguments(symbol, binding.shapes, binding.type_dict, binding.grad_req)
    graph = forward_graph(symbol, arguments)
    best_megabytes, best = printed_megabytes(symbol, arguments, binding.ctx), symbol
    for recomputed in thresholds(graph, ntrial):
        trial = from_json(apply_mirroring(to_json(symbol), graph, set(recomputed)), symbol)
        megabytes = printed_megabytes(trial, arguments, binding.ctx)
        if megabytes < best_megabytes:
            best_megabytes, best = megabytes, trial
    return best
