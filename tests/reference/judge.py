"""Whether a plan is right, memory and time included, by the slow reference.

It shares no code with the solvers, the simulator or the storage planner.
"""
from __future__ import annotations

import enum
import math
from typing import Dict, List, Optional, Sequence, Tuple, Union

from memonger.graph.schedule import Schedule
from memonger.graph.types import Graph, Op
from memonger.memory import arena
from memonger.memory.storage import plan_storage
from memonger.plans.plan import Plan
from memonger.plans.validate import Problem, chosen_ops, structure

from . import clock, liveness

#: Offsets in an arena are multiples of this number of bytes.
ALIGNMENT = 64


class Claim(str, enum.Enum):
    """What can be wrong with the figures of a plan that can run."""

    BUFFERS_OVERLAP = "two blocks are in the same buffer at the same time"
    BLOCKS_DIFFER = "the blocks of the storage plan are not those of the schedule"
    POOL = "the pool is not what the plan claims"
    TIME = "the time is not what the plan claims"
    BUDGET = "the total is above the budget"
    HOST = "what lies on the host is above its budget"


def round_up(size_bytes: int, unit: int) -> int:
    """The smallest multiple of a unit that is at least this number of bytes."""
    return -(-size_bytes // unit) * unit


def validate(plan: Union[Plan, Graph], schedule: Optional[Schedule] = None, *,
             storage: str = "best", pool_bytes: Optional[int] = None,
             time_s: Optional[float] = None, budget_bytes: Optional[int] = None,
             fixed_bytes: int = 0, host_budget_bytes: Optional[int] = None) -> List[Problem]:
    """Everything that is wrong with a plan; an empty list when it is right.

    Parameters
    ----------
    plan : Plan or Graph
        A whole plan, or a graph; then the rest is given by the other arguments.
    schedule : Schedule, optional
    storage : str
        Storage model of ``pool_bytes``.
    pool_bytes, time_s : optional
        What is claimed; compared when given.
    budget_bytes : int, optional
        Most bytes that the pool and ``fixed_bytes`` may take together.
    fixed_bytes : int
        Bytes outside the pool.
    host_budget_bytes : int, optional
        Most bytes that values on the host may take together.

    Returns
    -------
    list of Problem
        Those of the schedule's structure first; memory and time are judged only if there is none.
    """
    if isinstance(plan, Plan):
        return validate(plan.graph, plan.schedule, storage=plan.storage,
                        pool_bytes=plan.pool_bytes,
                        time_s=(1 + plan.overhead) * plan.graph.time_s,
                        budget_bytes=plan.budget_bytes,
                        fixed_bytes=sum(plan.fixed_bytes.values()),
                        host_budget_bytes=host_budget_bytes)
    if schedule is None:
        raise TypeError("a schedule is needed along with a graph")
    found = structure(plan, schedule)
    if found:
        return found
    ops = chosen_ops(plan, schedule.variants)
    running = [op for op in (ops[step.op] for step in schedule.steps) if op is not None]
    if host_budget_bytes is not None:
        taken = liveness.host_peak(plan, schedule)
        if taken > host_budget_bytes:
            return [Problem(Claim.HOST, "%d bytes, allowed are %d" % (taken, host_budget_bytes))]
    return _totals(plan, schedule, running, storage, pool_bytes, time_s, budget_bytes,
                   fixed_bytes)


def _totals(graph: Graph, schedule: Schedule, running: Sequence[Op],
            storage: str, pool_bytes: Optional[int], time_s: Optional[float],
            budget_bytes: Optional[int], fixed_bytes: int) -> List[Problem]:
    found = []
    needed_s = clock.time_s(graph, schedule) if graph.has_streams \
        else math.fsum(op.time_s for op in running)
    if time_s is not None and not math.isclose(needed_s, time_s, rel_tol=1e-9, abs_tol=1e-15):
        found.append(Problem(Claim.TIME, "it takes %.9g s, claimed are %.9g s" % (
            needed_s, time_s)))
    problems, needed_bytes = _pool(graph, schedule, storage)
    found += problems
    if pool_bytes is not None and pool_bytes != needed_bytes:
        found.append(Problem(Claim.POOL, "it takes %d bytes, claimed are %d" % (
            needed_bytes, pool_bytes)))
    if budget_bytes is not None and needed_bytes + fixed_bytes > budget_bytes:
        found.append(Problem(Claim.BUDGET, "%d bytes of pool and %d others, allowed are %d" % (
            needed_bytes, fixed_bytes, budget_bytes)))
    return found


def _pool(graph: Graph, schedule: Schedule, storage: str) -> Tuple[List[Problem], int]:
    """The pool by the naive way; for "best" and "arena" the assignment is taken and checked."""
    memory = liveness.examine(graph, schedule)
    if storage == "live":
        return [], memory.peak()
    if storage == "stock":
        return [], liveness.stock_pool(memory)
    planned = plan_storage(graph, schedule, storage)
    life_of = memory.life_of()
    blocks: Dict[int, int] = {}
    for value, block in zip(planned.program.values, planned.blocks.block_of):
        life = life_of.get((value.step, value.tensor), -1)
        if block >= 0 and blocks.setdefault(block, life) != life or (block < 0) != (life < 0):
            return [Problem(Claim.BLOCKS_DIFFER, graph.tensors[value.tensor].name,
                            value.step)], planned.pool_bytes
    # Where each life lies in its buffer.
    places = {life: (planned.offset_of[block], planned.offset_of[block] + round_up(
        memory.rounded(life), ALIGNMENT))
        for block, life in blocks.items()
        if planned.offset_of and not arena.outlives(planned.blocks.blocks[block], planned.blocks)}
    buffers: Dict[int, List[int]] = {}
    for block, life in blocks.items():
        buffers.setdefault(planned.buffer_of[block], []).append(life)
    found = []
    for lives in buffers.values():
        for k, one in enumerate(lives):
            for other in lives[:k]:
                a, b = memory.lives[one], memory.lives[other]
                together = a.start <= b.end and b.start <= a.end
                if one in places and other in places:
                    together = together and places[one][0] < places[other][1] \
                        and places[other][0] < places[one][1]
                if together or (a.device, a.pool) != (b.device, b.pool):
                    found.append(Problem(Claim.BUFFERS_OVERLAP, "%s and %s" % (
                        graph.tensors[a.values[0][1]].name, graph.tensors[b.values[0][1]].name),
                        max(a.start, b.start)))
    return found, sum(
        max(places[life][1] if life in places else memory.rounded(life) for life in lives)
        for lives in buffers.values())
