"""Training graphs of realistic shape and size, made without MXNet.

A :class:`Net` is written forward; :meth:`Net.graph` appends the backward ops as MXNet orders
them: in reverse, one op of name ``<op>_backward`` for each forward op, a sum where a tensor has
several readers.
"""
from __future__ import annotations

from typing import Dict, List, Sequence, Tuple

from footprints import pair, plan_with

from memonger.graph.schedule import expand
from memonger.graph.types import Graph, Inplace, Op, Tensor
from memonger.plans.plan import Plan

FLOPS_PER_S, BYTES_PER_S = 10e12, 600e9

#: kind -> (which of its inputs, whether its output) the gradient reads.
READS = {"Convolution": (True, False), "FullyConnected": (True, False), "BatchNorm": (True, False),
         "Activation": (False, True), "Pooling": (True, True), "elemwise_mul": (True, False),
         "softmax": (False, True), "SoftmaxOutput": (False, True)}


class Net:
    """A forward network under construction."""

    def __init__(self, name: str):
        self.name = name
        self.tensors: List[Tensor] = []
        self.ops: List[Op] = []

    def outside(self, name: str, shape: Sequence[int], category: str) -> int:
        return self._tensor(name, shape, -1, category, False)

    def data(self, *shape: int) -> int:
        return self.outside("data", shape, "input")

    def op(self, name: str, kind: str, inputs: Sequence[int], shape: Sequence[int],
           weights: Sequence[Sequence[int]] = (), flops: float = 0.0, outputs: int = 1,
           because: str = "", stage: str = "") -> int:
        """Append an op and return its (first) output."""
        ids = list(inputs) + [self.outside("%s_%s" % (name, part), weight, "parameter")
                              for part, weight in zip(("weight", "bias"), weights)]
        made = [self._tensor(name if i == 0 else "%s_%d" % (name, i), shape, len(self.ops))
                for i in range(outputs)]
        moved = sum(self.tensors[t].size_bytes for t in ids + made)
        self.ops.append(Op.of(
            name, kind, tuple(ids), tuple(made),
            not_recomputable_because=because, mirror_stage=stage,
            inplace=(Inplace(0, 0),) if kind in ("Activation", "elemwise_add") else (),
            time_s=max(flops / FLOPS_PER_S, moved / BYTES_PER_S)))
        return made[0]

    def conv(self, name: str, x: int, channels: int, kernel: int = 3, stride: int = 1) -> int:
        n, c, h, w = self.tensors[x].shape
        shape = (n, channels, h // stride, w // stride)
        return self.op(name, "Convolution", [x], shape, [(channels, c, kernel, kernel)],
                       2.0 * n * channels * c * kernel ** 2 * shape[2] * shape[3])

    def same(self, name: str, kind: str, *inputs: int, **options) -> int:
        return self.op(name, kind, inputs, self.tensors[inputs[0]].shape, **options)

    def bn_relu_conv(self, prefix: str, i: int, x: int, channels: int, kernel: int,
                     stride: int = 1) -> int:
        x = self.same("%s_bn%d" % (prefix, i), "BatchNorm", x)
        x = self.same("%s_relu%d" % (prefix, i), "Activation", x)
        return self.conv("%s_conv%d" % (prefix, i), x, channels, kernel, stride)

    def dense(self, name: str, x: int, units: int) -> int:
        n = self.tensors[x].shape[0]
        width = 1
        for side in self.tensors[x].shape[1:]:
            width *= side
        return self.op(name, "FullyConnected", [x], (n, units), [(units, width), (units,)],
                       2.0 * n * units * width)

    def _tensor(self, name: str, shape: Sequence[int], producer: int,
                category: str = "activation", pooled: bool = True) -> int:
        size = 4
        for side in shape:
            size *= side
        self.tensors.append(Tensor(name, size, producer, category,
                                   "device" if pooled else "outside", tuple(shape)))
        return len(self.tensors) - 1

    # ------------------------------------------------------------------ backward
    def graph(self, loss: int) -> Graph:
        """The training graph: this network, then its gradients from ``loss`` back."""
        forward = list(self.ops)
        gradients: Dict[int, List[int]] = {loss: []}
        needs = self._needs_gradient()
        outputs = [loss]
        for index in reversed(range(len(forward))):
            op = forward[index]
            heads = [self._summed(t, gradients.get(t, [])) for t in op.outputs]
            known = [t for t in heads if t >= 0]
            if not known and op.outputs[0] != loss:
                continue
            reads_inputs, reads_output = READS.get(op.kind, (False, False))
            reads = known + [t for t in op.inputs if reads_inputs] \
                + [t for t in op.outputs if reads_output]
            reads += [t for t in op.inputs if self.tensors[t].category == "parameter"
                      and t not in reads]
            targets = [t for t in op.inputs if needs[t]]
            made = []
            for t in targets:
                tensor = self.tensors[t]
                external = tensor.producer < 0
                made.append(self._tensor(
                    "%s_grad" % tensor.name, tensor.shape, len(self.ops),
                    "gradient" if external else "activation", not external))
                if external:
                    outputs.append(made[-1])
                else:
                    gradients.setdefault(t, []).append(made[-1])
            self.ops.append(Op.of(op.name + "_backward", "_backward_" + op.kind, tuple(reads),
                                  tuple(made), is_backward=True, forward_op=index,
                                  inplace=(Inplace(0, 0),) if known and made else (),
                                  time_s=2 * op.time_s))
        graph = Graph(tuple(self.tensors), tuple(self.ops), tuple(outputs), name=self.name,
                      pools="executor")
        graph.check()
        return graph

    def _needs_gradient(self) -> List[bool]:
        needs = [t.category == "parameter" for t in self.tensors]
        for op in self.ops:
            for t in op.outputs:
                needs[t] = any(needs[i] for i in op.inputs)
        return needs

    def _summed(self, tensor: int, parts: List[int]) -> int:
        if len(parts) < 2:
            return parts[0] if parts else -1
        made = self._tensor("%s_grad_sum" % self.tensors[tensor].name,
                            self.tensors[tensor].shape, len(self.ops))
        self.ops.append(Op.of("_sum_of_%s_grad" % self.tensors[tensor].name, "_grad_add",
                              tuple(parts), (made,), is_backward=True,
                              inplace=(Inplace(0, 0),), adds_into_first=len(parts) == 2,
                              time_s=self.tensors[made].size_bytes * 3 / BYTES_PER_S))
        return made


def resnet(units: Sequence[int] = (3, 4, 6, 3), batch: int = 32, size: int = 224,
           width: int = 64) -> Graph:
    """Pre-activation bottleneck ResNet; (3, 4, 6, 3) is ResNet-50, (3, 8, 36, 3) ResNet-152."""
    net = Net("resnet-%d" % (3 * sum(units) + 2))
    x = net.conv("conv0", net.data(batch, 3, size, size), width, 7, 2)
    x = net.same("relu0", "Activation", net.same("bn0", "BatchNorm", x))
    n, c, h, w = net.tensors[x].shape
    x = net.op("pooling0", "Pooling", [x], (n, c, h // 2, w // 2))
    for stage, count in enumerate(units, 1):
        channels = width * 2 ** (stage + 1)
        for unit in range(1, count + 1):
            prefix, stride = "stage%d_unit%d" % (stage, unit), 2 if unit == 1 and stage > 1 else 1
            first = net.same(prefix + "_relu1", "Activation",
                             net.same(prefix + "_bn1", "BatchNorm", x))
            body = net.conv(prefix + "_conv1", first, channels // 4, 1)
            body = net.bn_relu_conv(prefix, 2, body, channels // 4, 3, stride)
            body = net.bn_relu_conv(prefix, 3, body, channels, 1)
            side = net.conv(prefix + "_sc", first, channels, 1, stride) if unit == 1 else x
            x = net.same(prefix + "_plus", "elemwise_add", body, side)
    x = net.same("relu1", "Activation", net.same("bn1", "BatchNorm", x))
    x = net.op("pool1", "Pooling", [x], net.tensors[x].shape[:2] + (1, 1))
    return _classifier(net, x, 1000)


def unet(depth: int = 4, batch: int = 4, size: int = 256, width: int = 64) -> Graph:
    """UNet with ``depth`` halvings."""
    net = Net("unet")
    x = net.data(batch, 3, size, size)
    skips: List[Tuple[int, int]] = []
    for level in range(depth + 1):
        for i in range(2):
            x = net.conv("down%d_conv%d" % (level, i), x, width << level)
            x = net.same("down%d_relu%d" % (level, i), "Activation", x)
        if level < depth:
            skips.append((level, x))
            n, c, h, w = net.tensors[x].shape
            x = net.op("pool%d" % level, "Pooling", [x], (n, c, h // 2, w // 2))
    for level, skip in reversed(skips):
        n, c, h, w = net.tensors[skip].shape
        x = net.op("up%d" % level, "UpSampling", [x],
                   (n, net.tensors[x].shape[1], h, w))
        x = net.op("concat%d" % level, "Concat", [x, skip],
                   (n, net.tensors[x].shape[1] + c, h, w))
        for i in range(2):
            x = net.conv("up%d_conv%d" % (level, i), x, width << level)
            x = net.same("up%d_relu%d" % (level, i), "Activation", x)
    x = net.conv("score", x, 2, 1)
    return net.graph(net.same("softmax", "SoftmaxOutput", x, because="it is a loss"))


def lstm(steps: int = 200, layers: int = 1, batch: int = 32, hidden: int = 512) -> Graph:
    """Unrolled LSTM over one sliced input, with a softmax over all steps."""
    net = Net("lstm-%d" % steps)
    data = net.data(steps, batch, hidden)
    slices = net.op("slice", "SliceChannel", [data], (batch, hidden), outputs=steps)
    outs: List[int] = []
    state: Dict[int, Tuple[int, int]] = {
        layer: (net.outside("l%d_h" % layer, (batch, hidden), "input"),
                net.outside("l%d_c" % layer, (batch, hidden), "input"))
        for layer in range(layers)}
    for step in range(steps):
        x = slices + step
        for layer in range(layers):
            prefix = "l%d_t%d_" % (layer, step)
            h, c = state[layer]
            i2h = net.dense(prefix + "i2h", x, 4 * hidden)
            h2h = net.dense(prefix + "h2h", h, 4 * hidden)
            gates = net.op(prefix + "slice", "SliceChannel",
                           [net.same(prefix + "gates", "elemwise_add", i2h, h2h)],
                           (batch, hidden), outputs=4)
            i, f, o, g = [net.same("%s%s" % (prefix, name), "Activation", gates + k)
                          for k, name in enumerate("ifog")]
            c = net.same(prefix + "c", "elemwise_add",
                         net.same(prefix + "fc", "elemwise_mul", f, c),
                         net.same(prefix + "ig", "elemwise_mul", i, g))
            h = net.same(prefix + "h", "elemwise_mul", o,
                         net.same(prefix + "tanh_c", "Activation", c))
            state[layer] = (h, c)
            x = h
        outs.append(x)
    x = net.op("concat", "Concat", outs, (steps * batch, hidden))
    return _classifier(net, x, 100)


def _classifier(net: Net, x: int, classes: int) -> Graph:
    x = net.dense("fc1", x, classes)
    label = net.outside("softmax_label", net.tensors[x].shape[:1], "input")
    return net.graph(net.same("softmax", "SoftmaxOutput", x, label, because="it is a loss"))


def tiny() -> Graph:
    """Five forward ops of whole MiB, for golden files."""
    net = Net("tiny")
    x = net.conv("conv0", net.data(1, 4, 256, 256), 16)
    x = net.same("relu0", "Activation", net.same("bn0", "BatchNorm", x))
    x = net.conv("conv1", x, 16)
    return net.graph(net.same("softmax", "SoftmaxOutput", x, because="it is a loss"))


CHEAP = ("BatchNorm", "Activation", "Concat", "elemwise_add", "elemwise_mul")


def cheap_ops(graph: Graph) -> List[int]:
    """The forward ops that a sensible plan runs again."""
    return [i for i, op in enumerate(graph.ops)
            if not op.is_backward and op.recomputable and op.kind in CHEAP]


def plan_of(graph: Graph, recompute=None, **fields) -> Plan:
    """A plan with true pool sizes, as ``memonger.plan`` would return it."""
    from memonger.memory.timeline import timeline
    chosen = {op: {} for op in cheap_ops(graph)} if recompute is None else recompute
    schedule = expand(graph, chosen)
    bytes_of = pair(timeline(graph, schedule, "best").pool_bytes,
                    timeline(graph, expand(graph, {}), "best").pool_bytes, fixed_bytes(graph))
    return plan_with(bytes_of, graph, schedule, costs="roofline: gpu").changed(**fields)


def fixed_bytes(graph: Graph) -> Dict[str, int]:
    sizes = {"parameters": 0, "gradients": 0, "aux": 0, "inputs": 0}
    names = {"parameter": "parameters", "gradient": "gradients", "aux": "aux", "input": "inputs"}
    for tensor in graph.tensors:
        if not tensor.pooled:
            sizes[names[tensor.category]] += tensor.size_bytes
    return sizes
