"""The largest batch whose step fits a budget."""
from __future__ import annotations

import contextlib
import time
from dataclasses import replace
from typing import Any

from ...planning.max_batch import largest_batches, with_plan
from ...plans.max_batch import MaxBatch
from ...plans.plan import Budget, Plan
from ...report.progress import Asked, callback_of, part_of, shows_progress
from ...util.errors import InfeasibleBudget
from ..pytorch.module_step import Inputs, batch_of, prime_batch, with_batch
from ..step.network import UNCOUNTED
from ..step.request import Request, requested
from .tracing import read_once, traced

#: The least batch that a step is read with to know the sizes of others.
_LEAST_READ = 11
#: A note where :data:`..step.network.UNCOUNTED` is one of the plan.
_MAY_BE_LESS = (
    "what operators allocate while they run, as convolutions do on a CPU, is not known at this "
    "size and not counted: a compiled module, which measures it, may refuse the largest of these "
    "batches")


@shows_progress
def max_batch(module: Any, inputs: Inputs, budget: Budget, mode: str = "inductor",
              costs: Any = "auto", variants: str = "exact", time_limit: float = 10.0,
              limit: int = 65536,
              progress: Asked = None) -> MaxBatch:
    """The largest batch that fits a budget, unplanned and planned, by predicted bytes.

    The first dimension of every input that equals the first input's first dimension is the batch.
    The smallest plan that is found, which may add half the time of a step, says what fits. The
    module is traced twice: once to know the sizes of any batch, and with the answer, for its plan.
    Where that finds other sizes than were foretold, it is traced with each batch that is tried.

    Parameters
    ----------
    module, inputs, mode, costs, variants, progress
        As for :func:`plan`.
    time_limit : float
        Most work for all candidates together: most of it for the smallest plan, which says what
        fits, the rest for the plan of the largest batch.
    budget : int or str
        Bytes or "8GB"; no share, as each batch has another total.
    limit : int
        The largest batch to try.

    Returns
    -------
    memonger.plans.max_batch.MaxBatch
    """
    request = requested(Request(budget=budget, mode=mode, variants=variants,
                                time_limit=time_limit, progress=callback_of(progress)), costs)
    started_s = time.perf_counter()

    def total_bytes(batch: int) -> int:
        asked = replace(request, budget=None, unplanned=True, progress=part_of(
            request.progress, "batch %d" % batch, started_s))
        return traced(module, with_batch(inputs, batch), asked).plan.total_bytes

    def plan_at(asked: Request, batch: int) -> Plan:
        return traced(module, with_batch(inputs, batch), asked).plan

    step, near = None, 0
    if variants != "all":  # a budget decides which operators of a module are replaced
        batch = prime_batch(module, inputs, max(batch_of(inputs), _LEAST_READ))
        step = read_once(module, with_batch(inputs, batch), replace(request, budget=None), batch)
    if step is not None:
        foretold = largest_batches(request, limit, step.total_bytes, step.plan)
        near = foretold.unplanned
        with contextlib.suppress(InfeasibleBudget):
            found = with_plan(request, replace(foretold, plans={}), plan_at)
            if found.plan is not None and step.is_confirmed_by(found.plan, found.planned) and (
                    # PyTorch traces a step of one sample otherwise than others.
                    near > 1 or near == (total_bytes(1) <= found.budget_bytes)):
                return _with_note(found)
    return _with_note(with_plan(
        request, largest_batches(request, limit, total_bytes, plan_at, near), plan_at))


def _with_note(found: MaxBatch) -> MaxBatch:
    is_less = found.plan is not None and UNCOUNTED in found.plan.notes
    return replace(found, notes=(_MAY_BE_LESS,)) if is_less else found
