"""Finds values so near a kink (ReLU, clip, max-pooling) that rounding decides their side.

There outputs differ in the last bits only, while gradients differ as a whole.
"""
from __future__ import annotations

from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

import numpy as np

from ..plugin.environment import mxnet
from ..rewrite.apply import from_json
from ..symbol.common_subexpressions import symbol_text
from .in_float64 import symbol_data
from .training_run import TrainingRun

Values = Mapping[str, np.ndarray]

#: A value counts as at its kink within this multiple of the rounding error of its tensor (root mean
#: square).
WITHIN = 3.0
#: Tensors with a larger rounding error, relative to their largest value, are not examined.
LOST = 1e-2
_RELU = ("relu", "LeakyReLU", "abs")
_CHOICES = ("_maximum", "_minimum", "broadcast_maximum", "broadcast_minimum")


class Kink(NamedTuple):
    """An op with values at its kink."""

    op: str
    values: int


def kinks_within_rounding(narrow: Any, wide: Any, shapes: Mapping[str, Sequence[int]], ctx: Any,
                          types: Sequence[Optional[Mapping[str, Any]]], starts: Sequence[Values],
                          seed: int) -> Tuple[Kink, ...]:
    """The ops with values so near their kink that rounding decides on which side they are.

    ``narrow``, ``wide``: the network, and the same in float64.
    ``types``, ``starts``: types and values for the two.
    """
    nodes = [node for node in symbol_data(narrow)["nodes"] if _has_kink(node)]
    entries = sorted({tuple(entry[:2]) for node in nodes for entry in node["inputs"]})
    if not entries:
        return ()
    runs: List[Dict[Tuple[int, ...], np.ndarray]] = []
    for symbol, dtypes, start in zip((narrow, wide), types, starts):
        inner = from_json(symbol_text({**symbol_data(symbol),
                                       "heads": [[*entry, 0] for entry in entries]}))
        names = {*inner.list_arguments(), *inner.list_auxiliary_states()}
        # With gradients, for without any MXNet fuses BatchNorm as inference computes it.
        run = TrainingRun(
            inner, {n: s for n, s in shapes.items() if n in names}, ctx,
            {n: t for n, t in (dtypes or {}).items() if n in names}, "write", seed, start)
        mxnet().random.seed(seed)
        outputs = run.executor.forward(is_train=True)
        runs.append({e: o.asnumpy().astype(np.float64) for e, o in zip(entries, outputs)})
    kinks: List[Kink] = []
    for node in nodes:
        read = [tuple(entry[:2]) for entry in node["inputs"]]
        rounded_by = max(float(np.sqrt(np.square(runs[0][e] - runs[1][e]).mean())) for e in read)
        if rounded_by > LOST * max(float(np.abs(runs[1][e]).max()) for e in read):
            continue
        near = _gaps(node, [runs[1][e] for e in read]) <= WITHIN * rounded_by
        if near.any():
            kinks.append(Kink(node["name"], int(near.sum())))
    return tuple(kinks)


def _has_kink(node: Mapping[str, Any]) -> bool:
    attributes = node.get("attrs", {})
    if node["op"] == "Pooling":
        return (attributes.get("pool_type", "max") == "max"
                and len(attributes.get("kernel", "").split(",")) == 2
                and attributes.get("layout", "NCHW") in ("NCHW", "None"))
    return (node["op"] in (*_RELU, *_CHOICES, "clip")
            or node["op"] == "Activation" and attributes["act_type"] == "relu")


def _gaps(node: Mapping[str, Any], values: Sequence[np.ndarray]) -> np.ndarray:
    """Distance of each input value from the kink, in the input's shape."""
    attributes = node.get("attrs", {})
    if node["op"] == "clip":
        low, high = (np.abs(values[0] - float(attributes[n])) for n in ("a_min", "a_max"))
        return np.asarray(np.minimum(low, high))
    if node["op"] in _CHOICES:
        return np.asarray(np.abs(values[0] - values[1]))
    if node["op"] == "Pooling":
        return _gaps_of_windows(attributes, values[0])
    return np.asarray(np.abs(values[0]))


def _gaps_of_windows(attributes: Mapping[str, str], data: np.ndarray) -> np.ndarray:
    """Between the two largest values of each window of a max-pool."""
    maps = data.reshape(-1, 1, *data.shape[2:])
    if attributes.get("global_pool") in ("True", "1"):
        windows = maps.reshape(len(maps), -1, 1)
    else:
        sizes = {name: tuple(int(n) for n in attributes[name].strip("()[] ").split(","))
                 for name in ("kernel", "stride", "pad") if name in attributes}
        above_padding = mxnet().nd.array(maps - maps.min() + 1.0, dtype="float64")
        windows = mxnet().nd.im2col(above_padding, **sizes).asnumpy()
    two = np.sort(windows, axis=1)[:, -2:]
    return np.asarray(two[:, -1] - two[:, 0]) if windows.shape[1] > 1 else np.full(1, np.inf)
