"""What is in memory beside a step, and is not counted by its plan.

* Gradients of earlier calls. A plan counts the ``p.grad`` that exist when it is made, and with
  ``in_flight=1`` all that will. From the second call on there may be more: forward runs beside
  them where a loop drops them between forward and backward, and backward, too, where it
  accumulates them.
* What earlier calls keep for a backward pass that has not begun, as where a loss is of several
  calls. A plan counts ``in_flight`` calls.
"""
from __future__ import annotations

import functools
import warnings
import weakref
from typing import Any, Callable, Dict, Optional

import torch

from ...memory.timeline import timeline
from ...plans.plan import Plan
from ...util.units import format_distinct
from ..pytorch.module_step import gradient_bytes, parameters_of
from ..pytorch.private_ops import pytree
from ..step.backend import Backend
from ..step.network import TracedNetwork

_GRADIENTS = "gradients of earlier calls are there while %s runs, and the plan does not count them"
_WAITING = "%d calls of the module wait for their backward pass at once, and the plan counts %d"


def watching(call: Callable[..., Any], module: torch.nn.Module,
             backend_now: Callable[[], Backend]) -> Callable[..., Any]:
    """The call, which warns once where what is beside a step and the step exceed the budget.

    ``backend_now``: what has compiled the module.
    """
    watch = _Watch(module, backend_now)

    @functools.wraps(call)
    def run(*args: Any, **named: Any) -> Any:
        if watch.is_over or torch.compiler.is_compiling() or not torch.is_grad_enabled():
            return call(*args, **named)
        has_gradients = _has_gradients(module)
        result = call(*args, **named)
        watch.called(result, has_gradients)
        return result
    return run


class _Watch:
    """Calls of one module."""

    def __init__(self, module: torch.nn.Module, backend_now: Callable[[], Backend]):
        self.module, self.backend_now = module, backend_now
        #: Something was said.
        self.is_over = False
        #: By number, calls whose backward pass has not begun, as long as their graph lives.
        self._waiting: Dict[int, "weakref.ref[Any]"] = {}
        self._count = 0
        #: The plan whose forward pass has room for gradients.
        self._fit: Optional[Plan] = None

    def called(self, result: Any, has_gradients: bool) -> None:
        """Look at what there is when a call is over."""
        output = next((t for t in pytree.tree_leaves(result)
                       if isinstance(t, torch.Tensor) and t.grad_fn is not None), None)
        backend = self.backend_now()
        if output is None or not backend.has_budget or not backend.graphs:
            return
        plan = backend.graphs[-1].plan
        if has_gradients and plan is not self._fit and not self._with_gradients(
                plan, "forward", _forward_bytes(plan)):
            self._fit = plan
        self._waiting = {number: graph for number, graph in self._waiting.items()
                         if graph() is not None}
        number = self._count = self._count + 1
        try:
            self._waiting[number] = weakref.ref(output.grad_fn)
        except TypeError:  # only functions of Python's can be followed
            pass
        self._with_others(backend, plan)
        output.grad_fn.register_prehook(functools.partial(self._backward_begins, number))

    def _backward_begins(self, number: int, _: Any) -> None:
        self._waiting.pop(number, None)
        backend = self.backend_now()
        if self.is_over or not backend.graphs or not _has_gradients(self.module):
            return
        plan = backend.graphs[-1].plan
        if "gradients" not in plan.fixed_bytes:
            self._with_gradients(plan, "backward", plan.pool_bytes)

    def _with_gradients(self, plan: Plan, half: str, pool_bytes: int) -> bool:
        """Whether a half of the step exceeds the budget with the module's gradients."""
        fixed_bytes = plan.total_bytes - plan.pool_bytes - plan.fixed_bytes.get("gradients", 0)
        return self._exceeds(
            plan, fixed_bytes + gradient_bytes(parameters_of(self.module)) + pool_bytes,
            _GRADIENTS % half,
            "Drop them before the call (zero_grad), or give in_flight=1, with which plans"
            if half == "forward" else "To accumulate gradients give in_flight=1, with which plans")

    def _with_others(self, backend: Backend, plan: Plan) -> None:
        """Say where calls that wait exceed the budget together."""
        counted = max(1, backend.request.in_flight)
        if len(self._waiting) > counted:
            held_bytes = TracedNetwork(backend.graphs[-1].captured, backend.request).held_bytes(
                plan.schedule)
            self._exceeds(
                plan, plan.total_bytes + (len(self._waiting) - counted) * held_bytes,
                _WAITING % (len(self._waiting), counted),
                "Give in_flight=%d, with which plans" % len(self._waiting))

    def _exceeds(self, plan: Plan, total_bytes: int, what: str, way_out: str) -> bool:
        if plan.budget_bytes is None or total_bytes <= plan.budget_bytes:
            return False
        self.is_over = True
        warnings.warn("%s: with them the step takes %s, above the budget of %s. %s count them from "
                      "the first call on" % (what, *format_distinct(
                          total_bytes, plan.budget_bytes), way_out), stacklevel=4)
        return True


def _has_gradients(module: torch.nn.Module) -> bool:
    """Whether the first parameter that is trained has one: others then do, too."""
    first: Optional[torch.Tensor] = next((p for p in module.parameters() if p.requires_grad), None)
    return first is not None and first.grad is not None


def _forward_bytes(plan: Plan) -> int:
    """The most that a plan's forward half takes of the pool."""
    shown = timeline(plan.graph, plan.schedule, "live")
    return max((live for live, late in zip(shown.live_bytes, shown.is_backward) if not late),
               default=0)
