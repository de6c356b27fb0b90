"""A budget in bytes for the training step of any PyTorch module.

::

    import memonger.torch as mt
    fast = mt.compile(module, budget="8GB")
    plan = mt.plan(module, (x,), budget="50%")

A module is traced by PyTorch's own compiler into one graph of forward and backward. memonger plans
what is kept and what is computed again, and either hands both halves to Inductor or runs them node
by node with eager kernels.
"""
from __future__ import annotations

try:
    import torch.nn as _torch  # noqa: F401
except ModuleNotFoundError as error:
    if error.name not in ("torch", "torch.nn"):  # the latter where a mere folder has the name
        raise
    raise ModuleNotFoundError(
        "memonger.torch plans PyTorch modules, and PyTorch is not installed: pip install "
        "'memonger[torch]'. A network of MXNet is planned by memonger.plan(symbol, ...)",
        name="torch") from None

from .calls.compiled import compile, measure, options, plans, verify
from .calls.estimate import estimate, memory_snapshot
from .calls.max_batch import max_batch
from .calls.plan import plan, profile, sweep
from .check.measure import Measurement
from .check.verify import Verification
from .pytorch.loss_layer import linear_cross_entropy
from .times.profile import Profile

__all__ = ["Measurement", "Profile", "Verification", "compile", "estimate",
           "linear_cross_entropy", "max_batch", "measure", "memory_snapshot", "options", "plan",
           "plans", "profile", "sweep", "verify"]
