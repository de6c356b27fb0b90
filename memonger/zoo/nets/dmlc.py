"""The two example networks of dmlc/mxnet-memonger, in the same structure."""
from __future__ import annotations

from typing import Any, Dict, List, Sequence, Tuple

import mxnet as mx

Built = Tuple[Any, Dict[str, Tuple[int, ...]]]


def _unit(data: Any, filters: int, kernel: int, pad: int = 0, stride: int = 1) -> Any:
    conv = mx.sym.Convolution(data, kernel=(kernel, kernel), stride=(stride, stride),
                              pad=(pad, pad), num_filter=filters)
    return mx.sym.LeakyReLU(mx.sym.BatchNorm(conv, fix_gamma=True), act_type="leaky")


def resnet(batch: int, *, blocks: Sequence[int] = (3, 4, 6, 3), image: int = 224,
           filters: int = 64, classes: int = 1000, hints: bool = False) -> Built:
    """``example_resnet.py``: bottleneck blocks of convolution, BatchNorm and leaky ReLU.

    ``blocks``: residual blocks in each of the four stages; (3, 24, 36, 3) in the repository.
    ``image``: height and width; the last pooling has a window of 7 for 224, else of the last map's
        size.
    ``filters``: of the first stage.
    ``hints``: mark each block's input with ``mirror_stage``, as the original does.
    """
    data = _unit(mx.sym.var("data"), filters, 7, pad=3, stride=2)
    data = mx.sym.Pooling(data, pool_type="max", kernel=(3, 3), stride=(2, 2))
    for stage, count in enumerate(blocks):
        width = filters * 2 ** stage
        for block in range(count):
            stride = 2 if stage and not block else 1
            body = _unit(data, width, 1)
            body = _unit(body, width, 3, pad=1, stride=stride)
            body = _unit(body, width * 4, 1)
            if not block:
                data = _unit(data, width * 4, 1, stride=stride)
            total = data + body
            if hints:
                data._set_attr(mirror_stage="True")
            data = total
    size = data.infer_shape_partial(data=(batch, 3, image, image))[1][0][2]
    data = mx.sym.Pooling(data, kernel=(size, size), stride=(1, 1), pool_type="avg",
                          name="global_pool")
    scores = mx.sym.FullyConnected(mx.sym.Flatten(data, name="flatten"), num_hidden=classes,
                                   name="fc1")
    loss = mx.sym.SoftmaxOutput(scores, mx.sym.var("softmax_label"), name="softmax")
    return loss, {"data": (batch, 3, image, image), "softmax_label": (batch,)}


def _lstm_step(units: int, data: Any, cell: Any, hidden: Any, weights: Dict[str, Any],
               name: str, hint: str) -> Tuple[Any, Any]:
    gates = (mx.sym.FullyConnected(data, weights["i2h_weight"], weights["i2h_bias"],
                                   num_hidden=4 * units, name=name + "_i2h")
             + mx.sym.FullyConnected(hidden, weights["h2h_weight"], weights["h2h_bias"],
                                     num_hidden=4 * units, name=name + "_h2h"))
    parts = mx.sym.SliceChannel(gates, num_outputs=4, name=name + "_slice")
    write, change, forget, read = (
        mx.sym.Activation(parts[i], act_type="tanh" if i == 1 else "sigmoid") for i in range(4))
    cell = forget * cell + write * change
    hidden = read * mx.sym.Activation(cell, act_type="tanh")
    if hint:
        cell._set_attr(mirror_stage=hint)
        hidden._set_attr(mirror_stage=hint)
    return cell, hidden


def lstm(batch: int, *, layers: int = 4, steps: int = 1000, inputs: int = 50, units: int = 1024,
         embedding: int = 1024, labels: int = 5000, hints: bool = False) -> Built:
    """``example_lstm.py``: an unrolled LSTM with one loss a step.

    ``hints``: mark the states with ``mirror_stage`` = number of the step, as the original does.
    """
    embed = mx.sym.var("embed_weight")
    head = {"weight": mx.sym.var("cls_weight"), "bias": mx.sym.var("cls_bias")}
    weights = [{part: mx.sym.var("l%d_%s" % (layer, part))
                for part in ("i2h_weight", "i2h_bias", "h2h_weight", "h2h_bias")}
               for layer in range(layers)]
    states = [(mx.sym.var("l%d_init_c" % layer), mx.sym.var("l%d_init_h" % layer))
              for layer in range(layers)]
    outputs: List[Any] = []
    for step in range(steps):
        value = mx.sym.FullyConnected(mx.sym.var("t%d_data" % step), embed, no_bias=True,
                                      num_hidden=embedding, name="t%d_embed" % step)
        for layer in range(layers):
            states[layer] = _lstm_step(units, value, *states[layer], weights[layer],
                                       "t%d_l%d" % (step, layer), str(step) if hints else "")
            value = states[layer][1]
        outputs.append(value)
    losses = [mx.sym.softmax_cross_entropy(
        mx.sym.FullyConnected(value, num_hidden=labels, name="t%d_cls" % step, **head),
        mx.sym.var("t%d_label" % step), name="t%d_sm" % step)
        for step, value in enumerate(outputs)]
    last = [mx.sym.BlockGrad(state[part], name="l%d_last_%s" % (layer, "ch"[part]))
            for part in (0, 1) for layer, state in enumerate(states)]
    shapes: Dict[str, Tuple[int, ...]] = {}
    for step in range(steps):
        shapes["t%d_data" % step] = (batch, inputs)
        shapes["t%d_label" % step] = (batch,)
    for layer in range(layers):
        shapes["l%d_init_c" % layer] = shapes["l%d_init_h" % layer] = (batch, units)
    return mx.sym.Group(losses + last), shapes
