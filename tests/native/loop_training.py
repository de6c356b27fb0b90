"""Trains a network with a loop between convolutions again and again.

    python loop_training.py BINDS

Prints how many steps had gradients other than the first one's.
"""
from __future__ import annotations

import sys
from typing import Any, Tuple

import mxnet as mx
import numpy as np

from memonger import native

SHAPES = {"data": (4, 3, 16, 16)}


def convolutions(value: Any, count: int) -> Any:
    for _ in range(count):
        value = mx.sym.relu(mx.sym.Convolution(value, kernel=(3, 3), pad=(1, 1), num_filter=16))
    return value


def add(row: Any, state: Any) -> Tuple[Any, Any]:
    state = mx.sym.tanh(row + state)
    return state, state


def network() -> Any:
    value = convolutions(mx.sym.var("data"), 3)
    flat = mx.sym.reshape(value, shape=(4, -1))
    states, _ = mx.sym.contrib.foreach(add, flat, mx.sym.sum(flat, axis=0) * 0.1)
    value = convolutions(mx.sym.reshape_like(states, value), 2)
    value = mx.sym.FullyConnected(mx.sym.Flatten(value), num_hidden=10)
    return mx.sym.SoftmaxOutput(value, name="softmax")


def main(binds: int) -> None:
    native.load()
    symbol, expected, others = network(), None, 0
    for _ in range(binds):
        executor = symbol.simple_bind(mx.cpu(), **SHAPES)
        random = np.random.RandomState(0)
        for name, array in sorted(executor.arg_dict.items()):
            array[:] = 0 if name == "softmax_label" else 0.1 * random.standard_normal(array.shape)
        for _ in range(3):
            executor.forward(is_train=True)
            executor.backward()
            found = [array.asnumpy() for _, array in sorted(executor.grad_dict.items())]
            expected = expected or found
            others += not all(np.allclose(a, b, 1e-3, 1e-3 * np.abs(b).max())
                              for a, b in zip(found, expected))
    print("wrong steps: %d of %d" % (others, 3 * binds))


if __name__ == "__main__":
    main(int(sys.argv[1]))
