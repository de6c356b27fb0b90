"""From a schedule to a Plan: the last step of every solver."""
from __future__ import annotations

from typing import Dict, List, Optional, Sequence, Tuple

from ..graph.cache import Cache
from ..graph.schedule import Schedule, expand
from ..graph.types import Graph
from ..memory.host import host_bytes
from ..memory.storage import plan_storage, pool_bytes
from ..memory.workspace import objects_bytes, workspace_bytes
from ..plans.categories import category_names
from ..plans.footprint import Footprint, Footprints
from ..plans.parts import Outcome, Status, Terms
from ..plans.plan import Plan
from ..util.errors import InfeasibleBudget
from ..util.gc_pause import paused
from ..util.units import format_distinct
from .options import Options

#: Categories of ``Plan.fixed_bytes`` that depend on the schedule.
BY_SCHEDULE = ("workspace", "objects")
#: Bytes of the pool that keeps everything, by storage model.
_UNPLANNED_BYTES: Cache[int] = Cache()


@paused()
def build_plan(graph: Graph, schedule: Schedule, method: str, options: Options,
               budget_bytes: Optional[int], status: Status = Status.FEASIBLE,
               notes: Tuple[str, ...] = ()) -> Plan:
    """A plan with the pool of ``schedule`` under ``options.storage``.

    Parameters
    ----------
    graph : Graph
    schedule : Schedule
    method : str
        Name of the solver, for the record.
    options : Options
    budget_bytes : int or None
        Budget for the pool; the plan names the budget on the total.
    status : Status
    notes : tuple of str

    Returns
    -------
    Plan
    """
    fixed = fixed_bytes(graph, options)
    unplanned_fixed = dict(fixed)
    # What is allotted to the pool was counted beside these of the unplanned step.
    total = None if budget_bytes is None else budget_bytes + sum(fixed.values())
    if "workspace" in fixed:
        fixed["workspace"] = workspace_bytes(graph, schedule)
    if "objects" in fixed:
        fixed["objects"] = objects_bytes(graph, schedule)
    base = "live" if options.storage == "live" else "stock"
    return Plan(
        Terms(total, costs=options.costs, storage=options.storage), graph, schedule,
        Footprints(Footprint(pool_bytes(graph, schedule, options.storage), fixed),
                   Footprint(unplanned_pool_bytes(graph, base), unplanned_fixed)),
        Outcome(status, method, notes=notes))


def unplanned(graph: Graph) -> Schedule:
    """The schedule that keeps everything."""
    return expand(graph, {})


def unplanned_pool_bytes(graph: Graph, storage: str) -> int:
    """The pool of the schedule that keeps everything."""
    return _UNPLANNED_BYTES.of(
        graph, storage, lambda: pool_bytes(graph, unplanned(graph), storage))


def as_asked(graph: Graph, options: Options) -> Schedule:
    """The schedule that keeps everything but what ``options.recompute`` names."""
    asked = options.recompute
    return expand(graph, {op: {} for op in asked if graph.ops[op].recomputable})


def fixed_bytes(graph: Graph, options: Options) -> Dict[str, int]:
    """Bytes outside the pool by category, with workspace and objects of the unplanned step."""
    by_schedule = {"workspace": workspace_bytes(graph), "objects": objects_bytes(graph)}
    return {**options.fixed_bytes, **{name: size for name, size in by_schedule.items() if size}}


def total_bytes(options: Options, size_bytes: int) -> int:
    """Bytes of a training step whose pool, workspace and objects take ``size_bytes``."""
    fixed = options.fixed_bytes.items()
    return size_bytes + sum(size for name, size in fixed if name not in BY_SCHEDULE)


def refusal(best: Plan, notes: Sequence[str] = ()) -> InfeasibleBudget:
    """The error for a budget that the smallest plan found, ``best``, does not meet.

    ``notes``: sentences on the search that found it.
    """
    total = best.budget_bytes or 0
    pinned = alive_at_peak(best.graph, best.schedule)
    minimum = best.total_bytes
    bound = best.minimum_total_bytes or 0
    size = best.graph.format_size

    def distinct(a: int, b: int) -> Sequence[str]:
        return (size(a), size(b)) if best.graph.own_units else format_distinct(a, b)

    named = ", ".join("%s (%s)" % (name, size(part)) for name, part in pinned[:3])
    asked, least = distinct(total, minimum)
    proof = ""
    if bound:
        proof = ", and none takes noticeably less" if size(bound) == size(minimum) \
            else ", and none takes less than %s" % distinct(total, bound)[1]
    workspace = best.fixed_bytes.get("workspace", 0)
    late = " in the time limit" if best.status is Status.TIME_LIMIT and bound <= total else ""
    return InfeasibleBudget(
        "no plan %sfits %s%s; the smallest total found is %s%s%s. At its worst step these are "
        "alive: %s%s. Ask for at least that much%s%s"
        % ("was found that " if late else "", asked, late, least,
           _no_choice(best), proof, named or "nothing",
           "; the operators' workspace takes %s beside" % size(workspace)
           if workspace else "",
           ", or give the search more time" if late else "",
           "".join(". %s" % note for note in notes)),
        budget_bytes=total, minimum_bytes=minimum, pinned=pinned, best_plan=best,
        bound_bytes=bound)


def host_refusal(plan: Plan, budget_bytes: int) -> InfeasibleBudget:
    """The error for a plan whose values on the host do not fit there."""
    taken = host_bytes(plan.graph, plan.schedule)
    return InfeasibleBudget(
        "no plan was found whose values on the host fit %s: the best takes %s there. Ask for at "
        "least that much of the host, or for more memory of the device"
        % tuple(format_distinct(budget_bytes, taken)), budget_bytes, taken, best_plan=plan)


def _no_choice(best: Plan) -> str:
    """What of a total is the same in every plan, with the two largest categories."""
    size, words = best.graph.format_size, category_names(best.graph)
    same = {name: part for name, part in best.fixed_bytes.items()
            if part and name not in (*BY_SCHEDULE, "layout_copies")}
    if not same:
        return ""
    largest = sorted(same.items(), key=lambda item: (-item[1], item[0]))[:2]
    return ", of which %s are the same in every plan (%s)" % (
        size(sum(same.values())),
        ", ".join("%s %s" % (words.get(name, name), size(part)) for name, part in largest))


def alive_at_peak(graph: Graph, schedule: Schedule) -> List[Tuple[str, int]]:
    """Names and bytes of what is alive at the worst step, largest first."""
    storage = plan_storage(graph, schedule, "live")
    names = {}
    for value, block in zip(storage.program.values, storage.blocks.block_of):
        if block >= 0 and value.step <= storage.step_of_peak:
            names[block] = graph.tensors[value.tensor].name
    worst = storage.step_of_peak
    alive = [(names[number], block.bytes) for number, block in enumerate(storage.blocks.blocks)
             if block.start <= worst <= block.end and number in names and block.bytes]
    return sorted(alive, key=lambda item: (-item[1], item[0]))
