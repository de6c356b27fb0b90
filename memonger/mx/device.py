"""What the device has left: the budget called ``"auto"``."""
from __future__ import annotations

from typing import Any

from ..errors import InputError
from ..plan import Budget
from .environment import mxnet

#: Share of the free memory that stays free: MXNet's pool rounds large requests up to 2 MiB, and
#: cuDNN takes workspaces that nobody announces.
RESERVE = 0.05


def free_bytes(ctx: Any) -> int:
    """Bytes that a training step may take on a GPU, now.

    Raises
    ------
    InputError
        If ``ctx`` is no GPU, or it does not answer.
    """
    if ctx is None or ctx.device_type != "gpu":
        raise InputError('the budget "auto" is what a GPU has free; name the device with '
                         "ctx=mx.gpu() (--ctx gpu), or give a size such as 8GB")
    mx = mxnet()
    try:
        free, _ = mx.context.gpu_memory_info(ctx.device_id)
    except mx.MXNetError as error:
        raise InputError("%s does not tell its free memory (%s); give a size such as 8GB"
                         % (ctx, str(error).strip().splitlines()[-1])) from error
    return int(free * (1.0 - RESERVE))


def resolve_budget(budget: Budget, ctx: Any) -> Budget:
    """``"auto"`` to bytes; any other budget as it is."""
    return free_bytes(ctx) if budget == "auto" else budget
