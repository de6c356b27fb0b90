"""A request in the words of users as a solver takes it, with ids of ops and variants."""
from __future__ import annotations

from typing import Any, Dict, Mapping, Tuple

from ..graph.decisions import carried_over
from ..solve import Options
from ..solve.options import USUAL_TIME_LIMIT_S
from ..util.errors import InputError
from .network import Network
from .requests import PlanRequest, pins, share_of

#: Methods that use no variants.
WITHOUT_VARIANTS = ("sublinear", "chen", "ogc")


def offered(network: Network, request: PlanRequest) -> Network:
    """The network, named as asked and with the variants that method and request allow.

    An op that is to run again stays itself, and one that is to be kept is not fused with others.
    """
    if request.name:
        network = network.named(request.name)
    if request.method in WITHOUT_VARIANTS:
        return network
    network = network.offering(request.variants)
    graph = network.graph
    kept, again = map(frozenset, pinned(network, request))
    again = frozenset(op for op in again if graph.ops[op].recomputable)
    refused = [number for number in range(len(graph.variants)) if any(
        op in again or op in kept and not implementation.runs
        for op, implementation in graph.implementations_of(number))]
    return network.without_variants(refused) if refused else network


def pinned(network: Network, request: PlanRequest) -> Tuple[Tuple[int, ...], Tuple[int, ...]]:
    """Ids of the ops that are to be kept, and of those that are to run again.

    Raises InputError if an op is asked to do both.
    """
    graph = network.graph
    kept, again = pins(graph, request.keep, "keep"), pins(graph, request.recompute, "recompute")
    kept, again = (tuple(i for i in ops if i not in network.elsewhere) for ops in (kept, again))
    both = [graph.ops[i].name for i in kept if i in set(again)]
    if both:
        raise InputError("op %r is both to be kept and to be recomputed" % both[0])
    for index, op in enumerate(graph.ops):  # what the caller says goes before the network's marks
        if op.force_mirroring == "True" and op.recomputable and index not in kept:
            again += (index,)
        elif op.force_mirroring == "False" and not op.is_backward and index not in again:
            kept += (index,)
    return kept, again


def search_options(network: Network, request: PlanRequest,
                   outside_bytes: Mapping[str, int]) -> Options:
    """The request as a solver takes it: with ids of ops, and how the network runs plans."""
    graph = network.graph
    max_overhead = share_of(request.overhead)
    if request.budget is None and request.overhead is None and graph.time_s > 0:
        max_overhead = graph.forward_time_s / graph.time_s  # one extra forward pass
    kept, again = pinned(network, request)
    return Options(
        time_limit_s=request.time_limit, storage=network.storage, variants=request.variants,
        keep=kept, recompute=again, progress=request.progress,
        costs=network.costs, objective="memory" if request.budget is None else "time",
        max_overhead=max_overhead, fixed_bytes=outside_bytes,
        max_clones=request.max_clones, bound=request.prove, without=request.without,
        host_budget_bytes=request.host_budget_bytes,
        given=None if request.given is None else carried_over(
            request.given.graph, request.given.schedule, graph))


def record_of(network: Network, request: PlanRequest) -> Dict[str, Any]:
    """The request and the network's record, as a plan file holds them."""
    limits: Dict[str, Any] = {"max_clones": request.max_clones} if request.max_clones else {}
    if request.host_budget_bytes is not None:
        limits["host_budget_bytes"] = request.host_budget_bytes
    if request.time_limit != USUAL_TIME_LIMIT_S:
        limits["time_limit"] = request.time_limit
    return {"budget": request.budget, "method": request.method, "variants": request.variants,
            "overhead": request.overhead, "keep": tuple(request.keep),
            "recompute": tuple(request.recompute), **limits, **network.record}
