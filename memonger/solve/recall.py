"""The smallest plans of refused budgets: what an error calls possible stays possible.

A search looks near its budget. The one behind a refusal may have met a smaller plan than the search
at the budget that the error then names; so the latest few are kept, for this process.
"""
from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Hashable, List, Optional

from ..graph import Graph
from ..plan import Plan
from ..schedule import Schedule
from .build import build_plan
from .frontier import pool_and_workspace
from .options import Options


@dataclass(frozen=True)
class _Refused:
    question: Hashable
    graph: Graph
    schedule: Schedule


#: Replaced as a whole, never iterated over: other threads may plan, too.
_latest: List[_Refused] = []
_MOST = 8


def _question(method: str, options: Options) -> Hashable:
    """What decides which plans may be answers, besides the graph."""
    return (method, options.variants, options.keep, options.recompute, options.storage,
            options.world, options.on_gpu, options.max_clones)


def remember(plan: Plan, method: str, options: Options) -> None:
    """Keep the smallest plan for a budget that is refused."""
    question = _question(method, options)
    others = [item for item in tuple(_latest)
              if item.question != question or item.graph != plan.graph]
    _latest[:] = others[1 - _MOST:] + [_Refused(question, plan.graph, plan.schedule)]


def smaller(plan: Plan, budget_bytes: int, method: str, options: Options) -> Plan:
    """The plan, or the one remembered for its graph and question if that takes less.

    The bounds are those of ``plan``: they hold for every plan at this budget.
    """
    known = _recall(plan.graph, _question(method, options))
    if known is None:
        return plan
    found = build_plan(plan.graph, known, method, options, budget_bytes, plan.status)
    if pool_and_workspace(found) >= pool_and_workspace(plan):
        return plan
    smallest = plan.minimum_total_bytes
    return replace(found, bound=min(plan.bound, found.overhead), notes=plan.notes,
                   minimum_total_bytes=smallest and min(smallest, found.total_bytes))


def _recall(graph: Graph, question: Hashable) -> Optional[Schedule]:
    for item in tuple(_latest):
        if item.question == question and item.graph == graph:
            return item.schedule
    return None
