"""The calls that compile a module by a plan, and look at what they made.

:mod:`memonger.torch` lists all calls.
"""
from __future__ import annotations

import os
import weakref
from dataclasses import replace
from functools import partial
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Union

import torch

from ...plans.plan import Budget, Plan
from ...plans.plan_file import load_plan
from ...report.progress import Asked, callback_of, shows_progress
from ...util.argument_checks import shown, whole_number
from ...util.errors import InputError
from ..capture.operators import draws
from ..check.measure import Measurement, gradients_restored, measure_step, training_step
from ..check.verify import Others, Verification, compared
from ..pytorch import private
from ..pytorch.live_bytes import tensors_in
from ..pytorch.module_step import (
    Inputs,
    arguments,
    bytes_before,
    check_module,
    device_of,
    in_eval,
    parameters_of,
)
from ..step.backend import Backend
from ..step.parts import StepInParts, in_step
from ..step.request import Request, requested, resolved, with_host
from . import versions
from .blocks import Blocks, by_blocks, paths_of
from .tracing import clear_errors, sizes_of, traced
from .twin import in_place_of, original, twin_of
from .watch import watching

#: Backend of each compiled module.
_BACKENDS: "weakref.WeakKeyDictionary[Any, Backend]" = weakref.WeakKeyDictionary()


def compile(module: Any, budget: Budget = None, mode: Optional[str] = None,
            plan: Union[None, Plan, str, "os.PathLike[str]"] = None, costs: Any = "auto",
            variants: str = "exact", time_limit: float = 10.0, max_clones: int = 0,
            optimizer: Any = None, optimizer_params: Optional[Mapping[str, Any]] = None,
            dynamic: Optional[bool] = None, progress: Asked = None, in_place: bool = False,
            max_inputs: Optional[Inputs] = None, host: Union[None, str, int] = None,
            link: Union[None, str, float] = None, strict: bool = False,
            blocks: Optional[Blocks] = None, in_flight: int = 0) -> Any:
    """``torch.compile`` under a budget, or by a plan.

    Planning happens at the first call, for the inputs of that call, and again for sizes at which
    the plans made so far exceed the budget; a share means bytes of the first step. In eager mode
    results, gradients and buffers are bit for bit those without a plan on a CPU, unless
    ``variants="all"`` has changed an operator; where Inductor fuses kernels otherwise, last bits
    may differ. With a newer PyTorch that plans do not work with the module trains without one, and
    a warning says so.

    Parameters
    ----------
    module : torch.nn.Module or function
    budget, costs, variants, time_limit, max_clones, optimizer, optimizer_params, progress
        As for :func:`plan`. Neither budget nor plan: nothing is planned.
    mode : str, optional
        "inductor" (the default) or "eager"; of a plan, the mode it was made for.
    plan : Plan, str or os.PathLike, optional
        Of :func:`plan`, or its file; it must be of this network, and is followed at other sizes,
        too. Where its step takes more than its budget another one is made for that budget.
    dynamic : bool, optional
        As for ``torch.compile``.
    in_place : bool
        Plan the calls of the module itself, as ``module.compile()`` does, and give it back. A
        second call replaces the plan. Copies and pickles of the module are plain modules.
    max_inputs : optional
        Inputs as large as they get, on "meta" if need be: the first plan is for these and serves
        all smaller ones. With blocks it is made here. Not for what ``fully_shard`` sharded.
    host, link, in_flight : optional
        As for :func:`plan`. Where gradients are accumulated over calls ``in_flight=1`` counts them
        from the first one on, where a loss is of two calls ``in_flight=2`` counts both; else a
        warning says where that exceeds the budget.
    strict : bool
        Refuse a module that PyTorch cannot read as one graph. Otherwise all its graphs are
        planned as one step.
    blocks : str or sequence, optional
        Compile these parts of the module, in place, and not what is around them: a pattern of
        paths (``"layers.*"``), paths, or the modules. The budget is that of the whole step.

    Returns
    -------
    torch.nn.Module or function
        Of a module another one of its class that has the same parameters, hooks and settings;
        only its calls are planned. Copies and pickles of it ask for the same plan, and make it at
        their first call. Its ``load_state_dict`` takes checkpoints of ``torch.compile``, too.

    Raises
    ------
    InputError
        If the arguments contradict each other. At the first call also what :func:`plan` raises,
        and PlanMismatch where the plan is for another network. At any call InfeasibleBudget where
        no plan fits its sizes; nothing has run then.
    """
    check_module(module, blocks is not None)
    if in_place and not isinstance(module, torch.nn.Module):
        raise InputError("in_place=True is for modules; of a function take what "
                         "memonger.torch.compile gives")
    if plan is not None and budget is not None:
        raise InputError("give a budget or a plan, not both")
    if isinstance(plan, (str, os.PathLike)):
        plan = load_plan(os.fspath(plan))
    if plan is not None and not isinstance(plan, Plan):
        raise InputError("plan must be what memonger.torch.plan gave, or its file, not %s"
                         % shown(plan))
    if plan is not None and "mode" not in plan.options:
        raise InputError("the plan is no plan of a PyTorch module; make one with "
                         "memonger.torch.plan")
    made_for = plan.options["mode"] if plan is not None else "inductor"
    if plan is not None and mode not in (None, made_for):
        raise InputError("the plan was made for mode %r, not %r" % (made_for, mode))
    request = Request(budget=resolved(budget, module, ()), mode=mode or made_for,
                      variants=variants if plan is None else plan.options.get("variants", "exact"),
                      time_limit=time_limit, max_clones=max_clones,
                      plan=plan, unplanned=budget is None and plan is None,
                      name=plan.graph.name if plan else "",
                      in_flight=in_flight if plan is None else plan.options.get("in_flight", 0))
    request = with_host(request, host, link, device_of(module, ()), plan)
    plain = original(module)
    paths = None if blocks is None else paths_of(plain, blocks)
    unplanned = versions.unplanned_backend(request.mode)
    kind = Backend if paths is None or request.unplanned else partial(StepInParts, module=plain)
    backend = kind(requested(request, costs, optimizer, optimizer_params))
    if max_inputs is not None and not unplanned:
        if budget is None:
            raise InputError("max_inputs are for a budget: give one")
        if paths is None:
            backend.seen = sizes_of(plain, max_inputs, request)
        else:
            backend.request = replace(backend.request, budget=None, plan=traced(
                plain, max_inputs, backend.request,
                in_parts=lambda net, kept: by_blocks(net, paths, kept, backend=kept)).plan)
        dynamic = True if dynamic is None else dynamic

    def compiler(backend: Backend) -> Any:
        return unplanned or partial(_run, backend, plain, progress=progress)

    def in_parts() -> Callable[..., Any]:
        """The call of a module of several graphs, which are planned as one from then on."""
        asked = backend.request
        if max_inputs is not None:
            asked = replace(asked, plan=traced(plain, max_inputs, asked).plan, budget=None)
        several = backend if request.unplanned else StepInParts(
            asked, plain, graphs=backend.graphs)
        _BACKENDS[compiled] = several
        options = {"backend": compiler(several), "dynamic": dynamic}
        return in_step(several, plain, private.compiled_call(plain, **options), **options)

    call = clear_errors(private.compiled_call(
        plain, backend=compiler(backend), fullgraph=not unplanned, dynamic=dynamic),
        plain, None if strict or unplanned else in_parts) if paths is None else \
        by_blocks(plain, paths, backend, backend=compiler(backend), fullgraph=strict,
                  dynamic=dynamic)
    if isinstance(module, torch.nn.Module) and not request.unplanned:
        call = watching(call, plain, lambda: _BACKENDS[compiled])
    again = partial(compile, budget=budget, mode=mode, plan=plan, costs=costs, variants=variants,
                    time_limit=time_limit, max_clones=max_clones, optimizer=optimizer,
                    optimizer_params=optimizer_params, dynamic=dynamic, max_inputs=max_inputs,
                    host=host, link=link, strict=strict, blocks=paths, in_flight=in_flight,
                    progress=progress if isinstance(progress, bool) else None)
    compiled = in_place_of(module, call) if in_place else \
        twin_of(plain, call, again) if isinstance(module, torch.nn.Module) else call
    _BACKENDS[compiled] = backend
    return compiled


