"""Random Gluon blocks that ask for the mode, with nested, missing and unread inputs."""
from __future__ import annotations

import random
from typing import Any, Dict, List, Tuple

import mxnet as mx
import numpy as np
from mxnet import autograd
from mxnet.gluon import HybridBlock, nn

from .trial import Results, head_gradients

CHANNELS = 4
SHAPE = (2, CHANNELS, 6, 6)
_STEPS = 3
_POINTWISE = ("tanh", "sigmoid", "relu", "square", "sin", "softsign", "BlockGrad")
_ASKS = (autograd.is_training, autograd.is_training, autograd.is_recording)


class Layers(HybridBlock):
    """Layers in a row; at some places one of two, by the mode."""

    def __init__(self, numbers: random.Random, depth: int = 0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._row: List[Tuple[Any, List[Any], bool]] = []
        with self.name_scope():
            for _ in range(numbers.choice([2, 3, 5])):
                asks = numbers.choice(_ASKS) if numbers.random() < 0.4 else None
                made = [_layer(numbers, depth) for _ in range(2 if asks else 1)]
                for layer in made:
                    if isinstance(layer, HybridBlock):
                        self.register_child(layer)
                self._row.append((asks, made, numbers.random() < 0.3))

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        for asks, made, adds in self._row:
            layer = made[1 if asks and asks() else 0]
            y = getattr(F, layer)(x) if isinstance(layer, str) else layer(x)
            x = x + y if adds else y
        return x


def _layer(numbers: random.Random, depth: int) -> Any:
    kinds = ["conv", "conv", "norm", "dropout", "pointwise", "pointwise", "nothing"]
    kind = numbers.choice(kinds + ["layers"] * (depth < 2))
    if kind == "conv":
        size = numbers.choice([1, 3])
        return nn.Conv2D(CHANNELS, size, padding=size // 2, in_channels=CHANNELS)
    if kind == "norm":
        return nn.BatchNorm(in_channels=CHANNELS)
    if kind == "dropout":
        return nn.Dropout(numbers.choice([0.1, 0.5]))
    if kind == "layers":
        return Layers(numbers, depth + 1)
    return numbers.choice(_POINTWISE) if kind == "pointwise" else "identity"


class Random(HybridBlock):
    """Two rows of layers with states between them; its outputs are nested, some by the mode."""

    def __init__(self, seed: int) -> None:
        super().__init__(prefix="random_")
        numbers = random.Random(seed)
        self._ends = numbers.choice(["same", "more", "detections"])
        self._reads_mask = numbers.random() < 0.8
        with self.name_scope():
            self.first, self.second = Layers(numbers), Layers(numbers)

    def hybrid_forward(self, F: Any, x: Any, states: Any = None, mask: Any = None) -> Any:
        x = self.first(x)
        for state in states or ():
            for part in state if isinstance(state, list) else [state]:
                x = x if part is None else F.tanh(x * part)
        if mask is not None and self._reads_mask:
            x = F.broadcast_mul(x, mask)
        y = self.second(x)
        if autograd.is_training() and self._ends != "same":
            return [y, (F.tanh(x), [F.mean(y, axis=1)])]
        return F.argmax(y, axis=1) if self._ends == "detections" else y


def make_block(seed: int, flags: Dict[str, Any]) -> Any:
    mx.random.seed(seed)
    np.random.seed(seed)
    numbers = random.Random(seed)
    block = Random(seed)
    block.initialize(mx.init.Xavier())
    for parameter in block.collect_params().values():
        if numbers.random() < 0.1:
            parameter.grad_req = "null"
    block.hybridize(**flags)
    return block


def make_inputs(seed: int) -> List[Any]:
    """The data, perhaps states in lists, and perhaps a mask."""
    numbers, values = random.Random(seed), np.random.RandomState(seed)

    def state(depth: int = 0) -> Any:
        if depth < 2 and numbers.random() < 0.3:
            return [state(2) for _ in range(numbers.choice([1, 2]))]
        return None if numbers.random() < 0.2 else mx.nd.array(values.standard_normal(SHAPE))

    inputs = [mx.nd.array(values.standard_normal(SHAPE))]
    inputs[0].attach_grad()
    if numbers.random() < 0.7:
        inputs.append(numbers.choice([None, [state() for _ in range(numbers.choice([1, 2, 3]))]]))
        if numbers.random() < 0.7:
            inputs.append(mx.nd.array(values.standard_normal((2, 1, 6, 6))))
    return inputs


def train(block: Any, inputs: List[Any]) -> Results:
    """Steps of gradient descent, inference, and one step more."""
    results: Results = []
    for step in range(_STEPS + 2):
        mx.random.seed(1000 + step)
        training = step != _STEPS
        with autograd.record() if training else autograd.pause():
            outputs = mx.gluon.block._flatten(block(*inputs), "output")[0]
        found = {}
        if training:
            autograd.backward(outputs, head_gradients(outputs, step))
            found["gradient of data"] = inputs[0].grad.asnumpy()
        found.update(("output %d" % i, o.asnumpy()) for i, o in enumerate(outputs))
        for name, parameter in block.collect_params().items():
            found[name] = parameter.data().asnumpy()
            if training and parameter.grad_req != "null":
                found["gradient of " + name] = parameter.grad().asnumpy()
                parameter.set_data(parameter.data() - 0.01 * mx.nd.clip(parameter.grad(), -1, 1))
        results.append(found)
    return results
