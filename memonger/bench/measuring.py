"""Training networks of the benchmark for real, on this machine."""
from __future__ import annotations

import dataclasses
import os
import statistics
import tempfile
from typing import Any, Dict, Mapping, Optional, Tuple

from ..profiles import save_profile
from ..session import open_session
from . import nets
from .cases import Case
from .runner import Settings, make_plan, stock_estimate

#: How often a plan is made that takes variants beside each other.
_ATTEMPTS = 4


class Trainer:
    """One network at a batch that fits this machine, with the times of its ops measured here.

    The batch is the largest power of two, at most the published batch, whose unplanned total is
    at most ``settings.measure_bytes``.
    """

    def __init__(self, case: Case, settings: Settings) -> None:
        batch = case.batch or nets.spec(case.network).batch
        batch = 1 << (batch.bit_length() - 1)
        while True:
            self.net = nets.build(case.network, batch, **dict(case.options))
            self.estimate = stock_estimate(self.net, "auto")
            if self.estimate.total_bytes <= settings.measure_bytes or batch == 1:
                break
            batch //= 2
        self.settings = dataclasses.replace(settings, costs=self._profile(settings))

    def _profile(self, settings: Settings, chosen: Optional[Mapping[str, str]] = None) -> Any:
        from ..mx.profile import profile
        with tempfile.TemporaryDirectory(prefix="memonger") as folder:
            path = os.path.join(folder, "ops.json")
            if chosen:
                save_profile(settings.costs, path)
            return profile(self.net.symbol, self.net.shapes, path=path, chosen=chosen,
                           time_limit=settings.profile_limit_s)

    def _plan(self, case: Case) -> Tuple[Any, float]:
        """The case's plan and the overhead that measured times predict for it.

        Variants that it takes are measured beside each other, and it is made again with these
        times until it takes the same.
        """
        from ..mx.profile import variants_of
        fixed_bytes = self.estimate.total_bytes - self.estimate.pool_bytes
        settings = self.settings
        measured: Dict[str, str] = {}
        for _ in range(_ATTEMPTS):
            plan = make_plan(case, self.net, self.estimate.pool_bytes, fixed_bytes, settings)
            chosen = variants_of(plan)
            if chosen == measured:
                return plan, plan.overhead
            measured = chosen
            settings = dataclasses.replace(settings, costs=self._profile(settings, chosen))
        session = open_session(self.net.symbol, self.net.shapes, None, "write", None,
                               settings.costs, None, None, None)
        graph = session.with_variants(exact_only=case.method.endswith(":exact")).graph
        return plan, plan.schedule.time_s(graph) / graph.time_s - 1.0

    def measure(self, case: Case) -> Optional[Dict[str, Any]]:
        """Train without and with the case's plan, in turn; medians.

        The plan is made for the network at this batch, with the measured times of its ops.
        """
        from ..api import measure
        if case.method in ("mxnet", "mirror"):
            return None
        plan, predicted = self._plan(case)
        found = measure(plan.symbol, original=self.net.symbol, steps=self.settings.measure_steps,
                        shapes=self.net.shapes)
        before = found.original
        return {"batch": self.net.batch, "device": found.device, "costs": plan.costs,
                "bytes": found.allocated_bytes, "unplanned_bytes": before.allocated_bytes,
                "predicted_bytes": plan.total_bytes,
                "predicted_unplanned_bytes": self.estimate.total_bytes,
                "overhead": statistics.median(
                    a / b for a, b in zip(found.steps_s, before.steps_s)) - 1.0,
                "predicted_overhead": predicted,
                "step_s": found.step_s, "unplanned_step_s": before.step_s}
