"""``memonger bench recompute``: what exact recomputation gives without any search.

One rule for every network: BatchNorm, activations and element-wise ops run again, convolutions and
dense layers are kept. The pool is that of the published batch, bound without allocation; gradients
are compared bit for bit at a size that trains in seconds; convolutions are counted in the order
of execution, per step.
"""
from __future__ import annotations

import json
import os
from dataclasses import dataclass
from typing import Any, Callable, Dict, List, Optional, Tuple

from ..graph.schedule import expand
from ..mx import plugin as native
from ..report.formatting import table
from ..util.units import format_bytes
from ..variants.common_subexpressions import to_json
from ..zoo import nets

#: Networks of the foundation's list, with the options that make them small enough to train.
NETWORKS: Dict[str, Dict[str, int]] = {
    "alexnet": {"batch": 2}, "vgg11_bn": {"batch": 2, "image": 64},
    "vgg16_bn": {"batch": 2, "image": 64}, "resnet18": {"batch": 2, "image": 64},
    "resnet50": {"batch": 2, "image": 64}, "resnet18_v2": {"batch": 2, "image": 64},
    "resnet50_v2": {"batch": 2, "image": 64}, "densenet121": {"batch": 1},
    "inception_v3": {"batch": 1}, "mobilenet": {"batch": 2, "image": 64},
    "mobilenet_v2": {"batch": 2, "image": 64}, "squeezenet1_0": {"batch": 1},
    "dmlc_resnet50": {"batch": 2, "image": 64}, "lstm_lm_35": {"batch": 2, "units": 32},
    "attention_small": {"batch": 2},
}
#: Ops that are cheap beside convolutions and dense layers.
CHEAP = frozenset({
    "BatchNorm", "LayerNorm", "InstanceNorm", "Activation", "LeakyReLU", "relu", "sigmoid", "tanh",
    "clip", "softmax", "elemwise_add", "elemwise_sub", "elemwise_mul", "broadcast_add",
    "broadcast_mul", "_plus_scalar", "_mul_scalar", "_div_scalar", "Flatten", "Reshape", "Concat",
    "transpose", "SliceChannel",
})


@dataclass(frozen=True)
class Row:
    """One network."""

    name: str
    batch: int
    unplanned_pool_bytes: int
    planned_pool_bytes: int
    convolutions: int
    convolutions_planned: int
    has_batch_norm: bool
    #: Outputs, gradients and aux states at the small size; None when not compared.
    identical: Optional[bool]

    def to_dict(self) -> Dict[str, Any]:
        return dict(self.__dict__)


def small_network(name: str) -> Any:
    """A network of ``NETWORKS`` at the size that trains in seconds."""
    options = dict(NETWORKS[name])
    return nets.build(name, options.pop("batch"), **options)


def plan_cheap(symbol: Any, shapes: Any) -> Tuple[Any, Any, Any]:
    """The planned symbol, and what MXNet binds without and with the plan."""
    from ..mx.capture import read
    from ..mx.rewrite import from_json
    from ..plan.planned_symbol import apply_recompute
    plain = read(symbol, shapes)
    recompute: Dict[int, Dict[Tuple[int, int], int]] = {
        index: {} for index, op in enumerate(plain.graph.ops)
        if op.kind in CHEAP and op.recomputable}
    planned = from_json(apply_recompute(to_json(symbol), plain.graph, recompute))
    bound = read(planned, shapes)
    assert len(bound.graph.ops) == len(expand(plain.graph, recompute).steps)
    return planned, plain, bound


def run(names: Optional[List[str]] = None, check_gradients: bool = True,
        progress: Optional[Callable[[str], None]] = None) -> List[Row]:
    """Measure the networks.

    Parameters
    ----------
    names : list of str, optional
        Default: all of ``NETWORKS``.
    check_gradients : bool
        Train small versions of the networks, too.
    """
    from ..mx.verify import verify
    rows = []
    for name in names or list(NETWORKS):
        if progress:
            progress(name)
        net = nets.build(name)
        with native.switched(False, False):
            from ..mx.capture import read
            stock_pool_bytes = read(net.symbol, net.shapes).pool_bytes
        with native.switched(True, True):
            _, plain, bound = plan_cheap(net.symbol, net.shapes)
            identical = None
            if check_gradients:
                small = small_network(name)
                planned, _, _ = plan_cheap(small.symbol, small.shapes)
                identical = verify(planned, small.symbol, small.shapes).identical

        def count(graph: Any) -> int:
            return sum(op.kind in ("Convolution", "FullyConnected") for op in graph.ops)

        rows.append(Row(name, next(iter(net.shapes.values()))[0], stock_pool_bytes,
                        bound.pool_bytes, count(plain.graph), count(bound.graph),
                        any(op.kind == "BatchNorm" for op in plain.graph.ops), identical))
    return rows


def render(rows: List[Row]) -> str:
    """The table as text."""
    lines = [["network", "batch", "pool", "planned", "saved", "conv+dense", "planned", "gradients"]]
    for row in rows:
        saved = 1 - row.planned_pool_bytes / row.unplanned_pool_bytes
        lines.append([
            row.name, str(row.batch), format_bytes(row.unplanned_pool_bytes),
            format_bytes(row.planned_pool_bytes), "%.1f %%" % (100 * saved),
            str(row.convolutions), str(row.convolutions_planned),
            "-" if row.identical is None else "identical" if row.identical else "DIFFER"])
    return table(lines, "<>>>>>><")


def main(names: List[str], as_json: bool = False) -> int:
    """Print the table; 1 when gradients differ or a convolution runs twice."""
    # Bit for bit needs one implementation of each operator; read when MXNet is loaded.
    os.environ.setdefault("MXNET_MKLDNN_ENABLED", "0")
    os.environ.setdefault("MXNET_STORAGE_FALLBACK_LOG_VERBOSE", "0")
    rows = run(names or None)
    print(json.dumps([row.to_dict() for row in rows], indent=2) if as_json else render(rows))
    return 0 if all(row.identical and row.convolutions == row.convolutions_planned and
                    (row.planned_pool_bytes < row.unplanned_pool_bytes or not row.has_batch_norm)
                    for row in rows) else 1
