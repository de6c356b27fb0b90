"""Random operators of every kind: each takes the network's values and one of them to read."""
from __future__ import annotations

from typing import Any, Callable, List, NamedTuple

import mxnet as mx
import numpy as np

from .values import Value, Values

S = mx.sym
Make = Callable[[Values, Any, Value], Any]


class Kind(NamedTuple):
    """Operators that read a float of some numbers of axes; ``weight``: how often they are drawn."""

    make: Make
    axes: tuple = (1, 2, 3, 4, 5)
    weight: int = 1
    only_float32: bool = False


def _any(n: Values, *choices: Callable[[], Any]) -> Any:
    return n.random.choice(choices)()


def convolution(n: Values, x: Any, v: Value) -> Any:
    axes = len(v.shape) - 2
    kernel = tuple(n.random.choice([1, 2, 3]) for _ in range(axes))
    groups = n.random.choice([1, 1, v.shape[1]])
    return S.Convolution(
        x, kernel=kernel, num_group=groups, no_bias=n.chance(0.5),
        num_filter=groups * n.random.choice([1, 2]) if groups > 1 else n.random.choice([3, 4, 8]),
        stride=(n.random.choice([1, 1, 2]),) * axes, pad=(n.random.choice([0, 1]),) * axes,
        dilate=(n.random.choice([1, 1, 2]),) * axes)


def shared_weight(n: Values, x: Any, v: Value) -> Any:
    if len(v.shape) == 4 and v.shape[1] == 4:
        return S.Convolution(x, weight=n.shared("conv_weight"), bias=n.shared("conv_bias"),
                             kernel=(3, 3), pad=(1, 1), num_filter=4)
    if len(v.shape) == 2 and v.shape[1] == 8:
        return S.FullyConnected(x, weight=n.shared("dense_weight"), num_hidden=8, no_bias=True)
    return None


def deconvolution(n: Values, x: Any, v: Value) -> Any:
    axes = len(v.shape) - 2
    return S.Deconvolution(x, kernel=(3,) * axes, stride=(n.random.choice([1, 2]),) * axes,
                           pad=(1,) * axes, num_filter=3, no_bias=n.chance(0.5))


def batch_norm(n: Values, x: Any, v: Value) -> Any:
    axis = n.random.choice([1, 1, len(v.shape) - 1, 0]) if len(v.shape) > 1 else 0
    return S.BatchNorm(x, axis=axis, fix_gamma=n.chance(0.5), use_global_stats=n.chance(0.2),
                       eps=n.random.choice([1e-3, 2e-5]), momentum=n.random.choice([0.9, 0.5]))


def other_norm(n: Values, x: Any, v: Value) -> Any:
    return _any(n, lambda: S.LayerNorm(x, axis=-1), lambda: S.InstanceNorm(x),
                lambda: S.GroupNorm(x, num_groups=2), lambda: S.LRN(x, nsize=3),
                lambda: S.LayerNorm(x, output_mean_var=True)[0],
                lambda: S.L2Normalization(x, mode="instance"))


def pooling(n: Values, x: Any, v: Value) -> Any:
    axes = len(v.shape) - 2
    return S.Pooling(
        x, kernel=(n.random.choice([2, 3]),) * axes, stride=(n.random.choice([1, 2]),) * axes,
        pad=(n.random.choice([0, 1]),) * axes, global_pool=n.chance(0.15), p_value=2,
        pool_type=n.random.choice(["max", "max", "avg", "sum", "lp"]),
        pooling_convention=n.random.choice(["valid", "full"]), count_include_pad=n.chance(0.5))


def activation(n: Values, x: Any, v: Value) -> Any:
    return _any(
        n, lambda: S.Activation(x, act_type=n.random.choice(
            ["relu", "sigmoid", "tanh", "softrelu", "softsign"])),
        lambda: S.LeakyReLU(x, act_type=n.random.choice(["leaky", "elu", "selu", "gelu", "prelu"])),
        lambda: S.relu(x), lambda: S.sigmoid(x), lambda: S.clip(x, -0.5, 0.5),
        lambda: S.hard_sigmoid(x), lambda: x * S.sigmoid(x))


def dropout(n: Values, x: Any, v: Value) -> Any:
    axes = {"axes": (n.random.randrange(len(v.shape)),)} if n.chance(0.3) else {}
    return S.Dropout(x, p=n.random.choice([0.1, 0.5, 0.9, 0.0]), **axes,
                     **({"mode": "always"} if n.chance(0.2) else {}))


