"""A budget for Lightning: one callback.

::

    from memonger.torch.engines.lightning import MemoryBudgetCallback
    Trainer(callbacks=[MemoryBudgetCallback("8GB")]).fit(module, loader)
"""
from __future__ import annotations

from typing import Any, List, Tuple

import torch

from ...util.errors import InputError
from ..calls.compiled import compile
from .callback import BudgetCallback

try:
    from lightning.pytorch import Callback
except ImportError:  # the same by its older name
    from pytorch_lightning import Callback


class MemoryBudgetCallback(BudgetCallback, Callback):
    """Trains a LightningModule's ``training_step`` by plans under a budget.

    The step is planned as a whole, loss and all, when training begins; ``self.log`` and
    ``self.log_dict`` work in it as without. The module stays the object that it is, and its
    checkpoints are plain ones. Batches of other sizes keep the budget, too; a share is of the
    first step. The optimizer counts where there is one, and so do the gradients of the batch
    before, which Lightning drops when the next one's forward pass is over.

    Parameters
    ----------
    budget, **options
        As for :class:`..callback.BudgetCallback`.
    """

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Plan the step; its first run makes the plan.

        Raises InputError where the step takes gradients by itself.
        """
        if not pl_module.automatic_optimization:
            raise InputError(
                "the training_step of %s runs backward itself (automatic_optimization is off), so "
                "it cannot be planned as a whole: leave this callback out, and plan the network in "
                "it with memonger.torch.compile(network, budget, in_place=True)"
                % type(pl_module).__name__)
        optimizers = trainer.optimizers
        # Lightning drops gradients, if at all, between forward and backward.
        options = {"optimizer": optimizers[0] if len(optimizers) == 1 else None, "in_flight": 1,
                   **self.options}
        self._planned = planned = compile(pl_module.training_step, self.budget, **options)

        def training_step(*args: Any, **named: Any) -> Any:
            logged: List[Tuple[str, Tuple[Any, ...], Any]] = []
            pl_module.log = lambda *a, **k: logged.append(("log", *_detached(a, k)))
            pl_module.log_dict = lambda *a, **k: logged.append(("log_dict", *_detached(a, k)))
            try:
                output = planned(*args, **named)
            finally:
                del pl_module.log, pl_module.log_dict
            for name, values, options in logged:
                getattr(pl_module, name)(*values, **options)
            return output
        pl_module.training_step = training_step

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        """Give the module its own step back."""
        vars(pl_module).pop("training_step", None)

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """The same where training ends early."""
        self.on_train_end(trainer, pl_module)


def _detached(values: Any, named: Any) -> Any:
    """What is logged, without gradients."""
    def plain(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: plain(item) for name, item in value.items()}
        return value.detach() if isinstance(value, torch.Tensor) else value
    return tuple(plain(value) for value in values), plain(named)
