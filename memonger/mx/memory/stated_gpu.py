"""Properties and free memory of the GPU to plan for; free memory is the budget ``"auto"``."""
from __future__ import annotations

import os
import re
from dataclasses import dataclass
from numbers import Real
from typing import Any, Optional

from ...plans.plan import Budget
from ...util.argument_checks import shown
from ...util.cuda_libraries import reported_facts
from ...util.devices import DEVICES
from ...util.errors import InputError, UnitError
from ...util.units import refuse_bare_number
from ..plugin.environment import is_on, mxnet
from .gpu_pool import Device

#: An allowance for MXNet, cuDNN and cuBLAS on a stated GPU before the first array; not measured.
CONTEXT_BYTES = 10**9
#: Share of the free memory that stays free: MXNet's pool rounds large requests up to 2 MiB, and
#: cuDNN allocates workspaces that MXNet does not report.
RESERVE = 0.05


@dataclass(frozen=True)
class StatedGpu:
    """A GPU described by its data sheet alone; takes the place of an ``mx.Context``."""

    name: str
    device_type: str = "gpu"
    device_id: int = 0

    @property
    def sheet(self) -> Any:
        """Its entry in the cost models' table of devices."""
        return DEVICES[self.name]


def place(ctx: Any, device: Optional[str]) -> Any:
    """The context to plan for: ``ctx``, or the GPU that ``device`` names.

    Raises InputError if both are given, or no GPU has the name.
    """
    if device is None:
        return ctx
    if ctx is not None:
        raise InputError("give ctx or device, not both")
    if hasattr(device, "device_type"):
        raise InputError("device takes the name of a GPU that need not be there, such as 'v100'; "
                         "give %s as ctx" % device)
    known = [name for name, sheet in DEVICES.items() if sheet.memory_bytes]
    plain = re.sub(r"[\s_-]", "", str(device)).lower()  # RTX 3090
    if plain not in known:
        raise InputError("no GPU %r; there are %s" % (device, ", ".join(known)))
    return StatedGpu(plain)


def free_bytes(ctx: Any) -> int:
    """Bytes that a training step may take on a GPU, now.

    Raises InputError if ``ctx`` is no GPU, or it does not answer.
    """
    if ctx is None or ctx.device_type != "gpu":
        raise InputError('the budget "auto" is what a GPU has free; name the device with '
                         "ctx=mx.gpu() (--ctx gpu), or give a size such as 8GB")
    if isinstance(ctx, StatedGpu):
        return int((ctx.sheet.memory_bytes - CONTEXT_BYTES) * (1.0 - RESERVE))
    mx = mxnet()
    try:
        free, _ = mx.context.gpu_memory_info(ctx.device_id)
    except mx.MXNetError as error:
        raise InputError("%s does not report its free memory (%s); give a size such as 8GB"
                         % (ctx, str(error).strip().splitlines()[-1])) from error
    return int(free * (1.0 - RESERVE))


def resolve_budget(budget: Any, ctx: Any) -> Budget:
    """A user's budget with ``"auto"`` turned into bytes; any other stays as it is.

    Raises UnitError if it is neither a number nor text, or a bare number that was surely meant with
    a unit.
    """
    readable = budget is None or isinstance(budget, (str, Real))
    if not readable:
        raise UnitError("a budget cannot be %s; write it as 4GB or 60%%, and shapes as "
                        "data=(32, 3, 224, 224)" % shown(budget))
    refuse_bare_number(budget)
    return free_bytes(ctx) if budget == "auto" else budget


def device_of(ctx: Any) -> Optional[Device]:
    """How MXNet in this process allocates memory on a GPU; None for other devices.

    Raises InputError if an environment variable of MXNet's pool has a value that MXNet refuses.
    """
    if ctx is None or ctx.device_type != "gpu":
        return None
    return Device(
        pool_type=os.environ.get("MXNET_GPU_MEM_POOL_TYPE", Device.pool_type),
        page_bytes=_number("MXNET_GPU_MEM_POOL_PAGE_SIZE", Device.page_bytes),
        large_bytes=_number("MXNET_GPU_MEM_LARGE_ALLOC_ROUND_SIZE", Device.large_bytes),
        linear_cutoff=_number("MXNET_GPU_MEM_POOL_ROUND_LINEAR_CUTOFF", Device.linear_cutoff),
        autotunes=_number("MXNET_CUDNN_AUTOTUNE_DEFAULT", 1) != 0,
        # A CPU does not show what MXNet would fuse on the GPU.
        fuses=not isinstance(ctx, StatedGpu) and is_on("MXNET_USE_FUSION"),
        random_copies=_number("MXNET_GPU_PARALLEL_RAND_COPY", Device.random_copies),
        dropout_copies=_number("MXNET_GPU_CUDNN_DROPOUT_STATE_COPY", Device.dropout_copies),
        **({"multiprocessors": ctx.sheet.multiprocessors} if isinstance(ctx, StatedGpu)
           else reported_facts(ctx.device_id)))


def _number(name: str, default: int) -> int:
    text = os.environ.get(name, "")
    try:
        return int(text) if text else default
    except ValueError:
        raise InputError("%s=%s is not a number" % (name, text)) from None
