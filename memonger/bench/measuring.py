"""Trains networks of the benchmark on this machine and measures them."""
from __future__ import annotations

import dataclasses
import os
import tempfile
from typing import Any, Dict, Optional

from ..costs.models import Profile
from ..util.errors import InfeasibleBudget
from ..util.units import format_bytes
from ..zoo import nets
from .cases import Case
from .planning import Settings, make_plan, stock_estimate
from .rows import Row


class Trainer:
    """One network at a batch that fits this machine, with the times of its ops measured here.

    The batch is the largest power of two, at most the published batch and
    ``settings.measure_batch``, whose unplanned total is at most ``settings.measure_bytes``.
    """

    def __init__(self, case: Case, settings: Settings) -> None:
        batch = case.batch or nets.spec(case.network).batch
        batch = min(batch, settings.measure_batch or batch)
        batch = 1 << (batch.bit_length() - 1)
        while True:
            self.net = nets.build(case.network, batch, **dict(case.options))
            self.estimate = stock_estimate(self.net, "reference", settings.ctx)
            if self.estimate.total_bytes <= settings.measure_bytes or batch == 1:
                break
            batch //= 2
        self.settings = dataclasses.replace(settings, costs=_profile(self.net, settings))

    def measure(self, case: Case, row: Row) -> Optional[Dict[str, Any]]:
        """Train without and with the case's plan, in turn; medians.

        The plan is for the network at this batch, with measured op times. For a published row its
        target is a share of the pool, which gives the published memory at the published batch: a
        share of the total would ask too much of a smaller batch, where parameters weigh more.
        """
        from ..api.calls import measure
        if case.method in ("mxnet", "mirror"):
            return None
        if case.published:
            share = case.published.share
            if case.published.scope == "total":
                saved_bytes = (1.0 - share) * row.unplanned_total_bytes
                share = 1.0 - saved_bytes / row.unplanned_pool_bytes
            case = dataclasses.replace(case, target="pool %.4f%%" % (100 * share))
        try:
            plan = make_plan(case, self.net, self.estimate.pool_bytes,
                             self.estimate.total_bytes - self.estimate.pool_bytes, self.settings)
        except InfeasibleBudget as error:
            return {"batch": self.net.batch, "error": "%s at this batch: the smallest total found "
                    "is %s" % (case.target, format_bytes(error.minimum_bytes))}
        found = measure(plan.symbol, original=self.net.symbol, steps=self.settings.measure_steps,
                        shapes=self.net.shapes, ctx=self.settings.ctx)
        before = found.original
        return {"batch": self.net.batch, "device": found.device, "costs": plan.costs,
                "pool_cut": 1.0 - plan.pool_bytes / self.estimate.pool_bytes,
                "bytes": found.allocated_bytes, "unplanned_bytes": before.allocated_bytes,
                "predicted_bytes": plan.total_bytes,
                "predicted_unplanned_bytes": self.estimate.total_bytes,
                "overhead": found.overhead, "predicted_overhead": plan.overhead,
                "step_s": found.step_s, "unplanned_step_s": before.step_s}


def _profile(net: nets.Net, settings: Settings) -> Profile:
    """Times of the network's ops and variants, measured now."""
    from ..mx.profile.run import profile
    with tempfile.TemporaryDirectory(prefix="memonger") as folder:
        return profile(net.symbol, net.shapes, ctx=settings.ctx,
                       path=os.path.join(folder, "ops.json"),
                       time_limit=settings.profile_limit_s)
