"""Random networks of ordinary layers, and networks that train almost as they do."""
from __future__ import annotations

import random
from typing import Any, Callable, Dict, Tuple

import mxnet as mx

Layer = Callable[[Any], Any]
Shapes = Dict[str, Tuple[int, ...]]


def same(value: Any) -> Any:
    return value


def ordinary_net(seed: int, fault: Layer = same, relu: Layer = mx.sym.relu) -> Tuple[Any, Shapes]:
    """A convolutional classifier, the same for the same seed, and its input shapes.

    ``fault`` is put behind a layer in the middle, ``relu`` in the place of its first ReLU.
    """
    draw = random.Random(seed)
    batch, size, blocks = draw.choice((2, 4, 8)), draw.choice((8, 12, 16)), draw.randint(2, 5)
    with mx.name.NameManager():
        value, channels = mx.sym.var("data"), draw.choice((4, 8, 16))
        for block in range(blocks):
            value = _block(draw, value, channels, relu if block == 0 else mx.sym.relu)
            if block == blocks // 2:
                value = fault(value)
            if block < 2 and draw.random() < 0.7:
                value = mx.sym.Pooling(value, kernel=(2, 2), stride=(2, 2),
                                       pool_type=draw.choice(("max", "avg")))
        if draw.random() < 0.5:
            value = mx.sym.Pooling(value, kernel=(1, 1), global_pool=True,
                                   pool_type=draw.choice(("max", "avg")))
        else:
            value = mx.sym.relu(mx.sym.FullyConnected(value, num_hidden=16))
        value = mx.sym.FullyConnected(mx.sym.Flatten(value), num_hidden=10)
        return mx.sym.SoftmaxOutput(value, name="softmax"), {"data": (batch, 3, size, size)}


def _block(draw: random.Random, value: Any, channels: int, relu: Layer) -> Any:
    def convolution(x: Any, groups: int = 1) -> Any:
        kernel = draw.choice((1, 3))
        return mx.sym.Convolution(x, kernel=(kernel, kernel), pad=(kernel // 2, kernel // 2),
                                  num_filter=channels, num_group=groups,
                                  no_bias=draw.random() < 0.3)

    def norm(x: Any) -> Any:
        return mx.sym.BatchNorm(x, fix_gamma=draw.random() < 0.3)

    smooth = [lambda x: mx.sym.clip(x, a_min=0, a_max=6), lambda x: mx.sym.LeakyReLU(x, slope=0.1),
              mx.sym.sigmoid, mx.sym.tanh, mx.sym.relu]
    value = relu(norm(convolution(value)))
    kind = draw.choice(("plain", "residual", "dense", "depthwise", "inception"))
    if kind == "residual":
        inner = norm(convolution(relu(norm(convolution(value)))))
        return mx.sym.relu(value + inner)
    if kind == "dense":
        return mx.sym.concat(value, convolution(mx.sym.relu(norm(value))), dim=1)
    if kind == "depthwise":
        return draw.choice(smooth)(norm(convolution(value, groups=channels)))
    if kind == "inception":
        pooled = mx.sym.Pooling(value, kernel=(3, 3), pad=(1, 1),
                                pool_type=draw.choice(("max", "avg")))
        return mx.sym.concat(mx.sym.relu(convolution(value)), convolution(pooled), dim=1)
    return draw.choice(smooth)(convolution(value))


# ------------------------------------------------------------------------------ planted faults
def with_gradient_of(value: Any, other: Any) -> Any:
    """The value of one, the gradient of the other."""
    return mx.sym.BlockGrad(value - other) + other


def wrong_clone(value: Any) -> Any:
    """Backward reads what another op made."""
    return with_gradient_of(mx.sym.square(value), mx.sym.square(value + 0.05))


def right_clone(value: Any) -> Any:
    return mx.sym.square(value)


def mask_one_off(value: Any) -> Any:
    """A ReLU whose gradient passes by the sign of the neighbour."""
    flat = mx.sym.reshape(value, shape=(1, -1))
    turned = mx.sym.concat(mx.sym.slice_axis(flat, axis=1, begin=1, end=None),
                           mx.sym.slice_axis(flat, axis=1, begin=0, end=1), dim=1)
    mask = mx.sym.BlockGrad(mx.sym.reshape_like(turned, value) > 0)
    return with_gradient_of(mx.sym.relu(value), value * mask)


def loop(value: Any, kept: Layer = same) -> Any:
    """A loop with a state through which gradients go."""
    def body(row: Any, state: Any) -> Tuple[Any, Any]:
        state = mx.sym.tanh(row + kept(state))
        return state, state
    flat = mx.sym.reshape(value, shape=(4, -1))
    states, _ = mx.sym.contrib.foreach(body, flat, mx.sym.sum(flat, axis=0) * 0.1)
    return mx.sym.reshape_like(states, value)


def loop_without_state(value: Any) -> Any:
    return loop(value, mx.sym.BlockGrad)


class _Stale(mx.operator.CustomOp):
    """Passes on; in float32 the gradient of the first sample is that of the last."""

    def forward(self, is_train: bool, req: Any, in_data: Any, out_data: Any, aux: Any) -> None:
        self.assign(out_data[0], req[0], in_data[0])

    def backward(self, req: Any, out_grad: Any, in_data: Any, out_data: Any, in_grad: Any,
                 aux: Any) -> None:
        found = out_grad[0].copy()
        if found.dtype.__name__ == "float32":
            found[0:1] = out_grad[0][-1:]
        self.assign(in_grad[0], req[0], found)


@mx.operator.register("memonger_test_stale")
class _StaleProp(mx.operator.CustomOpProp):
    def create_operator(self, ctx: Any, shapes: Any, dtypes: Any) -> _Stale:
        return _Stale()


def stale_buffer(value: Any) -> Any:
    return mx.sym.Custom(value, op_type="memonger_test_stale")


def narrowed(value: Any) -> Any:
    return mx.sym.amp_cast(mx.sym.amp_cast(value, dtype="float16"), dtype="float32")


#: (what the original has, what the planned network has instead), by what went wrong.
FAULTS: Dict[str, Tuple[Layer, Layer]] = {
    "a wrong clone": (right_clone, wrong_clone), "a stale buffer": (same, stale_buffer),
    "a loop's state": (loop, loop_without_state), "a lost amp_cast": (narrowed, same)}
