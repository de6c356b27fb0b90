"""Planning graphs straight from a file."""
from __future__ import annotations

from dataclasses import replace
from typing import Any, Dict, Union

from ..graph.imported import parse_imported_budget, rounded_budget_note
from ..graph.types import Graph
from ..memory import arena
from ..memory.workspace import outside_pool_bytes
from ..plans.plan import Plan
from ..util.errors import InfeasibleBudget
from ..util.units import KNEE
from . import solve
from .frontier import KNEE_BUDGETS, find_knee
from .options import Options
from .result import unplanned_pool_bytes

#: Categories of a plan's bytes outside the pool, by those of tensors.
_OUTSIDE = {"parameter": "parameters", "gradient": "gradients", "aux": "aux", "input": "inputs",
            "head_gradient": "head_gradients"}


def plan_graph(graph: Graph, budget: Union[None, str, int, float] = None, method: str = "auto",
               **options: Any) -> Plan:
    """Plan a graph: MXNet's as its executors run it, others by the peak of what is alive.

    Parameters
    ----------
    graph : Graph
    budget : str, int or float, optional
        For the total of the step, which in a graph of another planner is its peak; as
        :func:`memonger.graph.imported.parse_imported_budget` takes it, or "knee"
        (:func:`memonger.solve.frontier.find_knee`). Without one the plan takes the least memory.
    method : str
        As for :func:`memonger.solve.solve`.
    **options
        Fields of :class:`memonger.solve.Options`.

    Returns
    -------
    Plan
    """
    base, fixed = "live", {}
    options["storage"] = "live"
    if not graph.own_units:
        fixed = options["fixed_bytes"] = outside_bytes(graph)
        options.setdefault("costs", "as the graph's file says")
    if graph.shares_buffers:
        base, options["storage"] = "stock", "arena" if arena.fits(graph) else "best"
    if budget is None:
        options.setdefault("objective", "memory")
        return solve(graph, None, method, Options(**options))
    around = sum(fixed.values()) + outside_pool_bytes(graph)
    whole = unplanned_pool_bytes(graph, base) + around
    asked, notes = Options(**options), []
    if budget == KNEE:
        each = replace(asked, time_limit_s=asked.time_limit_s / 2 / len(KNEE_BUDGETS))
        knee = find_knee(whole, lambda total_bytes: solve(
            graph, total_bytes - around, method, each))
        budget, notes = knee.plan.budget_bytes or 0, [knee.note]
        asked = replace(asked, time_limit_s=asked.time_limit_s / 2, given=knee.plan.schedule)
    pool_budget = parse_imported_budget(budget, whole, not graph.own_units) - around
    try:
        plan = solve(graph, pool_budget, method, asked)
        return plan.changed(notes=(*plan.notes, *notes))
    except InfeasibleBudget as error:
        note = rounded_budget_note(budget, whole) if graph.own_units else ""
        if note:
            error.args = ("%s. %s" % (error, note),)
        raise


def outside_bytes(graph: Graph) -> Dict[str, int]:
    """Bytes of the tensors outside the pool, by category."""
    sizes: Dict[str, int] = {}
    for tensor in graph.tensors:
        if tensor.space == "outside":
            name = _OUTSIDE.get(tensor.category, tensor.category)
            sizes[name] = sizes.get(name, 0) + tensor.size_bytes
    return sizes