@shows_progress
def _run(backend: Backend, module: Any, graph: torch.fx.GraphModule, inputs: Sequence[Any],
         progress: Asked = None) -> Callable[..., Any]:
    """One compilation, which plans."""
    backend.request = replace(backend.request, progress=callback_of(progress),
                              in_eval=in_eval(module))
    return backend(graph, inputs)


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
    request = requested(Request(budget=budget, time_limit=time_limit), costs)
    versions.check(request.mode)
    return Backend(request).options()


def measure(compiled: Any, inputs: Inputs, steps: int = 5) -> Measurement:
    """Run training steps and tell what they allocated, by the allocator's events.

    Gradients are afterwards what they were.

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
    trained = [*parameters_of(compiled), *(t for t in tensors_in((args, named)) if t.is_leaf)]
    step = training_step(lambda: compiled(*args, **named), trained)
    with gradients_restored(trained):
        return measure_step(step, trained, device_of(compiled, inputs),
                            bytes_before(compiled, inputs), steps)


def verify(compiled: Any, module: torch.nn.Module, inputs: Inputs,
           steps: int = 2) -> Verification:
    """Train with the plan and without it, and compare every number.

    Outputs, gradients and buffers must agree with those of the module by itself, within rounding,
    and with those of the same mode without a plan: bit for bit in eager mode on a CPU; within
    rounding under Inductor, on a GPU, and with ``variants="all"`` where an operator has changed.
    Backward starts from all outputs that have gradients, with random numbers. Parameters, buffers
    and gradients are afterwards what they were.

    A module may amplify rounding, as elements of ReLUs at zero do. Where the compiled module is
    far off the module by itself, with the plan and without, float64 copies of both judge, if these
    can be made.

    A module that draws random numbers draws others under Inductor and on some GPUs. Where it
    then disagrees with itself, the same mode takes its place, with all values kept for backward
    and without PyTorch's partitioner; ``beside_module`` of the result is False.

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
        ``ok``, ``identical``, ``differences`` (from the mode without a plan), ``beside`` (from
        the module by itself); ``check()`` raises where they differ.
    """
    mode = _backend(compiled).request.mode

    def kept(net: torch.nn.Module) -> Callable[..., Any]:
        return clear_errors(private.compiled_call(net, backend=Backend(Request(
            mode=mode, unplanned=True, kept=True))), net)

    return compared(
        compiled, original(module), Others(private.call_itself, partial(compile, mode=mode), kept),
        inputs, whole_number("steps", steps, 1),
        lambda: mode == "eager" and all(graph.exact for graph in _backend(compiled).graphs),
        lambda: any(draws(node) for graph in _backend(compiled).graphs
                    for joint in graph.captured.joints for node in joint.graph.nodes))


def _backend(compiled: Any) -> Backend:
    try:
        return _BACKENDS[compiled]
    except (KeyError, TypeError):
        raise InputError("this is not what memonger.torch.compile gave") from None
