"""Training graphs of real shape, without MXNet: what planners are tried on; small real networks."""
from __future__ import annotations

from typing import Any, Dict, List, Optional

from memonger.graph.offers import Offer, offering
from memonger.graph.types import Graph, Implementation, Inplace, Op, Tensor

MB = 2 ** 20

#: Networks of the zoo, with the options that make them small enough to train in seconds.
ZOO: Dict[str, Dict[str, int]] = {
    "alexnet": {"batch": 2}, "vgg11_bn": {"batch": 2, "image": 64},
    "vgg16_bn": {"batch": 2, "image": 64}, "resnet18": {"batch": 2, "image": 64},
    "resnet50": {"batch": 2, "image": 64}, "resnet18_v2": {"batch": 2, "image": 64},
    "resnet50_v2": {"batch": 2, "image": 64}, "densenet121": {"batch": 1},
    "inception_v3": {"batch": 1}, "mobilenet": {"batch": 2, "image": 64},
    "mobilenet_v2": {"batch": 2, "image": 64}, "squeezenet1_0": {"batch": 1},
    "dmlc_resnet50": {"batch": 2, "image": 64}, "lstm_lm_35": {"batch": 2, "units": 32},
    "attention_small": {"batch": 2},
}


def small_network(name: str) -> Any:
    """A network of ``ZOO`` at the size that trains in seconds."""
    from memonger.zoo import nets
    return nets.build(name, **ZOO[name])


