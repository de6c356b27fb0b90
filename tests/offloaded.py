"""Graphs that offer to move values to the host and back: placeholders and variants by hand."""
from __future__ import annotations

import random
from dataclasses import replace
from typing import Dict, List, NamedTuple, Sequence, Tuple

from memonger.graph.offers import Offer, offering
from memonger.graph.types import Graph, Implementation, Inplace, Op, Tensor


class Move(NamedTuple):
    """A value and where its copies are issued: ops of the graph, before which placeholders lie."""

    tensor: int
    store: int
    wait: int
    fetch: int


def late_readers(graph: Graph, tensor: int) -> List[int]:
    """Backward ops that read a tensor."""
    return [op for op in graph.consumers[tensor] if graph.ops[op].is_backward]


def moves(graph: Graph, behind_s: float, ahead_s: Dict[int, float], least_bytes: int = 1,
          least_ops: int = 6) -> List[Move]:
    """A move for each forward value with a long gap to backward.

    The wait comes so many seconds of compute behind the store, the fetch so many before its first
    reader (by tensor).
    """
    first = next(i for i, op in enumerate(graph.ops) if op.is_backward)
    result = []
    for number, tensor in enumerate(graph.tensors):
        late = late_readers(graph, number)
        if tensor.producer < 0 or graph.ops[tensor.producer].is_backward or not tensor.pooled \
                or not late or tensor.size_bytes < least_bytes or tensor.storage_of >= 0 \
                or late[0] - tensor.producer < least_ops:
            continue
        store = 1 + max([tensor.producer] + [r for r in graph.consumers[number] if r < first])
        wait, passed_s = store, 0.0
        while wait < first and passed_s < behind_s:
            passed_s += graph.ops[wait].time_s
            wait += 1
        fetch, passed_s = late[0], 0.0
        while fetch > first and passed_s < ahead_s.get(number, 0.0):
            fetch -= 1
            passed_s += graph.ops[fetch].time_s
        result.append(Move(number, store, wait, fetch))
    return result


def offloading(graph: Graph, chosen: Sequence[Move], seconds_per_byte: float,
               gates: bool = False) -> Graph:
    """The graph with a variant for each move.

    A backward op that reads two moved values excludes their variants from one another, as both
    change it. With ``gates`` an op before the value's first late reader renames it, and the variant
    changes that one alone.
    """
    before: Dict[int, List[Tuple[int, str]]] = {}
    for number, move in enumerate(chosen):
        late = late_readers(graph, move.tensor)
        places = [(move.store, "store"), (move.wait, "wait"), (move.fetch, "fetch")]
        for place, kind in places + [(late[0], "gate")] * gates:
            before.setdefault(place, []).append((number, kind))
    ops: List[Op] = []
    new_id: Dict[int, int] = {-1: -1}
    slot: Dict[Tuple[int, str], int] = {}
    for index in range(len(graph.ops) + 1):
        for number, kind in sorted(before.get(index, ()),
                                   key=lambda pair: ("store wait fetch gate".index(pair[1]), pair)):
            slot[number, kind] = len(ops)
            move = chosen[number]
            ops.append(Op.of("%s%d:%s" % (kind, number, graph.tensors[move.tensor].name), kind,
                             (), (), kind in ("fetch", "gate"),
                             runs=False, not_recomputable_because="a copy",
                             stream="copy" if kind in ("store", "fetch") else "compute"))
        if index < len(graph.ops):
            new_id[index] = len(ops)
            ops.append(graph.ops[index])
    ops = [op if not op.runs and op.kind in ("store", "wait", "fetch", "gate") else replace(
        op, forward_op=new_id[op.forward_op],
        control_deps=tuple(new_id[other] for other in op.control_deps)) for op in ops]
    tensors = [replace(t, producer=new_id[t.producer]) for t in graph.tensors]
    variants = tuple(replace(v, op=new_id[v.op], choices=tuple(
        (new_id[op], number) for op, number in v.choices)) for v in graph.variants)
    offers = []
    for number, move in enumerate(chosen):
        value, name = move.tensor, graph.tensors[move.tensor].name
        copy_s = seconds_per_byte * graph.tensors[value].size_bytes
        host, back, gate = len(tensors), len(tensors) + 1, len(tensors) + 2
        like = tensors[value]
        tensors.append(replace(like, name="host:" + name, producer=slot[number, "store"],
                               space="host", category="activation"))
        tensors.append(replace(like, name="back:" + name, producer=slot[number, "fetch"],
                               category="activation"))
        parts = [(slot[number, "store"], Implementation((value,), (host,), time_s=copy_s)),
                 (slot[number, "wait"], Implementation((value, host), ())),
                 (slot[number, "fetch"], Implementation((host,), (back,), time_s=copy_s))]
        if gates:
            tensors.append(replace(like, name="gate:" + name, producer=slot[number, "gate"],
                                   category="activation"))
            at = slot[number, "gate"]
            alone = len(ops[like.producer].outputs) == 1
            ops[at] = ops[at].changed(inputs=(value,), outputs=(gate,), runs=True,
                                      inplace=(Inplace(0, 0, True),),
                                      hands_on=value if alone else -1)
            parts.append((at, Implementation((back,), (gate,), inplace=(Inplace(0, 0, True),))))
        for reader in late_readers(graph, value):
            op = ops[new_id[reader]]
            if gates:
                ops[new_id[reader]] = op.changed(inputs=tuple(
                    gate if t == value else t for t in op.inputs))
            else:
                own = op.implementations[0]
                parts.append((new_id[reader], replace(own, inputs=tuple(
                    back if t == value else t for t in own.inputs))))
        offers.append(Offer("offload", new_id[graph.tensors[value].producer], tuple(parts)))
    return offering(replace(
        graph, ops=tuple(ops), tensors=tuple(tensors), variants=variants,
        held_for_gradients=graph.held_for_gradients), offers)


