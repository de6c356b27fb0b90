"""Symbols marked by hand, and what MXNet makes of them."""
from __future__ import annotations

import json
from typing import Any, Dict, List, Mapping, Sequence

import mxnet as mx
import numpy as np

from memonger import native
from memonger.mx.capture.binding import bind_delayed, infer_arguments
from memonger.mx.symbol.planned_symbol import RECOMPUTE, mark_storage


def mark(symbol: Any, texts: Mapping[str, str], key: str = RECOMPUTE) -> Any:
    """The symbol with one attribute set on the named ops."""
    document = json.loads(symbol.tojson())
    left = dict(texts)
    for node in document["nodes"]:
        if node["op"] != "null" and node["name"] in texts:
            node.setdefault("attrs", {})[key] = left.pop(node["name"])
    assert not left, "no such ops: %s" % left
    return mx.sym.load_json(json.dumps(document))


def with_arena(symbol: Any) -> Any:
    """The symbol that asks for an arena."""
    return mx.sym.load_json(mark_storage(symbol.tojson()))


def filled(executor: Any, seed: int = 0, scale: float = 1.0) -> Any:
    """The executor with normal numbers as arguments, the same for the same seed."""
    random = np.random.RandomState(seed)
    for name in sorted(executor.arg_dict):
        executor.arg_dict[name][:] = scale * random.standard_normal(executor.arg_dict[name].shape)
    return executor


def captured(symbol: Any, shapes: Mapping[str, Sequence[int]], **options: Any) -> Dict[str, Any]:
    """The record of one bind for training."""
    arguments = infer_arguments(symbol, shapes, options.pop("type_dict", None),
                                options.pop("grad_req", "write"))
    with native.capture() as records:
        bind_delayed(symbol, arguments, **options)
    assert len(records) == 1
    return records[0]


def order(symbol: Any, shapes: Mapping[str, Sequence[int]], **options: Any) -> List[str]:
    """Names of all ops in the order in which they run; "'" stands for "_backward"."""
    nodes = captured(symbol, shapes, **options)["nodes"]
    return [node["name"].replace("_backward", "'") for node in nodes if node["op"] != "null"]


def clones(record: Mapping[str, Any]) -> List[str]:
    return [node["name"] for node in record["nodes"] if "_recompute" in node["name"]]


def perceptron() -> Any:
    """data -> fc1 -> act1 -> fc2 -> act2 -> fc3 -> softmax."""
    x = mx.sym.var("data")
    for layer in (1, 2):
        x = mx.sym.FullyConnected(x, num_hidden=8, name="fc%d" % layer)
        x = mx.sym.Activation(x, act_type="relu", name="act%d" % layer)
    x = mx.sym.FullyConnected(x, num_hidden=3, name="fc3")
    return mx.sym.SoftmaxOutput(x, name="softmax")


PERCEPTRON = {"data": (4, 6)}


def convolutions(blocks: int = 3) -> Any:
    """Blocks of convolution, BatchNorm and ReLU, then a classifier."""
    x = mx.sym.var("data")
    for index in range(blocks):
        x = mx.sym.Convolution(x, num_filter=4, kernel=(3, 3), pad=(1, 1), no_bias=True,
                               name="conv%d" % index)
        x = mx.sym.BatchNorm(x, fix_gamma=False, name="bn%d" % index)
        x = mx.sym.Activation(x, act_type="relu", name="relu%d" % index)
    x = mx.sym.FullyConnected(x, num_hidden=3, name="fc")
    return mx.sym.SoftmaxOutput(x, name="softmax")


CONVOLUTIONS = {"data": (2, 3, 8, 8)}


def pyramid() -> Any:
    """Convolution, BatchNorm, ReLU and pooling over and over: buffers of many sizes."""
    x = mx.sym.var("data")
    for stage, channels in enumerate((8, 12, 24)):
        x = mx.sym.Convolution(x, num_filter=channels, kernel=(3, 3), pad=(1, 1),
                               name="conv%d" % stage)
        x = mx.sym.Activation(mx.sym.BatchNorm(x, fix_gamma=False, name="bn%d" % stage),
                              act_type="relu", name="relu%d" % stage)
        x = mx.sym.Pooling(x, kernel=(2, 2), stride=(2, 2), pool_type="max", name="pool%d" % stage)
    return mx.sym.SoftmaxOutput(mx.sym.FullyConnected(x, num_hidden=3, name="fc"), name="softmax")


PYRAMID = {"data": (8, 3, 32, 32)}
