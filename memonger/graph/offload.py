"""Training steps whose values may wait on the host between forward and backward.

A value that may move is a variant of the op that makes it (:mod:`memonger.graph.clock` has the
rules):

* ``store``, on the stream "copy" behind its last reader of forward, makes the host's value;
* ``wait``, on compute, reads both: behind it the device's memory is free;
* ``fetch``, on "copy" again, makes the device's value;
* ``gate``, before its first reader of backward, hands on the value, or what was fetched. All
  readers of backward read the gate, so that no variant changes an op that another one changes.
  Ops that run again read it, too, and before that place where the fetch is issued by then.

The first three are placeholders, which only the variant gives work.
"""
from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

from .offers import Offer, offering
from .records import Implementation, Inplace, Op
from .types import Graph

#: Name of the variants.
OFFLOAD = "offload"
#: Kind of the op that begins a copy on the host.
STORE = "store"
#: Kind of the op behind which the device's memory is free.
WAIT = "wait"
#: Kind of the op that begins a copy on the device.
FETCH = "fetch"
#: Kind of the op that hands a value on to backward.
GATE = "gate"
#: All kinds, in their order where several stand before the same op.
KINDS = (STORE, WAIT, FETCH, GATE)
#: A value is worth a copy with at least this share of the bytes of all values of forward.
LEAST_SHARE = 3e-4
#: At most so many values of a step are offered, the largest: with more, what programs suggest has
#: copies that compute waits for, and searches end before they mend it.
MOST_MOVES = 400
#: At least so many ops lie between the maker of a value and its first reader of backward.
LEAST_OPS = 6
#: Between its issue and the wait for it a copy gets this multiple of its own time: copies queue.
ROOM = 2.0


class Move(NamedTuple):
    """A value, and the ops before which its copies are issued and waited for."""

    tensor: int
    store: int
    wait: int
    fetch: int
    gate: int
    #: Other values that stay in memory until the wait.
    held: Tuple[int, ...] = ()


@dataclass(frozen=True)
class Offloading:
    """A graph that offers to move values, and what each of its ops and tensors stands for."""

    graph: Graph
    #: For each op its number in the graph without moves; None for ops of moves.
    before: Tuple[Optional[int], ...]
    #: For each op of a move its kind, and the value that it moves.
    part_of: Dict[int, Tuple[str, int]]
    #: For each tensor that a move makes, the value that it holds.
    value_of: Dict[int, int]


def with_offers(graph: Graph, bytes_per_s: float,
                may_move: Callable[[int], bool] = lambda tensor: True) -> Offloading:
    """The graph with a variant for each value that is worth moving.

    ``bytes_per_s``: speed of a copy, one way. ``may_move``: whether a tensor can be moved.
    O(ops + tensors) time, beside the seconds that moves wait for.
    """
    return with_moves(graph, _moves(graph, bytes_per_s, may_move), bytes_per_s)


def worth_moving(graph: Graph, made: Sequence[int], movable: Sequence[int]) -> List[int]:
    """The values that are offered, of those that can be moved; all of a size or none.

    ``made``: all values of forward.
    """
    sizes = [graph.tensors[tensor].size_bytes for tensor in movable]
    more = sorted(sizes, reverse=True)[MOST_MOVES:MOST_MOVES + 1]
    least_bytes = LEAST_SHARE * sum(graph.tensors[tensor].size_bytes for tensor in made)
    return [tensor for tensor, size in zip(movable, sizes)
            if size >= max(1, least_bytes) and size > max(more, default=0)]


def _moves(graph: Graph, bytes_per_s: float, may_move: Callable[[int], bool]) -> List[Move]:
    """Where the copies of each value that is worth moving would be issued."""
    first = next((i for i, op in enumerate(graph.ops) if op.is_backward), len(graph.ops))
    made = [i for i, t in enumerate(graph.tensors) if 0 <= t.producer < first and t.pooled]
    views = {t.storage_of for t in graph.tensors}

    def waits(number: int) -> bool:
        late = [r for r in graph.consumers[number] if r >= first]
        return bool(late) and late[0] - graph.tensors[number].producer >= LEAST_OPS \
            and number not in graph.output_set and number not in views \
            and graph.tensors[number].storage_of < 0 and may_move(number)
    result = []
    for number in worth_moving(graph, made, list(filter(waits, made))):
        tensor = graph.tensors[number]
        late = [r for r in graph.consumers[number] if r >= first]
        room_s = ROOM * tensor.size_bytes / bytes_per_s
        store = 1 + max([tensor.producer] + [r for r in graph.consumers[number] if r < first])
        wait, passed_s = store, 0.0
        while wait < first and passed_s < room_s:
            passed_s += graph.ops[wait].time_s
            wait += 1
        fetch, passed_s = _first_need(graph, number, first), 0.0
        while fetch > first and passed_s < room_s:
            fetch -= 1
            passed_s += graph.ops[fetch].time_s
        result.append(Move(number, store, wait, fetch, late[0]))
    return result


