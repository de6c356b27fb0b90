"""What a call asks for, checked and in bytes."""
from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from typing import Any, Mapping, Optional, Union

import torch

from ...planning.requests import PlanRequest
from ...plans.plan import Budget, Plan
from ...util.argument_checks import whole_number
from ...util.errors import InputError
from ...util.units import KNEE, parse_budget, parse_bytes, parse_rate, refuse_bare_number
from ..capture.costs import ROOFLINES
from ..pytorch.module_step import Inputs, device_of
from ..pytorch.optimizer import Optimizer, optimizer_named
from ..times.link import USUAL_BYTES_PER_S, link_bytes_per_s
from ..times.profile import Profile

MODES = ("inductor", "eager")


@dataclass(frozen=True)
class Request(PlanRequest):
    """What is asked for; fields as the parameters of :func:`memonger.torch.plan`."""

    mode: str = "inductor"
    #: Seconds of ops and bytes that they take besides their outputs, by signature.
    measured_s: Mapping[str, float] = field(default_factory=dict)
    temporary_bytes: Mapping[str, int] = field(default_factory=dict)
    #: "auto", one of :data:`..capture.costs.ROOFLINES`, or the device where times were measured.
    costs: str = "auto"
    optimizer: Optional[Optimizer] = None
    #: A plan that the step runs by, where its sizes are the plan's.
    plan: Optional[Plan] = None
    #: Speed of copies to the host and back, where ``host_budget_bytes`` lets values lie there.
    link_bytes_per_s: float = USUAL_BYTES_PER_S
    #: Microbatches of a pipeline's stage that wait for their backward pass at once, at most; 0: no
    #: stage of a pipeline.
    in_flight: int = 0
    #: Nothing is planned: the unplanned step.
    unplanned: bool = False
    #: Not even PyTorch's partitioner decides: all values are kept for backward. The slow step that
    #: plans are compared with.
    kept: bool = False
    #: The module is in eval mode.
    in_eval: bool = False

    @property
    def estimates(self) -> str:
        """What says how long ops take that were not measured: "auto", or a roofline's name."""
        return "auto" if self.measured_s else self.costs

    def __post_init__(self) -> None:
        if self.mode not in MODES:
            raise InputError("mode must be %s, not %r" % (" or ".join(MODES), self.mode))
        super().__post_init__()
        whole_number("in_flight", self.in_flight, 0)
        refuse_bare_number(self.budget)
        if self.budget is not None and self.budget != KNEE:
            parse_budget(self.budget, 0)


def requested(request: Request, costs: Any, optimizer: Any = None,
              optimizer_params: Optional[Mapping[str, Any]] = None) -> Request:
    """The request with times of ops and an optimizer as users name them."""
    if optimizer is not None:
        request = replace(request, optimizer=optimizer_named(optimizer, optimizer_params))
    if isinstance(costs, Profile):
        return with_profile(request, costs)
    if costs not in ("auto", *ROOFLINES):
        raise InputError("costs must be auto, %s, or what memonger.torch.profile gave, not %r"
                         % (", ".join(ROOFLINES), costs))
    return replace(request, costs=costs)


def with_profile(request: Request, profile: Profile) -> Request:
    """The request with measured times of ops, and what they take while they run."""
    return replace(request, measured_s=profile.times_s, temporary_bytes=profile.known_bytes,
                   costs="profile: %s" % profile.device)


def with_host(request: Request, host: Union[None, str, int], link: Union[None, str, float],
              device: Optional[torch.device] = None, plan: Optional[Plan] = None) -> Request:
    """The request with what values may take on the host, and the speed of a copy there or back.

    ``host``: a size, or "auto": half of the host's memory that is free. ``device``: whose link is
    measured where ``link`` is not given; None: ranks are to decide alike. A plan has its own.
    """
    if plan is not None:
        asked = plan.options
        return request if asked.get("host_budget_bytes") is None else replace(
            request, host_budget_bytes=asked["host_budget_bytes"],
            link_bytes_per_s=asked["link_bytes_per_s"])
    if host is None:
        if link is not None:
            raise InputError("link= is the speed of copies to the host: give host=, too")
        return request
    free_bytes = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    host_bytes = free_bytes // 2 if host == "auto" else parse_bytes(host)
    return replace(request, host_budget_bytes=host_bytes, link_bytes_per_s=parse_rate(
        link_bytes_per_s(device) if link is None else link))


def resolved(budget: Budget, module: Any, inputs: Inputs) -> Budget:
    """``"auto"`` in bytes."""
    if budget != "auto":
        return budget
    device = device_of(module, inputs)
    if device.type != "cuda":
        raise InputError("budget \"auto\" is what a GPU has free, and the module is on %s; give a "
                         "size such as 8GB" % device)
    return int(0.95 * torch.cuda.mem_get_info(device)[0])