class _Net:
    """Forward ops as they are added; the backward ops follow from them."""

    def __init__(self) -> None:
        self.tensors: List[Tensor] = []
        self.ops: List[Op] = []
        self.backward: List[tuple] = []  # (op, inputs whose gradients are wanted, values read)

    def tensor(self, name: str, size_bytes: int, producer: int, pooled: bool = True) -> int:
        category = "activation" if pooled else "gradient" if producer >= 0 else "input"
        self.tensors.append(Tensor(name, size_bytes, producer, category,
                                   "device" if pooled else "outside", (size_bytes // 4,)))
        return len(self.tensors) - 1

    def add(self, kind: str, inputs: List[int], size_bytes: int, time_s: float, reads: str,
            inplace: bool = False, statistics_bytes: int = 0) -> int:
        """One op; ``reads`` says what its backward needs: "i" the input, "o" the output."""
        index = len(self.ops)
        outputs = [self.tensor("%s%d" % (kind, index), size_bytes, index)]
        if statistics_bytes:
            outputs.append(self.tensor("%s%d_var" % (kind, index), statistics_bytes, index))
        self.ops.append(Op.of(
            "%s%d" % (kind, index), kind, tuple(inputs), tuple(outputs), time_s=time_s,
            inplace=(Inplace(0, 0),) if inplace else (),
            kept_outputs=(1,) if statistics_bytes else ()))
        values = (inputs[:1] if "i" in reads else []) + (outputs[:1] if "o" in reads else [])
        self.backward.append((index, inputs, values + outputs[1:]))
        return outputs[0]

    def graph(self, name: str) -> Graph:
        gradient = {self.ops[-1].outputs[0]: self.tensor("head", 4, -1, False)}
        for index, inputs, values in reversed(self.backward):
            op = self.ops[index]
            number = len(self.ops)
            arrived = gradient[op.outputs[0]]
            made = []
            for tensor in inputs:
                if self.tensors[tensor].producer < 0:
                    continue
                made.append((tensor, self.tensor("g_%s_%s" % (op.name, tensor),
                                                 self.tensors[tensor].size_bytes, number)))
            if op.kind == "conv":
                made.append((-1, self.tensor("w_" + op.name, 4 * MB, number, False)))
            if not made:
                made.append((-1, self.tensor("w_" + op.name, 4, number, False)))
            self.ops.append(Op.of(
                "backward_" + op.name, "backward_" + op.kind, (arrived, *values),
                tuple(t for _, t in made), is_backward=True, forward_op=index,
                not_recomputable_because="backward", time_s=2 * op.time_s,
                inplace=() if op.kind == "conv" else (Inplace(0, 0),)))
            for tensor, made_by in made:
                if tensor < 0:
                    continue
                if tensor in gradient:
                    add = len(self.ops)
                    total = self.tensor("sum%d" % add, self.tensors[tensor].size_bytes, add)
                    self.ops.append(Op.of(
                        "sum%d" % add, "elemwise_add", (gradient[tensor], made_by), (total,),
                        is_backward=True, not_recomputable_because="backward",
                        inplace=(Inplace(0, 0),),
                        time_s=6e-12 * self.tensors[tensor].size_bytes))
                    gradient[tensor] = total
                else:
                    gradient[tensor] = made_by
        results = [self.backward[-1][0]]
        outputs = [self.ops[results[0]].outputs[0]]
        outputs += [i for i, t in enumerate(self.tensors) if t.category == "gradient"]
        graph = Graph(tuple(self.tensors), tuple(self.ops), tuple(outputs), name=name)
        graph.check()
        return graph


def residual_network(blocks: int, sizes_mb: Optional[List[int]] = None) -> Graph:
    """Blocks of three conv-BatchNorm-ReLU with a sum, as in ResNet: 21 ops forward and back."""
    net = _Net()
    value = net.tensor("data", 18 * MB, -1, False)
    stages = sizes_mb or [100, 50, 25, 12]
    for block in range(blocks):
        size = stages[block * len(stages) // blocks] * MB
        shortcut = value
        for part in range(3):
            wide = size if part == 2 else size // 4
            value = net.add("conv", [value], wide, 1e-3 if part == 1 else 6e-4, "i")
            value = net.add("bn", [value], wide, 5e-12 * wide, "i", statistics_bytes=2048)
            if part < 2:
                value = net.add("relu", [value], wide, 4e-12 * wide, "o", inplace=True)
        if net.tensors[shortcut].size_bytes == size and net.tensors[shortcut].producer >= 0:
            value = net.add("plus", [value, shortcut], size, 6e-12 * size, "", inplace=True)
        value = net.add("relu", [value], size, 4e-12 * size, "o", inplace=True)
    net.add("loss", [value], MB, 1e-4, "o")
    return net.graph("residual%d" % blocks)


def attention(steps: int) -> Graph:
    """Steps of a recurrent network that look at all of a text, one after the other.

    Each makes two wide values from a narrow one: a sum that no gradient reads for itself, and its
    tanh. The one variant of a step is a gradient of tanh that does without the sum.
    """
    net = _Net()
    state = net.add("embed", [net.tensor("data", 4096, -1, False)], 4096, 1e-5, "i")
    for _ in range(steps):
        query = net.add("fc", [state], 4096, 2e-5, "i")
        wide = net.add("plus", [query], MB, 1e-6, "")
        wide = net.add("tanh", [wide], MB, 1e-6, "io")
        state = net.add("fc", [wide], 4096, 1e-5, "i")
    graph = net.graph("attention%d" % steps)
    offers = []
    for number, op in enumerate(graph.ops):
        if op.kind == "backward_tanh":
            frugal = Implementation(op.inputs[:1] + op.inputs[2:], op.outputs, time_s=op.time_s)
            offers.append(Offer("output", op.forward_op, ((number, frugal),)))
    return offering(graph, offers)


def transformer(blocks: int) -> Graph:
    """Blocks of attention and two dense layers; most time lies in the products of matrices."""
    net = _Net()
    value = net.add("embed", [net.tensor("data", 4096, -1, False)], 4 * MB, 1e-5, "i")
    for _ in range(blocks):
        shortcut, value = value, net.add("norm", [value], 4 * MB, 4e-5, "i")
        query = net.add("dense", [value], 4 * MB, 3e-4, "i")
        scores = net.add("scores", [query, value], 8 * MB, 2e-4, "i")
        scores = net.add("softmax", [scores], 8 * MB, 8e-5, "o", inplace=True)
        value = net.add("dense", [scores], 4 * MB, 3e-4, "i")
        shortcut = value = net.add("plus", [value, shortcut], 4 * MB, 4e-5, "", inplace=True)
        value = net.add("norm", [value], 4 * MB, 4e-5, "i")
        value = net.add("dense", [value], 16 * MB, 1.2e-3, "i")
        value = net.add("gelu", [value], 16 * MB, 2e-4, "i")
        value = net.add("dense", [value], 4 * MB, 1.2e-3, "i")
        value = net.add("plus", [value, shortcut], 4 * MB, 4e-5, "", inplace=True)
    net.add("loss", [value], MB, 1e-4, "o")
    return net.graph("transformer%d" % blocks)
