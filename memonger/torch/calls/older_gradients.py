"""Gradients of earlier calls, beside a plan that does not count them.

A plan counts the ``p.grad`` that exist when it is made, and with ``in_flight=1`` all that will.
From the second call on there may be more: forward runs beside them where a loop drops them between
forward and backward, and backward, too, where it accumulates them.
"""
from __future__ import annotations

import functools
import warnings
from typing import Any, Callable, List, Optional

import torch

from ...memory.timeline import timeline
from ...plans.plan import Plan
from ...util.units import format_distinct
from ..pytorch.module_step import gradient_bytes, parameters_of
from ..pytorch.private_ops import pytree
from ..step.backend import Backend


def watching(call: Callable[..., Any], module: torch.nn.Module,
             backend_now: Callable[[], Backend]) -> Callable[..., Any]:
    """The call, which warns once where older gradients and a step exceed the budget together.

    ``backend_now``: what has compiled the module.
    """
    told: List[str] = []
    fit: List[Plan] = []

    @functools.wraps(call)
    def run(*args: Any, **named: Any) -> Any:
        if torch.compiler.is_compiling():  # part of a larger module that is traced
            return call(*args, **named)
        beside = not told and torch.is_grad_enabled() and _has_gradients(module)
        result = call(*args, **named)
        if beside:
            plan = _last_plan(backend_now())
            if plan is not None and plan not in fit:
                if not exceeds(plan, "forward", _forward_bytes(plan)):
                    fit.append(plan)
            made = (t for t in pytree.tree_leaves(result)
                    if isinstance(t, torch.Tensor) and t.grad_fn is not None)
            for tensor in made:
                tensor.register_hook(backward_begins)
                break
        return result

    def backward_begins(_: torch.Tensor) -> None:
        plan = None if told else _last_plan(backend_now())
        if plan is not None:
            exceeds(plan, "backward", plan.pool_bytes)

    def exceeds(plan: Plan, half: str, pool_bytes: int) -> bool:
        fixed_bytes = plan.total_bytes - plan.pool_bytes - plan.fixed_bytes.get("gradients", 0)
        total_bytes = fixed_bytes + gradient_bytes(parameters_of(module)) + pool_bytes
        if plan.budget_bytes is None or total_bytes <= plan.budget_bytes:
            return False
        told.append(half)
        warnings.warn(
            "gradients of earlier calls are there while %s runs, and the plan does not count them: "
            "with them the step takes %s, above the budget of %s. %s in_flight=1, with which plans "
            "count them from the first call on"
            % (half, *format_distinct(total_bytes, plan.budget_bytes),
               "Drop them before the call (zero_grad), or give" if half == "forward" else
               "To accumulate gradients give"), stacklevel=3)
        return True
    return run


def _has_gradients(module: torch.nn.Module) -> bool:
    """Whether the first parameter that is trained has one: others then do, too."""
    first = next((p for p in module.parameters() if p.requires_grad), None)
    return first is not None and first.grad is not None


def _last_plan(backend: Backend) -> Optional[Plan]:
    return backend.graphs[-1].plan if backend.has_budget and backend.graphs else None


def _forward_bytes(plan: Plan) -> int:
    """The most that a plan's forward half takes of the pool."""
    shown = timeline(plan.graph, plan.schedule, "live")
    return max((live for live, late in zip(shown.live_bytes, shown.is_backward) if not late),
               default=0)
