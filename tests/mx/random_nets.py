"""Random symbols with many kinds of operators, for tests against MXNet itself."""
from __future__ import annotations

import random
from typing import Any, Dict, Tuple

import mxnet as mx

_UNARY = (mx.sym.relu, mx.sym.sigmoid, mx.sym.tanh, mx.sym.exp, mx.sym.square,
          lambda x, name: mx.sym.Activation(x, act_type="softrelu", name=name),
          lambda x, name: mx.sym.LeakyReLU(x, slope=0.2, name=name),
          lambda x, name: mx.sym.BatchNorm(x, fix_gamma=False, name=name),
          lambda x, name: mx.sym.LayerNorm(x, name=name),
          lambda x, name: mx.sym.Dropout(x, p=0.3, name=name),
          lambda x, name: mx.sym.softmax(x, name=name),
          lambda x, name: mx.sym.clip(x, a_min=-1, a_max=1, name=name),
          lambda x, name: mx.sym._internal._PlusScalar(x, scalar=1.5, name=name),
          lambda x, name: mx.sym.identity(x, name=name),
          lambda x, name: mx.sym.BlockGrad(x, name=name),
          lambda x, name: mx.sym.zeros_like(x, name=name))
_BINARY = (mx.sym.elemwise_add, mx.sym.elemwise_sub, mx.sym.elemwise_mul, mx.sym.broadcast_add,
           mx.sym.broadcast_maximum)


def random_net(rng: random.Random, size: int = 12) -> Tuple[Any, Dict[str, Tuple[int, int]]]:
    """A symbol of about ``size`` ops on matrices (batch, width), and its input shapes.

    Branches, several outputs, shared weights, reshapes, sums of many gradients, dtypes in between.
    """
    batch, widths = rng.choice((3, 4)), (4, 6, 8)
    start = rng.choice(widths)
    values = [(mx.sym.var("data"), start)]
    shared = {w: mx.sym.var("shared%d" % w) for w in widths}
    for index in range(size):
        name = "op%d" % index
        value, width = rng.choice(values[-4:])
        kind = rng.random()
        if kind < 0.4:
            made = [(rng.choice(_UNARY)(value, name=name), width)]
        elif kind < 0.6:
            same = [v for v, w in values if w == width]
            made = [(rng.choice(_BINARY)(value, rng.choice(same), name=name), width)]
        elif kind < 0.75:
            out = rng.choice(widths)
            if rng.random() < 0.3 and out == width:
                made = [(mx.sym.FullyConnected(value, weight=shared[out], num_hidden=out,
                                               no_bias=True, name=name), out)]
            else:
                made = [(mx.sym.FullyConnected(value, num_hidden=out, name=name), out)]
        elif kind < 0.85:
            parts = mx.sym.split(value, num_outputs=2, axis=1, name=name)
            made = [(parts[0], width // 2), (parts[1], width // 2)]
            other = [i for i in values if i[1] == width // 2]
            if not other or rng.random() < 0.7:
                made = [(mx.sym.concat(parts[1], parts[0], dim=1, name=name + "c"), width)]
        elif kind < 0.93:
            flat = mx.sym.Reshape(value, shape=(-1,), name=name)
            made = [(mx.sym.Reshape(flat, shape=(batch, width), name=name + "b"), width)]
        else:
            half = mx.sym.cast(value, dtype=rng.choice(("float16", "float64")), name=name)
            half = mx.sym.relu(half, name=name + "r")
            made = [(mx.sym.cast(half, dtype="float32", name=name + "c"), width)]
        values += made
    if rng.random() < 0.3:  # so many gradients are summed in place
        value, width = rng.choice(values)
        values.append((mx.sym.add_n(*[mx.sym.sin(value * float(i + 2)) for i in range(10)]), width))
    last = mx.sym.FullyConnected(values[-1][0], num_hidden=3, name="last")
    loss = mx.sym.SoftmaxOutput(last, name="softmax")
    if rng.random() < 0.3:
        loss = mx.sym.Group([loss, mx.sym.MakeLoss(mx.sym.sum(rng.choice(values)[0]),
                                                   name="side")])
    return loss, {"data": (batch, start)}
