"""The calls that users make; :mod:`memonger.torch` lists them."""
from __future__ import annotations

import functools
import weakref
from dataclasses import replace
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence

import torch

from ..plan.max_batch import MaxBatch, largest
from ..plan.plan import Budget, Plan, Progress
from ..report.progress import Asked, callback_of, numbered, part_of, shows_progress
from ..solve.frontier import BUDGETS, sweep_budgets
from ..util.argument_checks import whole_number
from ..util.errors import InfeasibleBudget, InputError, MemongerError
from ..util.units import budget_share, parse_budget
from . import private
from .costs import ROOFLINES
from .measure import Measurement, measure_step, training_step
from .module_step import (
    Inputs,
    arguments,
    bytes_before,
    check_module,
    device_of,
    on_device,
    parameters_of,
    with_batch,
)
from .optimizer import state_bytes
from .planning import Request, make_plan
from .profile import Profile, measure_ops
from .step import Backend, OnlyPlanning, PlannedGraph
from .verify import Verification, compared

#: Backend of each compiled module.
_BACKENDS: "weakref.WeakKeyDictionary[Any, Backend]" = weakref.WeakKeyDictionary()


@shows_progress
def plan(module: Any, inputs: Inputs, budget: Budget = None, mode: str = "inductor",
         costs: Any = "auto", time_limit: float = 10.0, max_clones: int = 0,
         optimizer: Any = None, optimizer_params: Optional[Mapping[str, Any]] = None,
         name: str = "", progress: Asked = None) -> Plan:
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
    request = _request(Request(
        budget=_resolved(budget, module, inputs), mode=mode, time_limit=time_limit, name=name,
        max_clones=max_clones, progress=callback_of(progress),
        optimizer_bytes=_optimizer(optimizer, optimizer_params)), costs)
    return _traced(module, inputs, request).plan


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
    return _traced(module, inputs, Request(mode=mode, unplanned=True)).plan


def compile(module: Any, budget: Budget = None, mode: Optional[str] = None,
            plan: Optional[Plan] = None, costs: Any = "auto", time_limit: float = 10.0,
            max_clones: int = 0, optimizer: Any = None,
            optimizer_params: Optional[Mapping[str, Any]] = None, dynamic: Optional[bool] = None,
            progress: Optional[Callable[[Progress], None]] = None) -> Any:
    """``torch.compile`` under a budget, or by a plan.

    Planning happens at the first call, for the inputs of that call, and again where PyTorch
    compiles again. Results, gradients and buffers are bit for bit those of the same mode without
    a plan on a CPU.

    Parameters
    ----------
    module : torch.nn.Module or function
    budget, costs, time_limit, max_clones, optimizer, optimizer_params, progress
        As for :func:`plan`. Neither budget nor plan: everything is kept.
    mode : str, optional
        "inductor" (the default) or "eager"; of a plan, the mode it was made for.
    plan : Plan, optional
        Of :func:`plan`, or loaded from its file; it must be of the graph that is compiled.
    dynamic : bool, optional
        As for ``torch.compile``.

    Returns
    -------
    torch.nn.Module or function

    Raises
    ------
    InputError
        If the arguments contradict each other. At the first call also what :func:`plan` raises,
        and PlanMismatch where the plan is for another graph.
    """
    check_module(module)
    if plan is not None and budget is not None:
        raise InputError("give a budget or a plan, not both")
    if plan is not None and "mode" not in plan.options:
        raise InputError("the plan is no plan of a PyTorch module; make one with "
                         "memonger.torch.plan")
    made_for = plan.options["mode"] if plan is not None else "inductor"
    if plan is not None and mode not in (None, made_for):
        raise InputError("the plan was made for mode %r, not %r" % (made_for, mode))
    request = Request(budget=_resolved(budget, module, ()), mode=mode or made_for,
                      time_limit=time_limit, max_clones=max_clones, progress=progress, plan=plan,
                      optimizer_bytes=_optimizer(optimizer, optimizer_params),
                      unplanned=budget is None and plan is None)
    backend = Backend(_request(request, costs))
    compiled = torch.compile(module, backend=backend, fullgraph=True, dynamic=dynamic)
    if isinstance(module, torch.nn.Module):
        compiled.forward = _clear_errors(compiled.forward)
    else:
        compiled = _clear_errors(compiled)
    _BACKENDS[compiled] = backend
    return compiled


def plans(compiled: Any) -> List[Plan]:
    """Plans of the graphs that a compiled module has so far, in the order of their compilation.

    Parameters
    ----------
    compiled : torch.nn.Module or function
        What :func:`compile` gave.

    Returns
    -------
    list of Plan
    """
    return [graph.plan for graph in _backend(compiled).graphs]


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
    measure_ops(_traced(module, inputs, Request(mode=mode, unplanned=True)).captured.joint, found)
    return found


def measure(compiled: Any, inputs: Inputs, steps: int = 5) -> Measurement:
    """Run training steps and tell what they allocated, by the allocator's events.

    Parameters
    ----------
    compiled : torch.nn.Module or function
        Planned or not.
    inputs
        As for :func:`plan`.
    steps : int
        Steps whose median time counts.

    Returns
    -------
    Measurement
    """
    args, named = arguments(inputs)
    parameters = parameters_of(compiled)
    step = training_step(lambda: compiled(*args, **named), parameters)
    return measure_step(step, parameters, device_of(compiled, inputs),
                        bytes_before(compiled, inputs), steps)


