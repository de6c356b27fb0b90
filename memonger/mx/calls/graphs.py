"""Planning graphs, from a file or at hand; nothing of MXNet is needed."""
from __future__ import annotations

import os
from dataclasses import replace
from typing import Any, List, Mapping

from ...graph.imported import looks_like_graph, parse_graph
from ...graph.types import Graph
from ...plan.plan import Plan
from ...report.progress import numbered
from ...solve.frontier import BUDGETS, sweep_budgets
from ...solve.imported import plan_graph
from ...util.errors import InputError
from .inputs import pins, share_of
from .plan_files import with_facts
from .requests import PlanRequest


def graph_in(text: str, path: str) -> Graph:
    """The graph in a file's text, in one of the forms of docs/graphs.md, named after the file.

    Raises InputError if it holds no graph.
    """
    try:
        graph = parse_graph(text, older=with_facts)
    except InputError as error:
        if not looks_like_graph(text):
            raise InputError(
                "%s is no symbol JSON of MXNet, which sym.save(%r) writes, and no graph in a "
                "form of docs/graphs.md" % (path, "net-symbol.json")) from error
        raise InputError("%s: %s" % (path, error)) from error
    return graph if graph.name else replace(graph, name=name_of(path))


def name_of(path: str) -> str:
    """What a network is called after the name of its file."""
    stem = os.path.splitext(os.path.basename(path))[0]
    return stem[:-len("-symbol")] if stem.endswith("-symbol") else stem


def unplanned_graph(graph: Graph) -> Plan:
    """The plan that keeps everything: what a step of the graph takes."""
    return plan_graph(graph, "100%", "chen")


def sweep_graph(graph: Graph, request: PlanRequest) -> List[Plan]:
    """Plans of a graph from the largest budget to the smallest that any plan meets.

    All of them together have the request's time limit.
    """
    request = replace(request, time_limit=request.time_limit / len(BUDGETS))
    shown = numbered(request.progress, "budget", len(BUDGETS))
    return sweep_budgets(
        BUDGETS, unplanned_graph(graph).baseline_total_bytes,
        lambda budget: plan_of_graph(
            graph, replace(request, budget=budget, progress=next(shown)), {}))


def plan_of_graph(graph: Graph, request: PlanRequest, others: Mapping[str, Any]) -> Plan:
    """A plan for a graph.

    ``others``: options of :func:`memonger.plan` that only networks of MXNet have, as given.
    Raises InputError if one of them was given.
    """
    for option, value in others.items():
        if value:
            raise InputError("a graph has its own sizes and times, so it takes no %s" % option)
    if request.name:
        graph = replace(graph, name=request.name)
    return plan_graph(
        graph, request.budget, request.method, time_limit_s=request.time_limit,
        variants=request.variants, keep=pins(graph, request.keep, "keep"),
        progress=request.progress, recompute=pins(graph, request.recompute, "recompute"),
        max_clones=request.max_clones, max_overhead=share_of(request.overhead))
