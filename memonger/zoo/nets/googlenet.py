"""GoogLeNet with BatchNorm, as torchvision has it (Szegedy et al., arXiv 1409.4842)."""
from __future__ import annotations

from typing import Any, Dict, Tuple

import mxnet as mx

Built = Tuple[Any, Dict[str, Tuple[int, ...]]]

#: For each module: width of the 1x1 branch, of the two 3x3 branches (reduced and full; the second
#: stands where the paper has 5x5), and of the pooled branch. A number is a pooling's window.
_MODULES = (
    ("3a", 64, (96, 128), (16, 32), 32), ("3b", 128, (128, 192), (32, 96), 64), ("pool3", 3),
    ("4a", 192, (96, 208), (16, 48), 64), ("4b", 160, (112, 224), (24, 64), 64),
    ("4c", 128, (128, 256), (24, 64), 64), ("4d", 112, (144, 288), (32, 64), 64),
    ("4e", 256, (160, 320), (32, 128), 128), ("pool4", 2),
    ("5a", 256, (160, 320), (32, 128), 128), ("5b", 384, (192, 384), (48, 128), 128))


def _unit(data: Any, filters: int, kernel: int, name: str, stride: int = 1) -> Any:
    conv = mx.sym.Convolution(data, num_filter=filters, kernel=(kernel, kernel),
                              stride=(stride, stride), pad=(kernel // 2, kernel // 2),
                              no_bias=True, name=name + "_conv")
    norm = mx.sym.BatchNorm(conv, eps=1e-3, fix_gamma=False, name=name + "_bn")
    return mx.sym.Activation(norm, act_type="relu", name=name + "_relu")


def _pool(data: Any, kernel: int, stride: int, name: str) -> Any:
    return mx.sym.Pooling(data, pool_type="max", kernel=(kernel, kernel), stride=(stride, stride),
                          pad=(1, 1) if stride == 1 else (0, 0), pooling_convention="full",
                          name=name)


def _inception(name: str, data: Any, one: int, three: Tuple[int, int], five: Tuple[int, int],
               pooled: int) -> Any:
    return mx.sym.Concat(
        _unit(data, one, 1, name + "_1x1"),
        _unit(_unit(data, three[0], 1, name + "_3x3_reduce"), three[1], 3, name + "_3x3"),
        _unit(_unit(data, five[0], 1, name + "_5x5_reduce"), five[1], 3, name + "_5x5"),
        _unit(_pool(data, 3, 1, name + "_pool"), pooled, 1, name + "_project"),
        dim=1, name=name)


def _side_loss(data: Any, classes: int, label: Any, name: str) -> Any:
    data = mx.sym.contrib.AdaptiveAvgPooling2D(data, output_size=(4, 4), name=name + "_pool")
    data = mx.sym.Flatten(_unit(data, 128, 1, name))
    data = mx.sym.FullyConnected(data, num_hidden=1024, name=name + "_fc1")
    data = mx.sym.Dropout(mx.sym.Activation(data, act_type="relu", name=name + "_relu"), p=0.7,
                          name=name + "_drop")
    scores = mx.sym.FullyConnected(data, num_hidden=classes, name=name + "_fc2")
    return mx.sym.SoftmaxOutput(scores, label, grad_scale=0.3, name=name + "_softmax")


def googlenet(batch: int, *, image: int = 224, classes: int = 1000, side_losses: bool = False,
              ) -> Built:
    """GoogLeNet.

    ``side_losses``: with the two auxiliary classifiers, which MONeT's plans leave out: three
        losses.
    """
    label = mx.sym.var("softmax_label")
    data = _pool(_unit(mx.sym.var("data"), 64, 7, "stem1", stride=2), 3, 2, "pool1")
    data = _pool(_unit(_unit(data, 64, 1, "stem2"), 192, 3, "stem3"), 3, 2, "pool2")
    losses = []
    for module in _MODULES:  # type: Tuple[Any, ...]
        name = str(module[0])
        if name.startswith("pool"):
            data = _pool(data, module[1], 2, name)
        else:
            data = _inception("in" + name, data, *module[1:])
        if side_losses and name in ("4a", "4d"):
            losses.append(_side_loss(data, classes, label, "side" + name))
    data = mx.sym.Pooling(data, pool_type="avg", global_pool=True, kernel=(7, 7), name="pool5")
    data = mx.sym.Dropout(mx.sym.Flatten(data, name="flatten"), p=0.2, name="drop")
    scores = mx.sym.FullyConnected(data, num_hidden=classes, name="fc")
    loss = mx.sym.SoftmaxOutput(scores, label, name="softmax")
    return (mx.sym.Group([loss] + losses) if losses else loss,
            {"data": (batch, 3, image, image), "softmax_label": (batch,)})
