"""Checks that the numbers of a plan follow from its graph and decisions.

A checksum tells that a file is as it was written, not that its numbers belong together. All of them
but the bounds, which are proofs, follow from the rest of the plan: they are worked out again and
compared. Added time needs no comparison; :attr:`Plan.overhead` is always worked out.
"""
from __future__ import annotations

from typing import Any, Dict, List, Sequence

from ..graph.schedule import expand
from ..graph.types import Graph
from ..memory.storage import StoragePlan, never_written_bytes, plan_storage, pool_bytes
from ..memory.workspace import objects_bytes, workspace_bytes
from ..util.errors import InvalidPlan
from ..util.type_checks import check_types
from .plan import Plan
from .validate import structure

#: Categories of ``Plan.fixed_bytes``, and of the tensors that they add up.
_CATEGORIES = {"parameters": "parameter", "aux": "aux", "inputs": "input",
               "head_gradients": "head_gradient"}


def confirm(plan: Any, graph: Graph, method: str, keep: Sequence[int] = ()) -> Plan:
    """The plan that a method returned, after the naive check; every plan passes it.

    Raises InvalidPlan if it is no plan of ``graph``, cannot run, runs one of ``keep`` again, or
    states a pool that it does not take.
    """
    try:
        if not isinstance(plan, Plan):
            raise TypeError("it answered with a %s in place of a Plan" % type(plan).__name__)
        plan = plan.changed(bound=float(plan.bound))  # linear programs answer in NumPy's numbers
        check_types([plan, plan.terms, plan.footprints, plan.outcome, plan.planned, plan.unplanned])
        check_types([plan.schedule, *plan.schedule.steps])
        if plan.graph is not graph and plan.graph != graph:
            raise ValueError("it is for another graph")
        problems = [str(problem) for problem in structure(graph, plan.schedule)] or [
            "%s runs again" % graph.ops[op].name
            for op in sorted(set(plan.schedule.recomputed()) & set(keep))] or _pools(
                plan, pool_bytes(graph, expand(graph, {}), _unplanned_model(plan)))
    except (TypeError, ValueError, IndexError, AttributeError) as error:
        problems = ["%s: %s" % (type(error).__name__, error)]
    if problems:
        raise InvalidPlan(
            "method %r did not give a plan that can be used: %s%s; use another method, and report "
            "this to whoever wrote it" % (method, problems[0], " (and %d more)" % (
                len(problems) - 1) if len(problems) > 1 else ""), problems)
    return plan


def contradictions(plan: Plan) -> List[str]:
    """Messages about numbers that do not follow from graph and decisions; [] for none.

    Raises ValueError if the schedule reads values that were not made.

    As long as two storage plans take: a hundredth of a second for most networks, 0.4 s for the
    largest ready plan (13 000 steps), one second for 30 000 ops. In Python the last would take
    hours; without the C++ library the pools are only compared with the bytes alive at the worst
    step, which they cannot be below.
    """
    unplanned = plan_storage(plan.graph, expand(plan.graph, {}), _unplanned_model(plan))
    problems = [str(problem) for problem in structure(plan.graph, plan.schedule)] \
        or _pools(plan, unplanned.pool_bytes)
    host_budget_bytes = plan.options.get("host_budget_bytes")
    if host_budget_bytes is not None and plan.host_bytes > host_budget_bytes:
        problems.append("values on the host take %d bytes, and were to take %d at most"
                        % (plan.host_bytes, host_budget_bytes))
    follows = _fixed_bytes(plan, unplanned)
    unwritten = [item for item in plan.baseline_fixed_bytes.items() if item[0] == "never_written"]
    return problems + [_differs(name, stated, follows[name])
                       for name, stated in sorted({*plan.fixed_bytes.items(), *unwritten})
                       if stated != follows.get(name, stated)]


def _pools(plan: Plan, unplanned_bytes: int) -> List[str]:
    """Messages about pools that do not follow from graph and schedule; [] for none."""
    planned_bytes = pool_bytes(plan.graph, plan.schedule, plan.storage)
    return [_differs(what, stated.pool_by_graph_bytes, needed_bytes)
            for what, stated, needed_bytes in (("pool", plan.planned, planned_bytes),
                                               ("unplanned pool", plan.unplanned, unplanned_bytes))
            if stated.pool_by_graph_bytes != needed_bytes]


def _unplanned_model(plan: Plan) -> str:
    return "live" if plan.storage == "live" else "stock"


def _differs(what: str, stated_bytes: int, needed_bytes: int) -> str:
    return "%s: %d bytes stated, %d found" % (what.replace("_", " "), stated_bytes, needed_bytes)


def _fixed_bytes(plan: Plan, unplanned: StoragePlan) -> Dict[str, int]:
    """What of ``Plan.fixed_bytes`` follows from the graph, by category."""
    graph, asked = plan.graph, plan.options
    outside = [t for t in graph.tensors if t.producer < 0]
    result = {name: sum(t.size_bytes for t in outside if t.category == category)
              for name, category in _CATEGORIES.items()}
    if graph.pools == "cached_op":
        del result["head_gradients"]  # CachedOp's callers bring them where an executor makes them
    result["workspace"] = workspace_bytes(graph, plan.schedule)
    result["objects"] = objects_bytes(graph, plan.schedule)
    if "never_written" in {**plan.fixed_bytes, **plan.baseline_fixed_bytes}:
        result["never_written"] = -never_written_bytes(graph, unplanned)
    if "grad_req" not in asked:
        return result
    requests = asked["grad_req"]
    trained = [t for t in outside if t.category in ("parameter", "input") and (
        requests if isinstance(requests, str) else requests.get(t.name, "null")) != "null"]
    result["gradients"] = sum(t.size_bytes for t in trained)
    return result
