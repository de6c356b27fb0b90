"""Solvers by name, with one signature: ``solve(graph, budget_bytes, options) -> Plan``.

``budget_bytes`` is for the pool of internal tensors; what is outside (parameters, gradients,
workspace, ...) is in ``options.fixed_bytes``. A user's own solver is one :func:`register` away.

Method "auto" is a table (:data:`memonger.solve.auto.ROWS`): what each row is good for, who
describes it, and what it costs. A *search* is a native search of the length that the graph's size
asks for; ``Options.without`` leaves out rows by their names.

* unplanned: a plan to compare with; one evaluation.
* given plan: what the caller knows; one evaluation.
* first bound: easy budgets, and the ops that decide (Jain et al. 2020, Shah et al. 2021); seven
  linear programs at most, and four tenths of a search beside them.
* programs first: proofs in graphs of few ops, in a tenth of the time (Jain et al. 2020, Shah et al.
  2021); half of the time limit at most.
* live program: bytes of live values, which programs count as plans do (Jain et al. 2020, Shah et
  al. 2021); one 0/1 program.
* chain: networks of blocks at deep cuts (Beaumont et al. 2019, Zhao et al. 2023); 3 s for a dynamic
  program, and three searches on each core.
* smallest plan: a plan to go on from (Chen et al. 2016, Feng and Huang 2021); 4 s, a fifth of the
  time limit at most.
* native search: all there is without HiGHS (Kirkpatrick et al. 1983, Lourenco et al. 2003); one
  search.
* rounded program: graphs too large for 0/1 programs (Jain et al. 2020); one linear program, and a
  search beside it.
* turn 1: long native searches: most at deep cuts (Kirkpatrick et al. 1983, Glover 1989); 3 searches
  on each core, of which a 0/1 program may take one's place.
* turn 2: long native searches: most at deep cuts (Kirkpatrick et al. 1983, Glover 1989); 6 searches
  on each core, of which a 0/1 program may take one's place.
* turn 3: long native searches: most at deep cuts (Kirkpatrick et al. 1983, Glover 1989); 10
  searches on each core, of which a 0/1 program may take one's place.
* turn 4: long native searches: most at deep cuts (Kirkpatrick et al. 1983, Glover 1989); 15
  searches on each core, of which a 0/1 program may take one's place.
* squeeze: budgets that no search met; twelve 0/1 programs at most.
* programs: proofs in small graphs (Jain et al. 2020, Shah et al. 2021); twelve 0/1 programs at
  most.
* smallest plan of all: what a refusal calls possible; as the smallest plan, once.
* least memory: no refusal of what a call without a budget gives; a fifth of the time limit.
* fewer variants: networks whose variants lead a search astray; what all searches may take beyond
  the time limit, three tenths of it.
* rounds: what a longer time limit buys (Moscato 1989); all that the time limit is above ten
  seconds.
"""
from __future__ import annotations

import importlib
import time
from dataclasses import replace
from functools import lru_cache
from importlib import metadata
from typing import Any, Callable, Dict, Optional, Tuple, Union

from ..graph.types import Graph
from ..memory.host import keeps_host
from ..memory.workspace import outside_pool_bytes
from ..plans.consistency import confirm
from ..plans.plan import Plan, Status
from ..util.errors import InputError, NoPlanInTime
from ..util.gc_pause import paused
from .effort import Effort, failure_notes
from .options import Options

Solver = Callable[[Graph, Optional[int], Options], Plan]

#: Methods by name; of the built-in ones the module and its function, imported when asked for.
REGISTERED: Dict[str, Union[Solver, Tuple[str, str]]] = {
    "auto": ("auto", "solve"),
    "local": ("search.local", "solve"),
    "milp": ("milp", "solve"),
    "sublinear": ("baselines.sublinear", "solve"),
    "chen": ("baselines.chen", "solve"),
    "ogc": ("baselines.ogc", "solve"),
}

#: Entry points whose functions have the form of all methods.
_GROUP = "memonger.methods"

__all__ = ["Options", "REGISTERED", "Solver", "methods", "register", "solve"]


def register(name: str, function: Solver) -> None:
    """Make ``method=name`` call ``function(graph, budget_bytes, options)``.

    Parameters
    ----------
    name : str
        Replaces a method of the same name.
    function : callable
        Gets the graph, the budget of the pool (None: as little memory as ``options`` allow) and
        :class:`Options`; returns a :class:`memonger.Plan` (see
        :func:`memonger.solve.result.build_plan`).
    """
    if not name or not callable(function):
        raise InputError("a method needs a name and a function")
    REGISTERED[name] = function


def methods() -> Tuple[str, ...]:
    """Names of all methods: built in, registered, and those of installed packages.

    A package adds methods by entry points of the group ``memonger.methods``.
    """
    return tuple(sorted({*REGISTERED, *_installed()}))


