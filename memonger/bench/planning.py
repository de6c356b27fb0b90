"""Plans for cases of the benchmark, and estimates for stock MXNet."""
from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import Any, Dict

from ..api.calls import estimate, plan
from ..mx import plugin as native
from ..zoo import nets
from .cases import Case


@dataclass(frozen=True)
class Settings:
    """How to plan and measure."""

    costs: Any = "reference"
    time_limit_s: float = 10.0
    #: Measure too, with networks no larger than this in all.
    measure_bytes: int = 0
    #: And at no larger batch than this; 0: no such limit.
    measure_batch: int = 0
    measure_steps: int = 5
    #: Seconds for measuring the ops of a network.
    profile_limit_s: float = 60.0
    #: The ``mx.Context`` to plan and train for; None: the CPU.
    ctx: Any = None


def make_plan(case: Case, net: nets.Net, pool_bytes: int, fixed_bytes: int,
              settings: Settings) -> Any:
    """The plan of a case; ``pool_bytes`` and ``fixed_bytes`` are those of stock MXNet."""
    method, _, variants = case.method.partition(":")
    symbol = net.symbol
    if method == "sublinear" and "hints" in nets.options(net.name):
        # The example's author marked the dividing points for this method.
        symbol = nets.build(net.name, net.batch, **{**dict(case.options), "hints": True}).symbol
    wanted: Dict[str, Any] = {}
    goal = case.goal()
    if goal is not None:
        kind, share = goal
        if kind == "overhead":
            wanted["overhead"] = share
        elif kind == "pool":
            wanted["budget"] = int(share * pool_bytes) + fixed_bytes
        else:
            wanted["budget"] = int(share * (pool_bytes + fixed_bytes))
    with contextlib.ExitStack() as stack:
        if method == "sublinear":  # as in dmlc/mxnet-memonger: by MXNet's own mirroring
            native.load()
            stack.enter_context(native.switched(False, False))
        return plan(symbol, method=method, variants=variants or "none", costs=settings.costs,
                    time_limit=settings.time_limit_s, shapes=net.shapes, ctx=settings.ctx,
                    **wanted)


def stock_estimate(net: nets.Net, costs: Any, ctx: Any = None) -> Any:
    """The estimate for stock MXNet: the plugin reads the network and changes nothing."""
    native.load()
    with native.switched(False, False):
        return estimate(net.symbol, shapes=net.shapes, costs=costs, ctx=ctx)