def chain_of_two_streams() -> Graph:
    """Forward a, b, c, d and backward d', c', b', a', one second each; 8 bytes each, a's moved.

    a is read by b and a'. Its copies take a second each: the store runs beside c, the fetch is
    issued before b' and runs beside it.
    """
    tensors = [Tensor("x", 8, -1, "input", "outside")]
    ops = []
    for index, name in enumerate("abcd"):
        tensors.append(Tensor(name, 8, index))
        ops.append(Op.of(name, name, (index,), (index + 1,), time_s=1.0))
    gradient = 4
    for index in range(4, 8):
        forward = 7 - index
        tensors.append(Tensor("d" + "abcd"[forward], 8, index))
        ops.append(Op.of("abcd"[forward] + "'", "grad", (gradient, forward + 1),
                         (len(tensors) - 1,), True, forward, time_s=1.0))
        gradient = len(tensors) - 1
    graph = Graph(tuple(tensors), tuple(ops), (gradient,), name="two streams")
    graph = offloading(graph, [Move(1, store=2, wait=4, fetch=6)], 0.125)
    graph.check()
    return graph


def slower_copies(graph: Graph, factor: float) -> Graph:
    """The graph with copies that take so many times as long."""
    return replace(graph, ops=tuple(replace(op, implementations=tuple(
        replace(other, time_s=factor * other.time_s) for other in op.implementations))
        if op.stream == "copy" else op for op in graph.ops))


def with_streams(rng: random.Random, graph: Graph) -> Graph:
    """A graph of any kind with ops on any stream that takes them, and moves to the host."""
    ops = list(graph.ops)
    for index, op in enumerate(graph.ops):
        # What reads nothing in the pool may run again.
        if rng.random() < 0.4 or op.is_backward and rng.random() < 0.4:
            ops[index] = op.changed(stream=rng.choice(("copy", "network")), workspace_bytes=0)
            if rng.random() < 0.5 and not op.is_backward:
                ops[index] = replace(ops[index], not_recomputable_because="another stream")
            try:
                replace(graph, ops=tuple(ops)).check()
            except ValueError:
                ops[index] = op
    graph = replace(graph, ops=tuple(ops))
    if all(op.is_backward for op in graph.ops) or not any(op.is_backward for op in graph.ops):
        return graph
    passed_s = rng.choice((0.0, 2.0, 5.0))
    chosen = moves(graph, rng.choice((0.0, 2.0, 5.0)),
                   dict.fromkeys(range(len(graph.tensors)), passed_s), least_ops=2)
    # Else a guard could read what is fetched.
    guarded = {tensor for op in graph.ops if op.stream != "compute"
               for other in op.implementations for tensor in other.inputs + other.outputs}
    chosen = [move for move in chosen if move.tensor not in guarded]
    # Powers of two: sums of times are exact.
    graph = offloading(graph, rng.sample(chosen, min(len(chosen), 3)),
                       2.0 ** rng.choice((-10, -6, -4)), rng.random() < 0.5)
    graph.check()
    return graph
