"""Our search on MONeT's joint instances (``plugins/core/joint*``), every plan checked."""
from __future__ import annotations

import ctypes
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, List, Optional, Sequence

from .. import interrupts
from ..errors import SolverError
from .joint import JointInstance, JointPlan, check, flatten

_STOP = ctypes.CFUNCTYPE(ctypes.c_int32)
#: Stages to evaluate: more than any of the published instances gets in its time.
_WORK = 2 ** 62


@dataclass(frozen=True)
class JointFound:
    """The best plan of a search."""

    #: None when nothing that fits was found.
    plan: Optional[JointPlan]
    #: Objective, as :func:`memonger.bench.joint.check` adds it up; None without a plan.
    cost: Optional[int]
    #: KB above the budget, summed over the steps, of the best that was found.
    overflow_kb: int
    evaluations: int
    seconds: float


def search_joint(instance: JointInstance, budget_kb: int, time_limit_s: float = 40.0,
                 work: int = _WORK, seed: int = 1, threads: int = 2) -> JointFound:
    """The cheapest plan found whose memory fits.

    Parameters
    ----------
    instance : JointInstance
    budget_kb : int
    time_limit_s : float
        Wall-clock time.
    work : int
        Stages to evaluate in each thread. Where this ends the search and not the clock, the same
        input gives the same plan.
    seed : int
    threads : int
        Searches with random numbers of their own, side by side; the best counts.

    Returns
    -------
    JointFound

    Raises
    ------
    InvalidPlan
        If the plan breaks one of MONeT's constraints: a defect of the search.
    SolverError
        If the library refuses the instance, or its cost differs from the check's.
    """
    started_s = time.perf_counter()
    raised: List[BaseException] = []

    def search(number: int) -> JointFound:
        return _search(instance, budget_kb, time_limit_s, work, seed + number, raised)

    with interrupts.collected(raised), ThreadPoolExecutor(threads) as pool:
        found = list(pool.map(search, range(threads)))
    if raised:
        raise raised[0]
    best = min(found, key=lambda one: (one.overflow_kb, one.cost or 0))
    return replace(best, evaluations=sum(one.evaluations for one in found),
                   seconds=time.perf_counter() - started_s)


def _search(instance: JointInstance, budget_kb: int, time_limit_s: float, work: int, seed: int,
            raised: Sequence[BaseException]) -> JointFound:
    """One search in one thread; it ends when something is in ``raised``."""
    library = _load()
    integers = flatten(instance)
    started_s = time.perf_counter()
    handle = library.memonger_joint_create((ctypes.c_int64 * len(integers))(*integers),
                                           len(integers))
    if not handle:
        raise SolverError("the instance %r contradicts itself" % instance.name)
    try:
        results = (ctypes.c_int64 * 4)()
        code = library.memonger_joint_run(
            handle, (ctypes.c_int64 * 3)(budget_kb, seed, work),
            ctypes.c_double(time_limit_s), _STOP(lambda: 1 if raised else 0), results)
        if code < 0:
            raise SolverError("the planner ran out of memory")
        seconds = time.perf_counter() - started_s
        cost, overflow, evaluations, _ = results
        if overflow > 0:
            return JointFound(None, None, overflow, evaluations, seconds)
        plan = _plan(library, handle, instance)
    finally:
        library.memonger_joint_free(handle)
    objective = check(instance, plan, budget_kb)
    if objective != cost:
        raise SolverError("the search says %d and the check %d" % (cost, objective))
    return JointFound(plan, objective, 0, evaluations, seconds)


def _plan(library: Any, handle: Any, instance: JointInstance) -> JointPlan:
    nodes, stages = instance.num_forward, instance.num_stages
    held, runs = (ctypes.c_int8 * ((stages + 1) * nodes))(), (ctypes.c_int8 * (stages * nodes))()
    variants = (ctypes.c_int8 * stages)()
    algorithms = (ctypes.c_int8 * (stages * (nodes + 1)))()
    library.memonger_joint_result(handle, held, variants, runs, algorithms)

    def row(array: Any, t: int, width: int) -> List[int]:
        return list(array[t * width:(t + 1) * width])

    chosen = []
    for t in range(stages):
        by_node = dict(enumerate(row(algorithms, t, nodes + 1)))
        last = by_node.pop(nodes)
        if t > 0:
            by_node[nodes + t - 1] = last
        chosen.append({node: value for node, value in by_node.items() if value >= 0})
    return JointPlan(
        tuple(frozenset(v for v, on in enumerate(row(held, t, nodes)) if on)
              for t in range(stages + 1)),
        tuple(variants), tuple(frozenset(v for v, on in enumerate(row(runs, t, nodes)) if on)
                               for t in range(stages)),
        tuple(chosen), tuple(frozenset(v for v, on in enumerate(row(runs, t, nodes)) if on == 2)
                             for t in range(stages)))


def _load() -> Any:
    from ..native import core
    library = core()
    library.memonger_joint_create.restype = ctypes.c_void_p
    library.memonger_joint_create.argtypes = [ctypes.c_void_p, ctypes.c_int64]
    library.memonger_joint_free.argtypes = [ctypes.c_void_p]
    library.memonger_joint_free.restype = None
    library.memonger_joint_run.argtypes = [
        ctypes.c_void_p, ctypes.c_void_p, ctypes.c_double, _STOP, ctypes.c_void_p]
    library.memonger_joint_result.argtypes = [ctypes.c_void_p] * 5
    library.memonger_joint_result.restype = None
    return library
