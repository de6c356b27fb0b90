"""Where op times come from: what the user names, else what is known of the device."""
from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

from ...plans.plan import NOT_OF_THIS_MACHINE
from ...util.devices import DEVICES
from ...util.errors import InputError
from ..costs.models import CostModel, Roofline, roofline
from ..memory.stated_gpu import StatedGpu


def estimates(ctx: Any) -> Roofline:
    """Times where none were measured: of this CPU; for a GPU those of the reference device."""
    if isinstance(ctx, StatedGpu):
        return roofline(ctx.name)
    preset = os.environ.get("MEMONGER_COSTS")
    if preset and preset not in DEVICES:
        raise InputError("the environment variable MEMONGER_COSTS is %r; it names one of %s"
                         % (preset, ", ".join(sorted(DEVICES))))
    if preset:
        return roofline(preset)
    if ctx is not None and ctx.device_type == "gpu":
        return replace(roofline("reference"), name="reference" + NOT_OF_THIS_MACHINE[1],
                       stands_in=True)
    from ..profile.calibrate import calibrated
    return calibrated(ctx)


def costs_of_bytes(costs: Any, on_gpu: bool) -> Any:
    """``costs`` for a call that needs no times: for "auto" nothing is measured."""
    if isinstance(costs, str) and costs == "auto":
        return "reference" if on_gpu else "cpu"
    return costs


def cost_model(costs: Any) -> CostModel:
    """The cost model behind the argument ``costs``.

    Parameters
    ----------
    costs : str or CostModel
        The name of a device preset, the path of a profile file, or an object with ``op_times`` and
        ``source``.

    Raises
    ------
    InputError
        If it is none of these.
    """
    if not isinstance(costs, str):
        if not hasattr(costs, "op_times"):
            raise InputError("costs must be 'auto', a device preset, a profile file or a cost "
                             "model, not %r" % (costs,))
        return costs
    if costs.endswith(".json"):
        from ..costs.profile_files import load_profile
        return load_profile(costs)
    return roofline(costs)
