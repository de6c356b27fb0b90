"""Plans of graphs, from files or from calls: no framework is needed."""
from __future__ import annotations

import os
from dataclasses import replace
from typing import Any, List, Sequence

from ..graph.imported import looks_like_graph, parse_graph, parse_imported_budget
from ..graph.types import Graph
from ..plans.plan import Budget, Plan
from ..report.facts import Facts
from ..solve.frontier import BUDGETS
from ..solve.imported import plan_graph
from ..util.errors import InputError
from ..util.json_files import parse_json
from .estimate import Estimate
from .requests import PlanRequest, pins, share_of
from .sweeping import sweep_requests


def is_symbol(text: str) -> bool:
    """Whether the text is what ``Symbol.save`` writes."""
    if not text.lstrip().startswith("{"):
        return False
    try:
        return {"nodes", "arg_nodes", "heads"} <= set(parse_json(text))
    except InputError:
        return False


def graph_in(text: str, path: str) -> Graph:
    """The graph in a file's text, in one of the forms of docs/graphs.md, named after the file.

    Raises InputError if it holds no graph.
    """
    try:
        graph = parse_graph(text)
    except InputError as error:
        if not looks_like_graph(text):
            raise InputError(
                "%s is no symbol JSON of MXNet, which sym.save(%r) writes, and no graph in a "
                "form of docs/graphs.md" % (path, "net-symbol.json")) from error
        raise InputError("%s: %s" % (path, error)) from error
    return graph if graph.name else replace(graph, name=name_of(path))


def name_of(path: str) -> str:
    """The name of a network by that of its file."""
    stem = os.path.splitext(os.path.basename(path))[0]
    return stem[:-len("-symbol")] if stem.endswith("-symbol") else stem


#: Defaults of options, where they are neither None nor empty.
_USUAL = {"grad_req": "write", "costs": "auto"}


def refuse_options(**options: Any) -> None:
    """Raise InputError where an option was given that only networks of MXNet have."""
    for option, value in options.items():
        if value if option not in _USUAL else value != _USUAL[option]:
            raise InputError("a graph has its own sizes and times, so it takes no %s"
                             % option.replace("_by_", " by "))


def unplanned_graph(graph: Graph) -> Plan:
    """The plan that keeps everything: what a step of the graph takes."""
    return plan_graph(graph, "100%", "chen")


def estimate_graph(graph: Graph) -> Estimate:
    """What an unplanned step of the graph takes, in its own units."""
    plan = unplanned_graph(graph)
    return Estimate({**plan.fixed_bytes, "pool": plan.baseline_pool_bytes},
                    plan.baseline_pool_bytes, Facts(plan).baseline_timeline.peak_live_bytes, graph,
                    "stock" if graph.shares_buffers else "live")


def sweep_graph(graph: Graph, request: PlanRequest,
                budgets: Sequence[Budget] = BUDGETS) -> List[Plan]:
    """Plans of a graph from the largest budget to the smallest that any plan meets.

    All of them together have the request's time limit.
    """
    whole = unplanned_graph(graph).baseline_total_bytes
    sizes = [parse_imported_budget(budget, whole, not graph.own_units) for budget in budgets
             if budget is not None]
    return sweep_requests(request, sizes, whole, lambda asked: plan_of_graph(graph, asked))


def plan_of_graph(graph: Graph, request: PlanRequest) -> Plan:
    """A plan for a graph."""
    if request.name:
        graph = replace(graph, name=request.name)
    return plan_graph(
        graph, request.budget, request.method, time_limit_s=request.time_limit,
        variants=request.variants, keep=pins(graph, request.keep, "keep"),
        progress=request.progress, recompute=pins(graph, request.recompute, "recompute"),
        max_clones=request.max_clones, max_overhead=share_of(request.overhead))
