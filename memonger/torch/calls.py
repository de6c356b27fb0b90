"""The calls that users make; :mod:`memonger.torch` lists them."""
from __future__ import annotations

import functools
import weakref
from dataclasses import replace
from typing import Any, Callable, List, Optional

import torch

from ..plan.plan import Budget, Plan, Progress
from ..util.errors import InputError, MemongerError
from . import private
from .measure import Measurement, measure_step, training_step
from .module_step import (
    Inputs,
    arguments,
    bytes_before,
    check_module,
    device_of,
    on_device,
    parameters_of,
)
from .planning import Request
from .profile import Profile, measure_ops
from .step import Backend, OnlyPlanning, PlannedGraph

#: Backend of each compiled module.
_BACKENDS: "weakref.WeakKeyDictionary[Any, Backend]" = weakref.WeakKeyDictionary()


def plan(module: Any, inputs: Inputs, budget: Budget = None, mode: str = "inductor",
         costs: Any = "auto", time_limit: float = 10.0, max_clones: int = 0, name: str = "",
         progress: Optional[Callable[[Progress], None]] = None) -> Plan:
    """Plan the training step of a module; nothing runs.

    Parameters
    ----------
    module : torch.nn.Module or function
    inputs : tuple, dict or torch.Tensor
        Arguments of one call; tensors may be on "meta".
    budget : int, float or str, optional
        Bytes, ``"8GB"`` or ``"50%"`` of the unplanned total. Without one the plan takes the least
        memory.
    mode : str
        "inductor" or "eager": what runs the plan.
    costs : str or Profile
        Times of ops: "auto", "roofline", or what :func:`profile` gave.
    time_limit : float
        Most work for the search, in counted seconds.
    max_clones : int
        How often one op may run again; 0: as often as the mode allows.
    name : str
        What tables and pages call the network.
    progress : callable, optional

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
    request = _request(Request(budget=budget, mode=mode, time_limit=time_limit, name=name,
                               max_clones=max_clones, progress=progress), costs)
    return _traced(module, inputs, request).plan


def estimate(module: Any, inputs: Inputs, mode: str = "inductor") -> Plan:
    """Bytes of one training step as it is: a plan that keeps everything.

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
            max_clones: int = 0, dynamic: Optional[bool] = None,
            progress: Optional[Callable[[Progress], None]] = None) -> Any:
    """``torch.compile`` under a budget, or by a plan.

    Planning happens at the first call, for the inputs of that call, and again where PyTorch
    compiles again. Results, gradients and buffers are bit for bit those of the same mode without
    a plan on a CPU.

    Parameters
    ----------
    module : torch.nn.Module or function
    budget, costs, time_limit, max_clones, progress
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
    request = Request(budget=budget, mode=mode or made_for, time_limit=time_limit,
                      max_clones=max_clones, progress=progress, plan=plan,
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
    step = training_step(lambda: compiled(*args, **named), parameters_of(compiled))
    return measure_step(step, device_of(compiled, inputs), bytes_before(compiled, inputs), steps)


# ------------------------------------------------------------------ helpers
def _request(request: Request, costs: Any) -> Request:
    if isinstance(costs, Profile):
        return replace(request, measured_s=costs.times_s, temporary_bytes=costs.temporary_bytes,
                       costs="profile: %s" % costs.device)
    if costs not in ("auto", "roofline"):
        raise InputError("costs must be auto, roofline or what memonger.torch.profile gave, not %r"
                         % (costs,))
    return request


def _traced(module: Any, inputs: Inputs, request: Request) -> PlannedGraph:
    """The training graph of a module, planned as ``request`` says; nothing runs."""
    check_module(module)
    backend = Backend(request, only_plan=True)
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
