"""A budget for a training loop with Hugging Face's accelerate: one call.

::

    from memonger.torch.engines.accelerate import prepare
    model, optimizer, loader = prepare(accelerator, model, optimizer, loader, budget="8GB")
"""
from __future__ import annotations

from typing import Any

from ...plans.plan import Budget
from ..calls.compiled import compile


def prepare(accelerator: Any, model: Any, *others: Any, budget: Budget, **options: Any) -> Any:
    """``accelerator.prepare``, and the model planned in place under a budget.

    Parameters
    ----------
    accelerator : accelerate.Accelerator
    model : torch.nn.Module
    *others
        Optimizers, loaders and schedulers, as for ``accelerator.prepare``.
    budget : int, float or str
        As for :func:`memonger.torch.compile`.
    **options
        Its other arguments, such as ``mode="eager"``.

    Returns
    -------
    object or tuple
        What ``accelerator.prepare`` gives. ``memonger.torch.plans`` of
        ``accelerator.unwrap_model(model)`` has the plans.
    """
    prepared = accelerator.prepare(model, *others)
    first = prepared[0] if others else prepared
    # The module itself, without what distributes it: mixed precision is part of its calls by now.
    accumulates = accelerator.gradient_accumulation_steps > 1
    compile(accelerator.unwrap_model(first, keep_fp32_wrapper=True), budget, in_place=True,
            **{"in_flight": int(accumulates), **options})
    return prepared
