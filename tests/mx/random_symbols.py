"""Random training networks: every kind of node that MXNet's graph passes treat differently."""
from __future__ import annotations

import random
from typing import Any, Dict, List, Tuple

import mxnet as mx

BATCH, CHANNELS, SIZE = 2, 4, 6


def random_symbol(seed: int, ops: int = 14,
                  chains: bool = False) -> Tuple[Any, Dict[str, Tuple[int, ...]]]:
    """A network with random branches and its input shapes; the same for the same seed.

    With ``chains`` it also has the sequences that variants replace, and more kinds of ops.
    """
    draw = random.Random(seed)
    with mx.name.NameManager():
        return _build(draw, ops, chains)


def _build(draw: random.Random, ops: int,
           chains: bool) -> Tuple[Any, Dict[str, Tuple[int, ...]]]:
    values: List[Any] = [mx.sym.var("data")]  # all of shape (batch, CHANNELS, SIZE, SIZE)
    shared = mx.sym.var("shared_weight")

    def pick() -> Any:
        return values[-1] if draw.random() < 0.6 else draw.choice(values)

    def convolution(x: Any) -> Any:
        return mx.sym.Convolution(x, kernel=(3, 3), pad=(1, 1), num_filter=CHANNELS,
                                  no_bias=draw.random() < 0.5)

    def shared_convolution(x: Any) -> Any:
        return mx.sym.Convolution(x, weight=shared, kernel=(1, 1), num_filter=CHANNELS,
                                  no_bias=True)

    def norm(x: Any) -> Any:
        return mx.sym.BatchNorm(x, fix_gamma=draw.random() < 0.5)

    def split(x: Any) -> Any:
        parts = mx.sym.SliceChannel(x, num_outputs=2, axis=1)
        return mx.sym.concat(parts[1], mx.sym.tanh(parts[0]), dim=1)

    def reshaped(x: Any) -> Any:
        flat = mx.sym.FullyConnected(mx.sym.Flatten(x), num_hidden=CHANNELS * SIZE * SIZE)
        return mx.sym.reshape(flat, shape=(-1, CHANNELS, SIZE, SIZE))

    def layer_norm(x: Any) -> Any:
        return mx.sym.LayerNorm(x, axis=-1)

    def other_dtype(x: Any) -> Any:
        other = draw.choice(["float64", "float16"])
        return mx.sym.Cast(mx.sym.exp(0.1 * mx.sym.Cast(x, dtype=other)), dtype="float32")

    def many_gradients(x: Any) -> Any:  # MXNet adds more than eight in another way
        return mx.sym.add_n(*[x] * 9)

    single = [
        convolution, convolution, norm, norm, shared_convolution, split, reshaped, layer_norm,
        other_dtype, many_gradients, mx.sym.relu, mx.sym.sigmoid,
        lambda x: x + mx.sym.zeros_like(x),
        lambda x: mx.sym.Activation(x, act_type=draw.choice(["relu", "tanh", "softrelu"])),
        lambda x: mx.sym.LeakyReLU(x, act_type="leaky"),
        lambda x: mx.sym.Pooling(x, kernel=(3, 3), pad=(1, 1), stride=(1, 1),
                                 pool_type=draw.choice(["max", "avg"])),
        lambda x: mx.sym.Dropout(x, p=0.3), lambda x: 0.5 * x + 0.1, mx.sym.BlockGrad,
        lambda x: mx.sym.transpose(x, axes=(0, 1, 3, 2)), lambda x: mx.sym.clip(x, -1, 1),
        lambda x: mx.sym.broadcast_mul(x, mx.sym.mean(x, axis=(2, 3), keepdims=True)),
    ]
    if chains:
        single += [
            lambda x: mx.sym.relu(norm(x)), lambda x: convolution(mx.sym.relu(norm(x))),
            lambda x: mx.sym.LeakyReLU(norm(x), act_type=draw.choice(["leaky", "elu"])),
            lambda x: mx.sym.LeakyReLU(x, act_type=draw.choice(["elu", "selu", "gelu", "prelu"])),
            lambda x: mx.sym.Activation(x, act_type="softsign"),
            lambda x: mx.sym.Pooling(x, kernel=(3, 1), pad=(1, 0), pool_type="sum"),
            lambda x: mx.sym.Dropout(x, p=0.5, axes=(0,)),
            lambda x: mx.sym.slice_axis(mx.sym.concat(x, x, mx.sym.tanh(x), dim=1), axis=1,
                                        begin=1, end=1 + CHANNELS)]
    double = [mx.sym.elemwise_add, mx.sym.elemwise_mul, mx.sym.elemwise_sub, mx.sym.maximum,
              lambda x, y: mx.sym.add_n(x, y, x)]
    for _ in range(ops):
        if len(values) > 1 and draw.random() < 0.3:
            values.append(draw.choice(double)(pick(), pick()))
        else:
            values.append(draw.choice(single)(pick()))
    heads = [mx.sym.SoftmaxOutput(mx.sym.FullyConnected(mx.sym.Flatten(values[-1]), num_hidden=3),
                                  name="softmax")]
    if draw.random() < 0.4:
        heads.append(mx.sym.MakeLoss(mx.sym.mean(mx.sym.square(pick())), name="loss"))
    if draw.random() < 0.4:
        heads.append(mx.sym.identity(pick(), name="open_head"))
    symbol = heads[0] if len(heads) == 1 else mx.sym.Group(heads)
    return symbol, {"data": (BATCH, CHANNELS, SIZE, SIZE)}


def random_recompute(graph: Any, seed: int) -> Dict[int, Dict[Tuple[int, int], int]]:
    """Random decisions: about half of the ops, a third of them with several clones."""
    draw = random.Random(seed)
    share = draw.choice([0.2, 0.5, 0.8, 1.0])
    chosen = [i for i, op in enumerate(graph.ops) if op.recomputable and draw.random() < share]
    decisions: Dict[int, Dict[Tuple[int, int], int]] = {op: {} for op in chosen}
    for op in chosen:
        if draw.random() < 0.67:
            continue
        for tensor in graph.ops[op].outputs:
            for reader in graph.consumers[tensor]:
                if graph.ops[reader].is_backward:
                    decisions[op][reader, 0] = draw.choice([0, 1, 2, 3])
                elif reader in decisions:
                    for clone in (1, 2, 3):
                        decisions[op][reader, clone] = draw.choice([0, 1, 2])
    return decisions
