"""Inductor under a plan: its configuration, its caches, and a budget that the code keeps."""
from __future__ import annotations

import copy
import functools
import hashlib
from dataclasses import replace
from pathlib import Path
from typing import Any, Callable, Dict, Mapping, Optional, Sequence

import torch.fx as fx

from ...plans.plan import Plan
from ...util.errors import InfeasibleBudget
from ...util.units import budget_share, format_distinct
from ..capture.optimizer_moment import pool_at_optimizer
from ..pytorch import private, private_joint
from ..times import stored_profiles
from .compilation import Compilation
from .request import Request
from .trial import trial_bytes, written_positions

#: Where a step's code takes more than the budget it is planned again, once for each of these: for
#: this share of what the measurement leaves.
MARGINS = (0.99, 0.93)


def compiled(compilation: Compilation, module: fx.GraphModule, inputs: Sequence[Any],
             partition: Callable[..., private_joint.Modules], original: Optional[Plan] = None,
             arguments: Optional[Sequence[Any]] = None) -> Callable[..., Any]:
    """Compiled code that keeps the budget: tried, and planned again where it does not.

    ``arguments``: of the call that the code is tried with; None where it is not tried.

    Raises InfeasibleBudget where it still takes more after that.
    """
    before = len(compilation.graphs)

    def code() -> Callable[..., Any]:
        del compilation.graphs[before:]
        return private.run_inductor(copy.deepcopy(module), inputs, patches(
            compilation.request, partition, compilation.tightened, original),
            tried=not compilation.request.unplanned)

    call, least, is_last = code(), 0, False
    for margin in (*MARGINS, None):
        if len(compilation.graphs) == before:  # nothing to train
            return call
        planned = compilation.graphs[-1]
        plan, budget = planned.plan, planned.plan.budget_bytes
        if budget is None or compilation.request.unplanned or arguments is None:
            return call
        compilation.tell("trying a step")
        used = trial_bytes(call, arguments, written_positions(planned.captured.joint))
        if used is None:
            return call
        used = max(used, pool_at_optimizer(plan.graph))
        planned.plan = replace(plan, planned=replace(
            plan.planned, pool_bytes=used, predicted_pool_bytes=plan.pool_bytes))
        left = budget - sum(plan.fixed_bytes.values())
        if used <= left:
            return call
        share = budget_share(plan.options.get("budget")) or 0.0
        if plan.method == "none" and share >= 1:  # of what unplanned code takes, not is predicted
            planned.plan = _of_what_it_takes(planned.plan, share)
            return call
        least = min(least or used, used)
        given = compilation.request.plan
        if margin is None or is_last or \
                given is not None and given.graph.fingerprint == plan.graph.fingerprint:
            break
        # What the code takes beyond the prediction is taken off the next budget.
        fingerprint = plan.graph.fingerprint
        compilation.tightened[fingerprint] = int(min(plan.pool_bytes, left) * left / used * margin)
        compilation.tell("planning again for less, as the code takes more than the plan says")
        try:
            call = code()
        except Exception as error:
            smallest_bytes = _smallest_pool_bytes(error)
            if not 0 < smallest_bytes < plan.pool_bytes:
                break
            compilation.tightened[fingerprint] = smallest_bytes
            call, is_last = code(), True
    assert budget is not None
    total_bytes = least + sum(plan.fixed_bytes.values())
    raise InfeasibleBudget(
        "the code that Inductor made takes %s where the plan says %s, above the budget of %s; %s, "
        "or ask for mode=\"eager\", whose peaks are exact" % (
            *format_distinct(total_bytes, plan.total_bytes, budget),
            "ask for at least the first" if compilation.request.plan is None else
            "plan again for %d bytes, or let memonger.torch.compile(module, budget=...) try its "
            "code" % (budget * budget // total_bytes)),
        budget, total_bytes, best_plan=planned.plan)


def _of_what_it_takes(plan: Plan, share: float) -> Plan:
    """The plan of unplanned code with a share of its measured total for its budget."""
    unplanned = replace(plan.unplanned, pool_bytes=plan.pool_bytes,
                        predicted_pool_bytes=plan.unplanned.pool_by_graph_bytes)
    return replace(plan, unplanned=unplanned, budget_bytes=int(share * unplanned.total_bytes))


def _smallest_pool_bytes(error: Exception) -> int:
    """What the smallest plan takes where none fits what a trial leaves; other errors are raised."""
    inner = private.inner_error(error)
    if not isinstance(inner, InfeasibleBudget):
        raise error
    return getattr(inner.best_plan, "pool_bytes", 0)


def patches(request: Request, partition: Callable[..., private_joint.Modules],
            tightened: Mapping[str, int], original: Optional[Plan] = None) -> Dict[str, Any]:
    """Inductor's configuration under a plan.

    ``reorder_for_peak_memory`` stays on: no planned network that was measured takes less without it
    (docs/torch.md has figures).
    """
    partitioner = private.Partitioner(partition, cache_key(request, tightened, original))
    return {"custom_partitioner_fn": partitioner,
            **({} if request.unplanned else private.LEAST_LIVE)}


@functools.lru_cache(maxsize=None)
def _sources() -> bytes:
    """What a plan depends on besides its request: the code that makes it."""
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parents[2].rglob("*.py")):
        digest.update(path.read_bytes())
    return digest.digest()


def cache_key(request: Request, tightened: Mapping[str, int],
              original: Optional[Plan] = None) -> str:
    """Names in Inductor's caches all that decides a plan: sources, budget, costs, decisions."""
    digest = hashlib.sha256(_sources())
    decisions = request.plan.schedule if request.plan else None
    digest.update(repr((request.budget, request.mode, request.time_limit, request.max_clones,
                        request.overhead, request.method, tuple(request.keep),
                        tuple(request.recompute), request.unplanned, request.kept, request.costs,
                        sorted(request.measured_s.items()),
                        sorted(request.temporary_bytes.items()), sorted(tightened.items()),
                        decisions, original and original.baseline_pool_bytes)).encode())
    if request.costs == "auto":
        digest.update(stored_profiles.fingerprint().encode())
    return digest.hexdigest()
