"""A network spread over devices (``group2ctx``), as the memory of one of them sees it."""
from __future__ import annotations

from dataclasses import replace
from typing import Iterable, List, Tuple

from ...graph.schedule import expand
from ...graph.types import Op
from ...memory.storage import plan_storage
from .record import Captured, fixed_bytes


def devices_of(captured: Captured) -> Tuple[str, ...]:
    """Names of the devices that a network is spread over; () where it is on one."""
    return tuple(sorted(set(captured.contexts)))


def away(captured: Captured, op: Op) -> bool:
    """Whether an op, of the graph or of a form of it, runs where no memory counts."""
    return bool(op.outputs) and op.outputs[0] in captured.elsewhere


def counted(captured: Captured, sizes: Iterable[int]) -> List[int]:
    """Bytes of each op of the graph, 0 where no memory counts."""
    return [0 if away(captured, op) else size for op, size in zip(captured.graph.ops, sizes)]


def on_device(captured: Captured, name: str, storage: str) -> Captured:
    """The same step; only what lies on the device ``name`` takes memory.

    Ops keep their ids and times. Those of other devices cannot be recomputed, and what they make
    is not in the pool. MXNet shares no buffer between devices, and no clone reads another device,
    so the pools of all devices add up to the pool of the network.

    Parameters
    ----------
    captured : Captured
        Of a network on several devices.
    name : str
        One of :func:`devices_of`.
    storage : str
        How executors assign memory; see :mod:`memonger.memory.storage`.

    Returns
    -------
    Captured
    """
    elsewhere = frozenset(t for t, context in enumerate(captured.contexts) if context != name)
    captured = replace(captured, elsewhere=elsewhere)
    graph = captured.graph
    tensors = tuple(replace(tensor, space="outside") if t in elsewhere else tensor
                    for t, tensor in enumerate(graph.tensors))
    gone = [away(captured, op) for op in graph.ops]
    ops = tuple(replace(op, not_recomputable_because=op.not_recomputable_because
                        or "it runs on another device") if absent else op
                for op, absent in zip(graph.ops, gone))
    graph = replace(graph, tensors=tensors, ops=ops)
    here = [tensor for t, tensor in enumerate(tensors) if t not in elsewhere]
    return replace(
        captured, graph=graph, fixed_bytes=fixed_bytes(captured.arguments, here),
        resources=tuple(() if absent else asked
                        for absent, asked in zip(gone, captured.resources)),
        pool_bytes=plan_storage(graph, expand(graph, {}), storage).pool_bytes)
