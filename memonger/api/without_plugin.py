"""Planning without the native plugin: stock mirroring, and MXNet's own count of megabytes.

This is what is left when the plugin was not built or this is not the MXNet it fits: forward ops and
shapes come from the symbol, thresholds are tried as in Chen et al. 2016, and each trial is bound
without allocation and judged by what ``debug_str`` prints, whole megabytes at 4 bytes an element.
"""
from __future__ import annotations

import json
import logging
import re
from dataclasses import replace
from typing import Any, Dict, List, Sequence, Tuple

import numpy as np

from ..graph.schedule import Schedule, Step, expand
from ..graph.types import Graph, Op, Tensor
from ..mx import plugin as native
from ..mx.binding import Arguments, bind_delayed, infer_arguments
from ..mx.capture import refuse_unknown_shapes
from ..mx.environment import mxnet
from ..mx.load import is_numpy
from ..mx.rewrite import from_json, without_plan
from ..plan.plan import UNIT_TIMES, Plan, Status
from ..plan.planned_symbol import apply_mirroring
from ..solve.baselines.sublinear import thresholds
from ..variants.common_subexpressions import to_json
from .requests import Binding

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
                                  "activation" if is_op else "parameter", is_op, shape))
        if is_op:
            attributes = node.get("attrs", {})
            ops.append(Op(
                node["name"], node["op"],
                tuple(first[i[0], i[1]] for i in node["inputs"] if (i[0], i[1]) in first),
                tuple(made), not_recomputable_because="it is not safe to run again on stock MXNet"
                if _KEPT.match(node["op"]) else "", time_s=1.0,
                mirror_stage=attributes.get("__mirror_stage__", ""),
                force_mirroring=attributes.get("__force_mirroring__", "")))
    ops = [_fragile(ops, index) for index in range(len(ops))]
    ops.append(Op("backward", "backward", (), (), True, not_recomputable_because="it is a gradient",
                  time_s=2.0 * len(ops)))
    return Graph(tuple(tensors), tuple(ops), ())


def _fragile(ops: Sequence[Op], index: int) -> Op:
    """A convolution may run again only where a BatchNorm behind it reads the second result."""
    op = ops[index]
    if op.kind != "Convolution" or any(reader.kind == "BatchNorm" and
                                       set(op.outputs) & set(reader.inputs) for reader in ops):
        return op
    return replace(op, not_recomputable_because="stock MXNet cannot run it for nothing")


def plan_without_plugin(symbol: Any, binding: Binding, ntrial: int = 6) -> Plan:
    """The best of some thresholds; never worse than no plan by MXNet's own count.

    A warning says what is missing.
    """
    reason = native.status()
    logger.warning("planning without the native plugin (%s): stock mirroring only, sizes in whole "
                   "megabytes", reason)
    symbol = without_plan(symbol)
    arguments = infer_arguments(symbol, binding.shapes, binding.type_dict, binding.grad_req)
    graph = forward_graph(symbol, arguments)
    before = printed_megabytes(symbol, arguments, binding.ctx)
    forced = tuple(index for index, op in enumerate(graph.ops)
                   if op.force_mirroring.lower() in ("true", "1"))
    best = (before, forced)
    for recomputed in thresholds(graph, ntrial):
        trial = from_json(apply_mirroring(to_json(symbol), graph, set(recomputed)))
        best = min(best, (printed_megabytes(trial, arguments, binding.ctx), recomputed),
                   key=lambda found: found[0])
    megabytes, recomputed = best
    base = expand(graph, {}).steps
    again = tuple(Step(op, base[op].sources) for op in recomputed)
    return Plan(
        graph=graph, schedule=Schedule(base[:-1] + again + base[-1:]), method="sublinear",
        status=Status.FEASIBLE if megabytes < before else Status.NOT_NEEDED,
        pool_bytes=megabytes << 20, baseline_pool_bytes=before << 20, costs=UNIT_TIMES,
        backend="stock", storage="stock", fixed_bytes=fixed_bytes(arguments),
        original_json=to_json(symbol), numpy_arrays=is_numpy(symbol),
        options={"method": "sublinear", **binding.record(arguments)},
        notes=("planned without the native plugin, in MXNet's whole megabytes (%s)" % reason,))


def fixed_bytes(arguments: Arguments) -> Dict[str, int]:
    """Bytes of the caller's arrays by category."""
    def size(shape: Sequence[int], dtype: str) -> int:
        return int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize

    result = {"parameters": 0, "gradients": 0, "aux": 0, "inputs": 0, "head_gradients": 0}
    for name, shape, dtype, request in zip(arguments.names, arguments.shapes, arguments.dtypes,
                                           arguments.grad_reqs):
        key = "inputs" if name in arguments.input_names else "parameters"
        result[key] += size(shape, dtype)
        result["gradients"] += size(shape, dtype) if request != "null" else 0
    result["aux"] = sum(map(size, arguments.aux_shapes, arguments.aux_dtypes))
    return result