def verify(compiled: Any, module: torch.nn.Module, inputs: Inputs,
           steps: int = 2) -> Verification:
    """Train with the plan and without it, and compare every number.

    Losses, gradients and buffers of the same mode must agree bit for bit on a CPU; on a GPU
    within rounding. Parameters and buffers are afterwards what they were.

    Parameters
    ----------
    compiled : torch.nn.Module
        What :func:`compile` made of ``module``.
    module : torch.nn.Module
    inputs
        As for :func:`plan`.
    steps : int

    Returns
    -------
    Verification
        ``ok``, ``identical``, ``differences``; ``check()`` raises where they differ.
    """
    mode = _backend(compiled).request.mode
    return compared(compiled, module, lambda net: compile(net, mode=mode), inputs,
                    whole_number("steps", steps, 1))


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
    request = _request(Request(mode=mode, time_limit=time_limit / max(len(budgets), 1)), costs)
    traced = _traced(module, inputs, replace(request, unplanned=True))
    shown = numbered(callback_of(progress), "budget", len(budgets))
    return sweep_budgets(budgets, traced.plan.total_bytes, lambda budget: make_plan(
        traced.captured, replace(request, budget=budget, progress=next(shown))))


@shows_progress
def max_batch(module: Any, inputs: Inputs, budget: Budget, mode: str = "inductor",
              costs: Any = "auto", time_limit: float = 10.0, limit: int = 65536,
              progress: Asked = None) -> MaxBatch:
    """The largest batch that fits a budget, unplanned and planned, by predicted bytes.

    The first dimension of every input that equals the first input's first dimension is the batch.

    Parameters
    ----------
    module, inputs, mode, costs, time_limit, progress
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
    request = _request(Request(budget=budget_bytes, mode=mode, time_limit=time_limit), costs)
    planned: Dict[int, Plan] = {}
    reasons: Dict[int, str] = {}

    def fits_unplanned(batch: int) -> bool:
        asked = replace(request, unplanned=True, budget=None)
        return _traced(module, with_batch(inputs, batch), asked).plan.total_bytes <= budget_bytes

    def fits_planned(batch: int) -> bool:
        try:
            named = part_of(callback_of(progress), "batch %d" % batch, 0, 1)
            planned[batch] = _traced(module, with_batch(inputs, batch),
                                     replace(request, progress=named)).plan
        except InfeasibleBudget as error:
            reasons[batch] = str(error)
            return False
        return True

    first = largest(fits_unplanned, 1, limit)
    most = largest(fits_planned, max(first, 1), limit)
    return MaxBatch(budget_bytes, first, most, planned.get(most), "" if most else
                    "with a batch of %d, %s" % min(reasons.items()))


def options(budget: Budget, costs: Any = "auto", time_limit: float = 10.0) -> Dict[str, Any]:
    """What ``torch.compile(module, options=...)`` takes to plan for a budget.

    The budget is that of each graph. It is not tried against the allocator: that :func:`compile`
    does.

    Parameters
    ----------
    budget, costs, time_limit
        As for :func:`plan`.

    Returns
    -------
    dict
    """
    return Backend(_request(Request(budget=budget, time_limit=time_limit), costs)).options()


# ------------------------------------------------------------------ helpers
def _request(request: Request, costs: Any) -> Request:
    if isinstance(costs, Profile):
        return replace(request, measured_s=costs.times_s, temporary_bytes=costs.temporary_bytes,
                       costs="profile: %s" % costs.device)
    if costs not in ("auto", *ROOFLINES):
        raise InputError("costs must be auto, %s, or what memonger.torch.profile gave, not %r"
                         % (", ".join(ROOFLINES), costs))
    return replace(request, costs=costs)


def _optimizer(optimizer: Any, options: Optional[Mapping[str, Any]]) \
        -> Optional[Callable[[Sequence[int]], int]]:
    return None if optimizer is None else state_bytes(optimizer, options)


def _resolved(budget: Budget, module: Any, inputs: Inputs) -> Budget:
    """``"auto"`` in bytes."""
    if budget != "auto":
        return budget
    device = device_of(module, inputs)
    if device.type != "cuda":
        raise InputError("budget \"auto\" is what a GPU has free, and the module is on %s; give a "
                         "size such as 8GB" % device)
    return int(0.95 * torch.cuda.mem_get_info(device)[0])


def _traced(module: Any, inputs: Inputs, request: Request,
            normalize: bool = True) -> PlannedGraph:
    """The training graph of a module, planned as ``request`` says; nothing runs."""
    check_module(module)
    backend = Backend(request, only_plan=True, normalize=normalize)
    module, inputs = on_device(module, inputs)
    args, named = arguments(inputs)
    try:
        torch.compile(module, backend=backend, fullgraph=True)(*args, **named)
    except Exception as error:
        inner = private.inner_error(error)
        if isinstance(inner, OnlyPlanning):
            return backend.graphs[0]
        raise _in_words(error) from (None if isinstance(inner, MemongerError) else error)
    raise InputError("PyTorch found nothing to compile in the module")


def _in_words(error: Exception) -> BaseException:
    """What a user is to see of an error inside a compilation."""
    inner = private.inner_error(error)
    if isinstance(inner, MemongerError):
        return inner
    if private.graph_break(error):
        return InputError("PyTorch cannot read the module as one graph, and a plan is for a whole "
                          "step: %s" % str(error).strip().splitlines()[0])
    return error


def _clear_errors(call: Callable[..., Any]) -> Callable[..., Any]:
    """The call with memonger's own errors instead of those of PyTorch's compiler around them."""
    @functools.wraps(call)
    def run(*args: Any, **named: Any) -> Any:
        try:
            with private.whole_graphs():
                return call(*args, **named)
        except Exception as error:
            shown = _in_words(error)
            if shown is error:
                raise
            raise shown from None
    return run


def _backend(compiled: Any) -> Backend:
    try:
        return _BACKENDS[compiled]
    except (KeyError, TypeError):
        raise InputError("this is not what memonger.torch.compile gave") from None
