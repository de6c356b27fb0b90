"""The calls that plan, and run no step of the module; :mod:`memonger.torch` lists all calls."""
from __future__ import annotations

import time
from dataclasses import replace
from typing import Any, Dict, List, Mapping, Optional, Sequence

from ..plan.max_batch import MaxBatch, largest, refused_share
from ..plan.plan import Budget, Plan
from ..report.progress import Asked, callback_of, numbered, part_of, shows_progress
from ..solve.frontier import BUDGETS, sweep_budgets
from ..util.errors import InfeasibleBudget, InputError
from ..util.units import budget_share, parse_budget
from .module_step import Inputs, with_batch
from .planning import make_plan
from .profile import Profile, measure_ops
from .request import Request, requested, resolved
from .tracing import traced


@shows_progress
def plan(module: Any, inputs: Inputs, budget: Budget = None, mode: str = "inductor",
         costs: Any = "auto", variants: str = "exact", time_limit: float = 10.0,
         max_clones: int = 0, optimizer: Any = None,
         optimizer_params: Optional[Mapping[str, Any]] = None, name: str = "",
         progress: Asked = None) -> Plan:
    """Plan the training step of a module; nothing runs.

    Parameters
    ----------
    module : torch.nn.Module or function
    inputs : tuple, dict or torch.Tensor
        Arguments of one call; tensors may be on "meta".
    budget : int, float or str, optional
        Bytes, ``"8GB"``, ``"50%"`` of the unplanned total, or ``"auto"``: what the GPU has free,
        less 5 %. Without one the plan takes the least memory.
    mode : str
        "inductor" or "eager": what runs the plan.
    costs : str or Profile
        Times of ops: "auto" (estimates for the device), "cpu", "reference" (10 TFLOP/s and
        600 GB/s), or what :func:`profile` gave.
    variants : {"exact", "none", "all"}
        "all" may run a language model's output layer and its cross-entropy in chunks of rows, as
        :func:`linear_cross_entropy` does, where that meets the budget in less time (without a
        budget: in fewer bytes); losses and gradients then differ in the last bits, and a note of
        the plan says so.
    time_limit : float
        Most work for the search, in counted seconds.
    max_clones : int
        How often one op may run again; 0: as often as the mode allows.
    optimizer, optimizer_params : optional
        Name and options, or a ``torch.optim.Optimizer``; its state then counts in the total.
    name : str
        What tables and pages call the network.
    progress : callable or True, optional
        As for :func:`memonger.plan`.

    Returns
    -------
    Plan

    Raises
    ------
    InfeasibleBudget
        If no plan fits; it carries the smallest total.
    InputError, UnitError
        If the input cannot be used.
    """
    request = requested(Request(
        budget=resolved(budget, module, inputs), mode=mode, time_limit=time_limit, name=name,
        variants=variants, max_clones=max_clones, progress=callback_of(progress)), costs,
        optimizer, optimizer_params)
    return traced(module, inputs, request).plan


def estimate(module: Any, inputs: Inputs, mode: str = "inductor") -> Plan:
    """Bytes of one unplanned training step: a plan that keeps everything.

    Parameters
    ----------
    module, inputs, mode
        As for :func:`plan`.

    Returns
    -------
    Plan
        ``total_bytes``, ``pool_bytes`` and ``fixed_bytes`` by category.
    """
    return traced(module, inputs, Request(mode=mode, unplanned=True)).plan


@shows_progress
def sweep(module: Any, inputs: Inputs, budgets: Sequence[Budget] = BUDGETS,
          mode: str = "inductor", costs: Any = "auto", time_limit: float = 10.0,
          progress: Asked = None) -> List[Plan]:
    """Plans for a list of budgets; those that no plan meets are left out.

    Parameters
    ----------
    module, inputs, mode, costs, time_limit, progress
        As for :func:`plan`.
    budgets : sequence of int, float or str

    Returns
    -------
    list of Plan
        From the largest budget to the smallest.
    """
    request = requested(Request(mode=mode, time_limit=time_limit / max(len(budgets), 1)), costs)
    unplanned = traced(module, inputs, replace(request, unplanned=True))
    shown = numbered(callback_of(progress), "budget", len(budgets))
    return sweep_budgets(budgets, unplanned.plan.total_bytes, lambda budget: make_plan(
        unplanned.captured, replace(request, budget=budget, progress=next(shown))))


@shows_progress
def max_batch(module: Any, inputs: Inputs, budget: Budget, mode: str = "inductor",
              costs: Any = "auto", variants: str = "exact", time_limit: float = 10.0,
              limit: int = 65536,
              progress: Asked = None) -> MaxBatch:
    """The largest batch that fits a budget, unplanned and planned, by predicted bytes.

    The first dimension of every input that equals the first input's first dimension is the batch.

    Parameters
    ----------
    module, inputs, mode, costs, variants, time_limit, progress
        As for :func:`plan`.
    budget : int or str
        Bytes or "8GB"; no share, as each batch has another total.
    limit : int
        The largest batch to try.

    Returns
    -------
    memonger.plan.max_batch.MaxBatch
    """
    if budget is None or budget_share(budget) is not None:
        raise InputError("max_batch needs a budget in bytes, such as 8GB, not %r" % (budget,))
    budget_bytes = parse_budget(budget, 0)
    request = requested(Request(budget=budget_bytes, mode=mode, variants=variants,
                                time_limit=time_limit), costs)
    started_s = time.perf_counter()
    planned: Dict[int, Plan] = {}
    reasons: Dict[int, str] = {}

    def unplanned_need(batch: int) -> float:
        asked = replace(request, unplanned=True, budget=None)
        return traced(module, with_batch(inputs, batch), asked).plan.total_bytes / budget_bytes

    def planned_need(batch: int) -> float:
        try:
            named = part_of(callback_of(progress), "batch %d" % batch, started_s)
            planned[batch] = traced(module, with_batch(inputs, batch),
                                    replace(request, progress=named)).plan
        except InfeasibleBudget as error:
            reasons[batch] = str(error)
            return refused_share(error, budget_bytes)
        return 0.0  # it fits; how much is left does not matter

    first = largest(unplanned_need, 1, limit)
    most = largest(planned_need, max(first, 1), limit)
    return MaxBatch(budget_bytes, first, most, planned.get(most), "" if most else
                    "with a batch of %d, %s" % min(reasons.items()))


def profile(module: Any, inputs: Inputs, mode: str = "inductor") -> Profile:
    """Measure the ops of a training step on its device.

    Parameters
    ----------
    module, inputs, mode
        As for :func:`plan`; the module must be on its device. Its parameters are not touched.

    Returns
    -------
    Profile
        For ``costs`` of the other calls.
    """
    found = Profile()
    measure_ops(traced(module, inputs, Request(mode=mode, unplanned=True)).captured.joint, found)
    return found
