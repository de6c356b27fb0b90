"""A budget for Hugging Face's ``Trainer``: one callback.

::

    from memonger.torch.engines.hugging_face import MemoryBudgetCallback
    Trainer(model=model, args=args, ..., callbacks=[MemoryBudgetCallback("8GB")])
"""
from __future__ import annotations

import logging
from typing import Any

from transformers import TrainerCallback

from ...util.units import format_bytes
from ..calls.compiled import compile
from .callback import BudgetCallback

logger = logging.getLogger("memonger.torch")


class MemoryBudgetCallback(BudgetCallback, TrainerCallback):
    """Trains a ``Trainer``'s model by plans under a budget.

    The model is planned in place when training begins, behind what the trainer does to it, and
    stays the object that it is: it is saved, loaded, evaluated and generates as before. Batches of
    other sizes keep the budget, too; a share is of the first step. The optimizer's state counts
    where the trainer has made the optimizer, gradients of earlier batches where it accumulates
    them.

    Parameters
    ----------
    budget, **options
        As for :class:`..callback.BudgetCallback`.
    """

    def on_train_begin(self, args: Any, state: Any, control: Any, **named: Any) -> None:
        """Plan the model in place; the first step makes the plan."""
        optimizer = getattr(named.get("optimizer"), "optimizer", named.get("optimizer"))
        options = {"optimizer": optimizer, "in_flight": int(args.gradient_accumulation_steps > 1),
                   **self.options}
        self._planned = compile(named["model"], self.budget, in_place=True, **options)

    def on_train_end(self, args: Any, state: Any, control: Any, **named: Any) -> None:
        """Say what was planned."""
        for plan in self.plans:
            logger.info("trained by a plan of %s, unplanned %s, %+.1f %% time",
                        format_bytes(plan.total_bytes), format_bytes(plan.baseline_total_bytes),
                        100 * plan.overhead)
