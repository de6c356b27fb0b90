"""U-Net (Ronneberger et al., arXiv 1505.04597) with BatchNorm and upsampling, as in MONeT."""
from __future__ import annotations

from typing import Any, Dict, Sequence, Tuple

import mxnet as mx

Built = Tuple[Any, Dict[str, Tuple[int, ...]]]


def _twice(data: Any, widths: Sequence[int], name: str) -> Any:
    for index, width in enumerate(widths):
        part = "%s_%d" % (name, index)
        data = mx.sym.Convolution(data, num_filter=width, kernel=(3, 3), pad=(1, 1),
                                  name=part + "_conv")
        data = mx.sym.BatchNorm(data, fix_gamma=False, name=part + "_bn")
        data = mx.sym.Activation(data, act_type="relu", name=part + "_relu")
    return data


def unet(batch: int, *, height: int = 416, width: int = 608, filters: int = 64, depth: int = 4,
         ) -> Built:
    """U-Net for masks of one class, with one probability a pixel.

    ``height``, ``width``: multiples of ``2 ** depth``.
    ``filters``: of the first level; doubled level by level, except for the last.
    ``depth``: number of times that the picture is halved.
    """
    if height % 2 ** depth or width % 2 ** depth:
        raise ValueError("height and width must be multiples of %d" % 2 ** depth)
    data = _twice(mx.sym.var("data"), (filters, filters), "down0")
    levels = []
    for level in range(1, depth + 1):
        levels.append(data)
        data = mx.sym.Pooling(data, pool_type="max", kernel=(2, 2), stride=(2, 2),
                              name="pool%d" % level)
        size = filters * 2 ** min(level, depth - 1)
        data = _twice(data, (size, size), "down%d" % level)
    for level in range(depth - 1, -1, -1):
        data = mx.sym.UpSampling(data, scale=2, sample_type="nearest", name="grow%d" % level)
        data = mx.sym.Concat(levels[level], data, dim=1, name="join%d" % level)
        size = filters * 2 ** level
        data = _twice(data, (size, size // 2 if level else size), "up%d" % level)
    scores = mx.sym.Convolution(data, num_filter=1, kernel=(1, 1), name="head")
    loss = mx.sym.LogisticRegressionOutput(scores, mx.sym.var("mask"), name="sigmoid")
    return loss, {"data": (batch, 3, height, width), "mask": (batch, 1, height, width)}
