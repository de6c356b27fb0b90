"""The calls that plan, and run no step of the module; :mod:`memonger.torch` lists all calls."""
from __future__ import annotations

from dataclasses import replace
from typing import Any, List, Mapping, Optional, Sequence, Union

from ...planning.sweeping import BUDGETS, sweep_requests
from ...plans.plan import Budget, Plan
from ...report.progress import Asked, callback_of, shows_progress
from ..pytorch.module_step import Inputs, device_of
from ..step.planning import log_plan, make_plan
from ..step.request import Request, requested, resolved, with_host
from ..times import stored_profiles
from ..times.profile import Profile, measure_ops
from .tracing import traced


@shows_progress
def plan(module: Any, inputs: Inputs, budget: Budget = None, mode: str = "inductor",
         costs: Any = "auto", variants: str = "exact", time_limit: float = 10.0,
         max_clones: int = 0, optimizer: Any = None,
         optimizer_params: Optional[Mapping[str, Any]] = None, name: str = "",
         progress: Asked = None, method: str = "auto", keep: Sequence[str] = (),
         recompute: Sequence[str] = (), overhead: Union[None, str, float] = None,
         host: Union[None, str, int] = None, link: Union[None, str, float] = None,
         in_flight: int = 0) -> Plan:
    """Plan the training step of a module; nothing runs.

    Of a module that breaks its graph a copy runs forward once, which shares its parameters.

    Parameters
    ----------
    module : torch.nn.Module or function
    inputs : tuple, dict or torch.Tensor
        Arguments of one call; tensors may be on "meta".
    budget : int, float or str, optional
        Bytes, ``"8GB"``, ``"50%"`` of the unplanned total, ``"auto"``: what the GPU has free,
        less 5 %, or ``"knee"``: where less memory starts to cost more time, which plans for a few
        budgets tell; a note says where that is. Without one the plan takes the least memory.
    mode : str
        "inductor" or "eager": what runs the plan.
    costs : str or Profile
        Times of ops: "auto" (what :func:`profile` measured on the device, else estimates),
        "cpu", "reference" (10 TFLOP/s and 600 GB/s), or what :func:`profile` gave.
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
        A name or class of ``torch.optim`` and its options, or an optimizer of the module's
        parameters. What it holds then counts in the total, and its step is a moment of it.
    name : str
        What tables and pages call the network.
    progress, method, overhead : optional
        As for :func:`memonger.plan`.
    keep, recompute : sequence of str
        Ops of the traced graph (shell wildcards allowed) that must, or must not, stay in memory;
        ``plan.decisions`` has their names.
    host, link : optional
        Values may lie on the host between forward and backward, in so many bytes (``"16GB"``, or
        ``"auto"``: half of what is free there), and are copied at the speed ``link`` while kernels
        run (``"25GB/s"``; by default that of the module's GPU, measured, else this).
    in_flight : int
        How many calls wait for their backward pass at once, at most: microbatches of a pipeline's
        stage (under 1F1B the stages from this one to the last, under GPipe all microbatches), or
        calls that one loss is of. What each holds meanwhile counts in the total, and so do
        gradients of earlier calls. 1: these count from the first call on, as where gradients are
        accumulated, or dropped only when forward is over. 0: only those that there are.

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
        variants=variants, max_clones=max_clones, progress=callback_of(progress), method=method,
        keep=keep, recompute=recompute, overhead=overhead, in_flight=in_flight), costs,
        optimizer, optimizer_params)
    return traced(module, inputs, with_host(request, host, link, device_of(module, inputs))).plan


@shows_progress
def sweep(module: Any, inputs: Inputs, budgets: Sequence[Budget] = BUDGETS,
          mode: str = "inductor", costs: Any = "auto", variants: str = "exact",
          time_limit: float = 10.0, optimizer: Any = None,
          optimizer_params: Optional[Mapping[str, Any]] = None, name: str = "",
          progress: Asked = None, method: str = "auto", keep: Sequence[str] = (),
          recompute: Sequence[str] = ()) -> List[Plan]:
    """Plans for a list of budgets; those that no plan meets are left out.

    Parameters
    ----------
    module, inputs
        As for :func:`plan`, and so are all other parameters.
    budgets : sequence of int, float or str
    time_limit : float
        Most work for all budgets together, in counted seconds.

    Returns
    -------
    list of Plan
        From the largest budget to the smallest.
    """
    request = requested(Request(
        mode=mode, time_limit=time_limit, name=name, variants=variants, method=method, keep=keep,
        recompute=recompute, progress=callback_of(progress)), costs, optimizer, optimizer_params)
    unplanned = traced(module, inputs, replace(request, unplanned=True))

    def plan_of(asked: Request) -> Plan:
        # A budget decides which operators of a module are replaced.
        if variants == "all":
            return traced(module, inputs, asked).plan
        made = make_plan(unplanned.captured, asked)
        log_plan(made)
        return made
    return sweep_requests(request, budgets, unplanned.plan.total_bytes, plan_of)


def profile(module: Any, inputs: Inputs, mode: str = "inductor") -> Profile:
    """Measure the ops of a training step on its device.

    Parameters
    ----------
    module, inputs, mode
        As for :func:`plan`; the module must be on its device. Its parameters are not touched.

    Returns
    -------
    Profile
        For ``costs`` of the other calls. It is stored, too: ``costs="auto"`` takes what was
        measured on this device where that knows all operators of a step.
    """
    found = Profile()
    for joint in traced(module, inputs, Request(mode=mode, unplanned=True)).captured.joints:
        measure_ops(joint, found)
    stored_profiles.keep(found)
    return found