@lru_cache(maxsize=None)
def _installed() -> Dict[str, Any]:
    """Entry points of installed packages by name; read once in a process."""
    points = metadata.entry_points()
    group = points.select(group=_GROUP) if hasattr(points, "select") else points.get(_GROUP, ())
    return {point.name: point for point in group}


def _find(name: str) -> Solver:
    entry = REGISTERED.get(name)
    if entry is None and name in _installed():
        return _installed()[name].load()
    if entry is None:
        raise InputError("unknown method %r; one of %s, or a registered name"
                         % (name, ", ".join(methods())))
    if isinstance(entry, tuple):
        module = importlib.import_module("%s.%s" % (__name__, entry[0]))
        return getattr(module, entry[1])
    return entry


@paused()
def solve(graph: Graph, budget_bytes: Optional[int], method: str = "auto",
          options: Optional[Options] = None) -> Plan:
    """Plan a graph.

    Parameters
    ----------
    graph : Graph
    budget_bytes : int or None
        Most bytes for the pool. None: the least memory, see ``options.objective``.
    method : str
        One of :func:`methods`.
    options : Options, optional

    Returns
    -------
    Plan
        Within the budget. ``status`` is ``not_needed`` when the unplanned step fits. Its totals are
        pool, workspace and ``options.fixed_bytes``: :func:`memonger.plan` counts what else a graph
        holds, such as parameters.

    Raises
    ------
    InfeasibleBudget
        If no plan was found that fits; it carries the smallest total found.
    InvalidPlan
        If what the method answers does not pass the naive check.
    NoPlanInTime
        If the search was interrupted before it found a plan that fits.
    SolverError
        If HiGHS refuses a program; one in which it fails costs proofs, and the plan notes it.
    InputError
        If an option or the method is unknown.
    """
    from .result import build_plan, host_refusal, refusal, unplanned
    options = options or Options()
    options.check()
    solver = _find(method)
    started_s = time.perf_counter()
    if budget_bytes is not None and not options.recompute:
        plan = build_plan(graph, unplanned(graph), method, options, budget_bytes,
                          Status.NOT_NEEDED)
        if _fits(plan) and keeps_host(graph, plan.schedule, options.host_budget_bytes):
            # A plan could still be faster than none, with variants.
            from .mip.bounds import free_bound
            if plan.baseline_pool_bytes > budget_bytes:  # MXNet alone would not fit
                plan = plan.changed(status=Status.OPTIMAL)
            return plan.changed(planning_s=time.perf_counter() - started_s).with_bound(
                free_bound(graph, options.variants))
    account = options.account or Effort(float("inf"))
    failed_before = len(account.failures)
    answer = confirm(solver(graph, budget_bytes, replace(options, account=account)), graph, method,
                     options.keep)
    if not keeps_host(graph, answer.schedule, options.host_budget_bytes):
        raise host_refusal(answer, options.host_budget_bytes or 0)
    notes = failure_notes(account.failures[failed_before:])
    plan = answer.changed(method=method, notes=answer.notes + notes)
    if budget_bytes is not None and not _fits(plan):
        if plan.status is Status.INTERRUPTED:
            raise NoPlanInTime("interrupted before a plan that fits was found; the smallest "
                               "total so far is %s" % graph.format_size(plan.total_bytes))
        raise refusal(plan, notes)
    if options.bound and budget_bytes is not None and plan.status is not Status.INTERRUPTED:
        plan = _with_bound(plan, budget_bytes, options)
    return plan.changed(planning_s=time.perf_counter() - started_s)


def _with_bound(plan: Plan, budget_bytes: int, options: Options) -> Plan:
    """The plan with its lower bound; where they meet, the plan is proven optimal."""
    graph = plan.graph
    if not graph.time_s > 0 or plan.bounded:
        return plan
    from .mip.bounds import overhead_bound
    from .mip.least_bytes import pool_limit_bytes
    # A fixed number of linear programs, not a time, so that the same input gives the same bound.
    rounds = 4 if len(graph.ops) <= 1000 else 2 if len(graph.ops) <= 4000 else 1
    # A plan whose variants need less workspace may have a larger pool.
    limit_bytes = pool_limit_bytes(graph, budget_bytes + outside_pool_bytes(graph),
                                   options.variants)
    effort = Effort(options.time_limit_s / 2)
    proven = overhead_bound(graph, limit_bytes, options.variants, options.keep, effort,
                            rounds=rounds)
    plan = plan.changed(notes=plan.notes + failure_notes(effort.failures))
    bound = min(plan.overhead, max(plan.bound, proven.extra_s / graph.time_s))
    if bound < plan.overhead - 1e-9:
        return plan.changed(bound=bound)
    return plan.changed(bound=plan.overhead, status=Status.OPTIMAL)


def _fits(plan: Plan) -> bool:
    return plan.budget_bytes is None or plan.total_bytes <= plan.budget_bytes
