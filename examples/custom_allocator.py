"""Write your own allocator: set ``force_mirroring``, look at the bytes, check the gradients.

    python examples/custom_allocator.py

An allocator is any rule that says what to compute again instead of keeping. This one keeps the
results of convolutions and dense layers, which are expensive, and computes everything else again.
``memonger.estimate`` tells what that takes before anything is allocated, ``memonger.verify`` that
training stays the same: bit for bit with MXNET_MKLDNN_ENABLED=0, else within rounding.
"""
from __future__ import annotations

import json
import os
from typing import Any

os.environ.setdefault("MXNET_STORAGE_FALLBACK_LOG_VERBOSE", "0")

import mxnet as mx

import memonger
from memonger.zoo import nets

EXPENSIVE = ("Convolution", "FullyConnected")
#: Random ops may not run again, and the loss has nothing to save.
LEAVE = ("Dropout", "SoftmaxOutput")


def allocate(symbol: Any) -> Any:
    """A copy of ``symbol`` that computes everything but convolutions and dense layers again."""
    planned = mx.sym.load_json(symbol.tojson())
    kinds = {node["name"]: node["op"] for node in json.loads(symbol.tojson())["nodes"]}
    for node in planned.get_internals():
        if kinds[node.name] not in EXPENSIVE + LEAVE + ("null",):
            node._set_attr(force_mirroring="True")
    return planned


def main() -> None:
    net = nets.build("resnet18", 8, image=64)
    mine = allocate(net.symbol)
    for title, symbol in (("unplanned", net.symbol), ("my allocator", mine)):
        estimate = memonger.estimate(symbol, **net.shapes)
        print("%-14s pool %7.2f MiB, total %7.2f MiB" % (
            title, estimate.pool_bytes / 2**20, estimate.total_bytes / 2**20))
    result = memonger.verify(mine, net.symbol, **net.shapes).check()
    print("outputs, gradients and aux states are the same %s"
          % ("bit for bit" if result.identical else "within rounding"))


if __name__ == "__main__":
    main()
