"""Prints what is estimated of a network and what stock MXNet takes for it."""
from __future__ import annotations

import json
import sys

import mxnet as mx
import numpy as np

import memonger
from memonger import native
from memonger.zoo import nets

SPELLED = {"relu": ("relu", {}), "sigmoid": ("sigmoid", {}),
           "clip": ("clip", {"a_min": "0", "a_max": "6"})}


def private_bytes():
    with open("/proc/self/smaps_rollup") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("Private_Dirty")) << 10


def plain(layers=4, spelling="Activation"):
    x = mx.sym.var("data")
    for i in range(layers):
        x = mx.sym.Convolution(x, kernel=(3, 3), pad=(1, 1), num_filter=32, name="conv%d" % i)
        x = mx.sym.BatchNorm(x, name="bn%d" % i)
        x = x * mx.sym.sigmoid(x) if spelling == "swish" else \
            mx.sym.Activation(x, act_type="relu")
    x = mx.sym.Pooling(x, global_pool=True, pool_type="avg", kernel=(1, 1))
    return mx.sym.SoftmaxOutput(mx.sym.FullyConnected(x, num_hidden=4), name="softmax")


def spelled(symbol, spelling):
    data = json.loads(symbol.tojson())
    for node in data["nodes"]:
        if node["op"] == "Activation" and spelling in SPELLED:
            node["op"], node["attrs"] = SPELLED[spelling]
    return mx.sym.load_json(json.dumps(data))


def taken_bytes(symbol, shapes):
    """Of two training steps by stock MXNet, beside what the process had before.

    What was freed before may be taken again, so a process is good for one network.
    """
    before = private_bytes()
    with native.switched(False, False):
        executor = symbol.simple_bind(mx.cpu(), **shapes)
        for array in executor.arg_dict.values():
            array[:] = np.random.rand(*array.shape) * 0.1
        for _ in range(2):
            executor.forward(is_train=True)
            executor.backward()
            mx.nd.waitall()
    taken = private_bytes() - before
    return taken


def main(name, options, spelling):
    net = nets.build(name, **json.loads(options)) if name != "plain" else None
    symbol = net.symbol if net else plain(spelling=spelling)
    shapes = net.shapes if net else {"data": (16, 3, 48, 48)}
    taken_bytes(spelled(plain(1), "relu"), {"data": (2, 3, 8, 8)})  # MKLDNN's own, once
    network = spelled(symbol, spelling)
    total = memonger.estimate(network, **shapes).total_bytes
    print("bytes:", total, taken_bytes(network, shapes))


if __name__ == "__main__":
    native.load()
    main(*sys.argv[1:])