def pointwise(n: Values, x: Any, v: Value) -> Any:
    return _any(
        n, lambda: S.exp(S.clip(x, -2, 2)), lambda: S.sqrt(S.abs(x) + 0.1), lambda: S.square(x),
        lambda: S.erf(x), lambda: S.log1p(S.abs(x)), lambda: S.sin(x), lambda: S.arctan(x),
        lambda: S.smooth_l1(x, scalar=1.0), lambda: S.rsqrt(S.abs(x) + 0.5), lambda: S.sign(x),
        lambda: S.BlockGrad(x), lambda: S.identity(x), lambda: -x, lambda: 2 / (x * x + 1),
        lambda: S.maximum(x, 0.1), lambda: S.zeros_like(x) + x, lambda: S.ones_like(x) * x,
        lambda: S.MakeLoss(x, grad_scale=0.3), lambda: S.contrib.gradientmultiplier(x, scalar=0.5))


def of_two(n: Values, x: Any, v: Value) -> Any:
    y = n.same(v).symbol
    return _any(n, lambda: x + y, lambda: x * y, lambda: x - y, lambda: x / (y * y + 1),
                lambda: S.maximum(x, y), lambda: S.hypot(x, y), lambda: S.where(y > 0.1, x, y))


def joined(n: Values, x: Any, v: Value) -> Any:
    parts = [x] + [n.same(v).symbol for _ in range(n.random.choice([1, 2, 11]))]
    return _any(n, lambda: S.concat(*parts, dim=n.random.randrange(len(v.shape))),
                lambda: S.add_n(*parts), lambda: S.stack(*parts, axis=0))


def moved(n: Values, x: Any, v: Value) -> Any:
    shape, axis = v.shape, n.random.randrange(len(v.shape))
    return _any(
        n, lambda: S.reshape(x, shape=n.random.choice([(-1,), (0, -1), (-1, shape[-1])])),
        lambda: S.slice_axis(x, axis=axis, begin=0, end=max(1, shape[axis] - 1)),
        lambda: S.SliceChannel(x, num_outputs=2, axis=axis), lambda: S.flip(x, axis=axis),
        lambda: S.transpose(x), lambda: S.swapaxes(x, dim1=0, dim2=len(shape) - 1),
        lambda: S.expand_dims(x, axis=1), lambda: S.repeat(x, repeats=2, axis=axis),
        lambda: S.tile(x, reps=(2,) + (1,) * (len(shape) - 1)),
        lambda: S.broadcast_like(S.mean(x, axis=0, keepdims=True), x))


def reduced(n: Values, x: Any, v: Value) -> Any:
    axis = n.random.randrange(len(v.shape))
    reduce = n.random.choice([S.sum, S.mean, S.max, S.min, S.prod, S.norm])
    mean = S.mean(x, axis=axis, keepdims=True)
    moments = S.moments(x, axes=(axis,), keepdims=True)
    return _any(n, lambda: reduce(x, axis=axis, keepdims=n.chance(0.6)),
                lambda: S.broadcast_sub(x, mean), lambda: S.broadcast_mul(x, mean),
                lambda: S.softmax(x, axis=axis), lambda: S.log_softmax(x, axis=axis),
                lambda: S.broadcast_div(S.broadcast_sub(x, moments[0]), S.sqrt(moments[1] + 0.1))
                if len(v.shape) < 6 else None)


