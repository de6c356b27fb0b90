"""Whether compiled code keeps the budget at the sizes of a call."""
from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any, Optional, Sequence

import torch

from ...util.errors import InfeasibleBudget
from ...util.units import format_distinct
from ..capture.optimizer_moment import pool_at_optimizer
from ..pytorch import private_ops
from ..pytorch.sizes import Values
from .compilation import Code, Compilation, PlannedGraph
from .network import TracedNetwork
from .trial import inference_bytes, trial_bytes, written_positions


def fits(compilation: Compilation, code: Code, values: Values, arguments: Sequence[Any]) -> bool:
    """Whether code that serves other sizes keeps the budget at those in force, ``values``.

    Eager kernels take what the graph says. Code of Inductor is tried with ``arguments``, unless its
    prediction is above the budget, or it was measured with larger sizes.

    Raises InfeasibleBudget for code that takes no gradients, of which nothing can run again.
    """
    if code.is_known_to_fit(values) and compilation.request.mode == "inductor":
        return True
    if not code.trains:
        check_inference(compilation, code, arguments)
        code.measured.append(dict(values))
        return True
    planned, budget_bytes = code.planned, compilation.budget_bytes
    assert planned is not None and budget_bytes is not None
    total_bytes = _total_bytes(compilation, planned, arguments)
    if compilation.request.mode == "eager" or total_bytes > budget_bytes:
        return total_bytes <= budget_bytes
    taken = trial_bytes(code.call, arguments, written_positions(planned.captured.joint))
    outside = TracedNetwork(planned.captured, compilation.request).outside_of(
        planned.plan.schedule)
    if taken is not None and budget_bytes < sum(outside.values()) + max(
            taken, pool_at_optimizer(planned.plan.graph)):
        return False
    code.measured.append(dict(values))
    return True


def check_inference(compilation: Compilation, code: Code, arguments: Sequence[Any]) -> None:
    """Raise InfeasibleBudget where code that takes no gradients takes more than the budget.

    Warns where the budget is a share of a step that is not known yet.
    """
    budget_bytes = compilation.budget_bytes
    if budget_bytes is None:
        if torch.is_grad_enabled():
            warnings.warn(
                "no gradient can be taken through what was called, so nothing was planned and the "
                "budget %r, a share of a training step, means nothing here; give bytes"
                % (compilation.request.budget,), stacklevel=2)
        return
    total_bytes = _inference_bytes(compilation, code.planned, code, arguments)
    if total_bytes > budget_bytes:
        raise InfeasibleBudget(
            "a call in which no gradient is taken needs %s, above the budget of %s, and nothing of "
            "it can run again to take less; a smaller batch takes less"
            % format_distinct(total_bytes, budget_bytes), budget_bytes, total_bytes)


def _inference_bytes(compilation: Compilation, planned: Optional[PlannedGraph], code: Code,
                     arguments: Sequence[Any]) -> int:
    if planned is not None:
        return _total_bytes(compilation, planned, arguments)
    storages = {private_ops.storage_key(t): t.untyped_storage().nbytes()
                for t in arguments if isinstance(t, torch.Tensor)}
    return sum(storages.values()) + inference_bytes(code.call, arguments)


def _total_bytes(compilation: Compilation, planned: PlannedGraph, arguments: Sequence[Any]) -> int:
    """The total of a step at the sizes in force; under Inductor as far off as its prediction."""
    captured, plan = planned.captured, planned.plan
    if compilation.measures:
        compilation.measure(captured.joint, arguments)
    network = TracedNetwork(replace(captured, graph=captured.graph_now()), compilation.request)
    pool_bytes = network.pool_bytes(plan.schedule)
    if plan.predicted_pool_bytes:
        pool_bytes = pool_bytes * plan.pool_bytes // plan.predicted_pool_bytes
    return pool_bytes + sum(network.outside_of(plan.schedule).values())