def _first_need(graph: Graph, tensor: int, first: int) -> int:
    """The first op of backward that reads a value, or one that may be made again from it.

    Those are the values that forward makes up to the last reader of this one.
    """
    begin = graph.tensors[tensor].producer
    end = max([begin] + [reader for reader in graph.consumers[tensor] if reader < first])
    made = {t for op in graph.ops[begin:end + 1] for t in op.outputs}
    return min(reader for t in made for reader in graph.consumers[t] if reader >= first)


def with_moves(graph: Graph, moves: Sequence[Move], bytes_per_s: float) -> Offloading:
    """The graph with the ops of these moves in its order, and their variants.

    O(ops + tensors) time.
    """
    first = next((i for i, op in enumerate(graph.ops) if op.is_backward), len(graph.ops))
    at: Dict[int, List[Tuple[str, int]]] = {}
    for kind in KINDS:
        for number, move in enumerate(moves):
            at.setdefault(getattr(move, kind), []).append((kind, number))
    ops: List[Op] = []
    before: List[Optional[int]] = []
    new = {-1: -1}
    slot: Dict[Tuple[str, int], int] = {}
    for index in range(len(graph.ops) + 1):
        for kind, number in at.get(index, ()):
            slot[kind, number] = len(ops)
            name = "%s:%s" % (kind, graph.tensors[moves[number].tensor].name)
            late = index >= first and kind in (FETCH, GATE)
            ops.append(Op.of(name, kind, (), (), late, runs=False,
                             not_recomputable_because="a copy",
                             stream="copy" if kind in (STORE, FETCH) else "compute"))
            before.append(None)
        if index < len(graph.ops):
            new[index] = len(ops)
            ops.append(graph.ops[index])
            before.append(index)
    ops = [op if of is None else replace(
        op, forward_op=new[op.forward_op], control_deps=tuple(new[d] for d in op.control_deps))
        for op, of in zip(ops, before)]
    tensors = [replace(t, producer=new[t.producer]) for t in graph.tensors]
    offers, value_of = [], {}
    rename = (Inplace(0, 0, True),)
    for number, move in enumerate(moves):
        value, like = move.tensor, tensors[move.tensor]
        host, back, gate = range(len(tensors), len(tensors) + 3)
        tensors += [replace(like, name="host:" + like.name, producer=slot[STORE, number],
                            space="host"),
                    replace(like, name="back:" + like.name, producer=slot[FETCH, number]),
                    replace(like, name="gate:" + like.name, producer=slot[GATE, number])]
        value_of.update(dict.fromkeys((host, back, gate), value))
        copy_s = like.size_bytes / bytes_per_s
        handed = slot[GATE, number]
        # Decisions on an op with several results are not about one of them.
        alone = len(ops[like.producer].outputs) == 1
        ops[handed] = ops[handed].changed(inputs=(value,), outputs=(gate,), runs=True,
                                          inplace=rename, hands_on=value if alone else -1)
        for reader in (new[r] for r in graph.consumers[value] if graph.ops[r].is_backward):
            ops[reader] = replace(ops[reader], implementations=tuple(replace(
                own, inputs=tuple(gate if t == value else t for t in own.inputs))
                for own in ops[reader].implementations))
        offers.append(Offer(OFFLOAD, like.producer, (
            (slot[STORE, number], Implementation((value,), (host,), time_s=copy_s)),
            (slot[WAIT, number], Implementation((value, host, *move.held), ())),
            (slot[FETCH, number], Implementation((host,), (back,), time_s=copy_s)),
            (handed, Implementation((back,), (gate,), inplace=rename)))))
    variants = tuple(replace(v, op=new[v.op], choices=tuple(
        (new[op], choice) for op, choice in v.choices)) for v in graph.variants)
    laid = offering(replace(graph, ops=tuple(ops), tensors=tuple(tensors), variants=variants),
                    offers)
    laid.check()
    return Offloading(laid, tuple(before), {
        op: (kind, moves[number].tensor) for (kind, number), op in slot.items()}, value_of)