def indexed(n: Values, x: Any, v: Value) -> Any:
    shape = v.shape
    taken = n.variable("taken", (4,), n.below(*[shape[0]] * 4))
    return _any(
        n, lambda: S.take(x, taken, axis=0),
        lambda: S.pick(x, n.variable("picked", (shape[0],), n.below(*[shape[1]] * shape[0]))),
        lambda: S.topk(x, k=max(1, shape[-1] // 2), ret_typ="value"), lambda: S.sort(x),
        lambda: S.broadcast_mul(S.one_hot(S.argmax(x, axis=-1), depth=shape[-1], dtype=v.dtype), x),
        lambda: S.gather_nd(x, n.variable("at", (2, 3), np.stack(
            [n.below(*[shape[0]] * 3), n.below(*[shape[1]] * 3)]))))


def dense(n: Values, x: Any, v: Value) -> Any:
    return S.FullyConnected(x, num_hidden=n.random.choice([8, 8, 5]), flatten=n.chance(0.6),
                            no_bias=n.chance(0.4))


def matrices(n: Values, x: Any, v: Value) -> Any:
    heads = S.FullyConnected(x, num_hidden=12, flatten=False)
    scores = S.softmax(S.contrib.interleaved_matmul_selfatt_qk(heads, heads=2))
    length = n.variable("length", (v.shape[1],), 1 + n.below(*[v.shape[0]] * v.shape[1]))
    return _any(
        n, lambda: S.batch_dot(x, x, transpose_b=True),
        lambda: S.linalg_gemm2(x, x, transpose_b=True, alpha=0.5),
        lambda: S.contrib.interleaved_matmul_selfatt_valatt(heads, scores, heads=2),
        lambda: S.SequenceMask(x, length, use_sequence_length=True),
        lambda: S.SequenceReverse(x, length, use_sequence_length=True))


def images(n: Values, x: Any, v: Value) -> Any:
    batch = v.shape[0]
    rois = n.variable("rois", (3, 5), [[n.random.randrange(batch), 0, 0, 2, 3] for _ in range(3)])
    grid = S.GridGenerator(S.FullyConnected(S.Flatten(x), num_hidden=6),
                           transform_type="affine", target_shape=v.shape[2:])
    return _any(
        n, lambda: S.ROIPooling(x, rois, pooled_size=(2, 2), spatial_scale=1.0),
        lambda: S.contrib.ROIAlign(x, rois, pooled_size=(2, 2), spatial_scale=1.0, sample_ratio=2),
        lambda: S.BilinearSampler(x, grid), lambda: S.UpSampling(x, scale=2, sample_type="nearest"),
        lambda: S.contrib.BilinearResize2D(x, height=v.shape[2] + 1, width=v.shape[3] + 2),
        lambda: S.contrib.AdaptiveAvgPooling2D(x, output_size=2), lambda: S.space_to_depth(x, 2),
        lambda: S.depth_to_space(x, 2),
        lambda: S.pad(x, mode="edge", pad_width=(0, 0, 0, 0, 1, 1, 1, 0)),
        lambda: S.contrib.DeformableConvolution(
            x, S.Convolution(x, kernel=(3, 3), pad=(1, 1), num_filter=18), kernel=(3, 3),
            pad=(1, 1), num_filter=4))


def cast(n: Values, x: Any, v: Value) -> Any:
    dtype = n.random.choice(["float32", "float64", "float16"])
    return _any(n, lambda: S.cast(x, dtype=dtype), lambda: S.amp_cast(x, dtype="float32"),
                lambda: S.cast(S.cast(x * 3, dtype="int32"), dtype=v.dtype))


def drawn(n: Values, x: Any, v: Value) -> Any:
    return _any(n, lambda: x + 0.1 * S.random.normal(shape=v.shape, dtype=v.dtype),
                lambda: S.sample_normal(S.abs(x), S.abs(x) + 0.1))


def blocks(n: Values, x: Any, v: Value) -> Any:
    """Chains that variants replace."""
    norm = S.BatchNorm(x, fix_gamma=n.chance(0.5))
    conv = {"kernel": (3, 3), "pad": (1, 1)}
    return _any(
        n, lambda: S.relu(norm), lambda: S.Convolution(S.relu(norm), num_filter=4, **conv),
        lambda: S.relu(S.BatchNorm(S.Convolution(x, num_filter=4, **conv))),
        lambda: x + S.Convolution(S.Activation(norm, act_type="relu"), num_filter=v.shape[1],
                                  no_bias=True, **conv),
        lambda: S.concat(x, S.Convolution(S.relu(norm), num_filter=4, **conv), dim=1))


def loop(n: Values, x: Any, v: Value) -> Any:
    def body(row: Any, state: Any) -> Any:
        state = S.tanh(row + state)
        return state, state
    output, state = S.contrib.foreach(body, x, S.sum(x, axis=0) * 0.1)
    return n.random.choice([output, state])


KINDS: List[Kind] = [
    Kind(convolution, (3, 4, 5), 5), Kind(shared_weight, (2, 4), 4, True),
    Kind(deconvolution, (3, 4), 2), Kind(batch_norm, (2, 3, 4, 5), 2),
    Kind(other_norm, (2, 3, 4), 4), Kind(pooling, (3, 4, 5), 3),
    Kind(activation, weight=5), Kind(dropout, weight=3),
    Kind(pointwise, weight=6), Kind(of_two, weight=6), Kind(joined, weight=3),
    Kind(moved, weight=5), Kind(reduced, weight=5), Kind(indexed, (2, 3), 3), Kind(dense, weight=3),
    Kind(matrices, (3,), 3, True), Kind(images, (4,), 4, True), Kind(cast, weight=3),
    Kind(drawn, weight=2, only_float32=True), Kind(blocks, (4,), 8), Kind(loop, (2, 3))]
