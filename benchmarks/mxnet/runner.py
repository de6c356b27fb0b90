"""Runs cases of the benchmark: plans, counts bytes, and on request trains and measures."""
from __future__ import annotations

import os
import tempfile
import time
from dataclasses import dataclass, replace
from typing import Any, Callable, Dict, List, Optional, Sequence

from memonger.mx.calls.dmlc import search_plan
from memonger.mx.calls.plan import estimate, measure, plan
from memonger.mx.costs.models import Profile
from memonger.mx.plugin import loading as native
from memonger.util.environment import variable
from memonger.util.errors import InfeasibleBudget, MemongerError
from memonger.util.units import format_bytes, format_distinct
from memonger.zoo import nets

from .cases import STOCK, Case, Row, by_network


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
    #: The ``mx.Context`` to plan and train for; None: the CPU.
    ctx: Any = None


def make_plan(case: Case, net: nets.Net, pool_bytes: int, fixed_bytes: int,
              settings: Settings) -> Any:
    """The plan of a case; ``pool_bytes`` and ``fixed_bytes`` are those of stock MXNet."""
    method, _, variants = case.method.partition(":")
    budget, goal = None, case.goal()
    if goal is not None:
        kind, share = goal
        budget = int(share * pool_bytes) + fixed_bytes if kind == "pool" else \
            int(share * (pool_bytes + fixed_bytes))
    return plan(net.symbol, budget=budget, method=method, variants=variants or "none",
                costs=settings.costs, time_limit=settings.time_limit_s, shapes=net.shapes,
                ctx=settings.ctx)


def stock_estimate(net: nets.Net, costs: Any, ctx: Any = None, searched: bool = False) -> Any:
    """The estimate for stock MXNet: the plugin reads the network and changes nothing.

    ``searched``: with the marks that dmlc's rule sets for MXNet's own mirroring.
    """
    native.load()
    with native.switched(False, False):
        symbol = search_plan(net.symbol, shapes=net.shapes) if searched else net.symbol
        return estimate(symbol, shapes=net.shapes, costs=costs, ctx=ctx)


def run_cases(cases: Sequence[Case], settings: Settings, jobs: int = 1,
              on_row: Optional[Callable[[Row], None]] = None) -> List[Row]:
    """Run all cases, networks side by side in ``jobs`` processes.

    ``on_row``: called with each row as it comes; the result is in the order of ``cases`` by
        network.
    """
    groups = by_network(cases)
    rows: List[List[Row]] = [[] for _ in groups]

    if jobs <= 1:
        for index, group in enumerate(groups):
            rows[index] = run_network(group, settings, on_row)
    else:
        import multiprocessing
        from concurrent.futures import ProcessPoolExecutor, as_completed
        # MXNet does not survive a fork with its threads running.
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(jobs, mp_context=context) as pool:
            waiting = {pool.submit(run_network, group, settings): index
                       for index, group in enumerate(groups)}
            for done in as_completed(waiting):
                rows[waiting[done]] = done.result()
                for row in done.result():
                    if on_row:
                        on_row(row)
    return [row for found in rows for row in found]


def run_network(cases: Sequence[Case], settings: Settings,
                on_row: Optional[Callable[[Row], None]] = None) -> List[Row]:
    """Cases of one network and batch; an error becomes a row that says so."""
    first = cases[0]
    rows: List[Row] = []
    try:
        net = nets.build(first.network, first.batch or None, **dict(first.options))
        bench = NetworkRuns(net, settings)
    except MemongerError as error:
        return [Row(case.network, case.batch, case.method, case.target, published=case.published,
                    error=_first_line(error)) for case in cases]
    for case in cases:
        rows.append(bench.run(case))
        if on_row:
            on_row(rows[-1])
    return rows


class NetworkRuns:
    """One network, with the estimate for stock MXNet."""

    def __init__(self, net: nets.Net, settings: Settings) -> None:
        self.net, self.settings = net, settings
        self.unplanned = stock_estimate(net, settings.costs, settings.ctx)
        self.fixed_bytes = self.unplanned.total_bytes - self.unplanned.pool_bytes
        self.trainer: Optional[Trainer] = None

    def run(self, case: Case) -> Row:
        graph = self.unplanned.graph
        row = Row(case.network, self.net.batch, case.method, case.target,
                  self.unplanned.pool_bytes, self.unplanned.total_bytes,
                  ops=graph.num_forward, published=case.published,
                  forward=graph.forward_time_s / graph.time_s if graph.time_s else 0.0)
        try:
            row = self._plan(case, row)
            if self.settings.measure_bytes:
                if self.trainer is None:
                    self.trainer = Trainer(case, self.settings)
                row = replace(row, measured=self.trainer.measure(case, row))
            return row
        except InfeasibleBudget as error:
            reason = "the smallest total found is %s" % format_bytes(error.minimum_bytes)
            if error.bound_bytes:
                proven = error.bound_bytes > error.budget_bytes
                least, budget = format_distinct(error.bound_bytes, error.budget_bytes)
                reason = "impossible: needs at least %s, budget %s" % (least, budget) \
                    if proven else "%s, every plan takes at least %s" % (reason, least)
            return replace(row, status="infeasible", error=reason)
        except MemongerError as error:
            return replace(row, status="failed", error=_first_line(error))

    def _plan(self, case: Case, row: Row) -> Row:
        if case.method in STOCK:
            found = self.unplanned
            if case.method == "mirror":
                with variable("MXNET_BACKWARD_DO_MIRROR", "1"):
                    found = stock_estimate(self.net, self.settings.costs, self.settings.ctx)
            elif case.method == "sublinear":
                net = self.net
                if "hints" in nets.options(net.name):  # the example's author marked where to divide
                    net = nets.build(net.name, net.batch, **{**dict(case.options), "hints": True})
                found = stock_estimate(net, self.settings.costs, self.settings.ctx, True)
            base_s = self.unplanned.graph.time_s
            return replace(
                row, pool_bytes=found.pool_bytes, total_bytes=self.fixed_bytes + found.pool_bytes,
                overhead=found.graph.time_s / base_s - 1.0 if base_s else 0.0, status="unplanned")
        started_s = time.process_time()  # other jobs run beside this one
        plan = make_plan(case, self.net, self.unplanned.pool_bytes, self.fixed_bytes,
                         self.settings)
        planning_s = time.process_time() - started_s
        return replace(
            row, pool_bytes=plan.pool_bytes, total_bytes=plan.total_bytes, overhead=plan.overhead,
            bound=plan.bound, planning_s=planning_s, status=plan.status.value,
            costs=plan.costs)


def _first_line(error: BaseException) -> str:
    return "%s: %s" % (type(error).__name__, (str(error).splitlines() or [""])[0])


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
        self.settings = replace(settings, costs=measured_costs(self.net, settings))
        #: Outside the pool of a planned network, whose operators copy more than stock MXNet's.
        self.fixed_bytes = sum(plan(self.net.symbol, method="chen", shapes=self.net.shapes,
                                    costs=self.settings.costs, ctx=settings.ctx)
                               .fixed_bytes.values())

    def measure(self, case: Case, row: Row) -> Optional[Dict[str, Any]]:
        """Train without and with the case's plan, in turn; medians.

        The plan is for the network at this batch, with measured op times. For a published row its
        target is a share of the pool, which gives the published memory at the published batch: a
        share of the total would ask too much of a smaller batch, where parameters and what
        operators copy weigh more.
        """
        if case.method in STOCK:
            return None
        if case.published:
            share = case.published.share
            if case.published.scope == "total":
                saved_bytes = (1.0 - share) * row.unplanned_total_bytes
                share = 1.0 - saved_bytes / row.unplanned_pool_bytes
            case = replace(case, target="pool %.4f%%" % (100 * share))
        try:
            made = make_plan(case, self.net, self.estimate.pool_bytes, self.fixed_bytes,
                             self.settings)
        except InfeasibleBudget as error:
            return {"batch": self.net.batch, "error": "%s at this batch: the smallest total found "
                    "is %s" % (case.target, format_bytes(error.minimum_bytes))}
        found = measure(made.symbol, original=self.net.symbol, steps=self.settings.measure_steps,
                        shapes=self.net.shapes, ctx=self.settings.ctx)
        before = found.original
        assert before is not None  # it was given
        return {"batch": self.net.batch, "device": found.device, "costs": made.costs,
                "pool_cut": 1.0 - made.pool_bytes / self.estimate.pool_bytes,
                "bytes": found.allocated_bytes, "unplanned_bytes": before.allocated_bytes,
                "predicted_bytes": made.total_bytes,
                "predicted_unplanned_bytes": self.estimate.total_bytes,
                "overhead": found.overhead, "predicted_overhead": made.overhead,
                "step_s": found.step_s, "unplanned_step_s": before.step_s}


def measured_costs(net: nets.Net, settings: Settings) -> Profile:
    """Times of the network's ops and variants, measured now."""
    from memonger.mx.profile.run import profile
    with tempfile.TemporaryDirectory(prefix="memonger") as folder:
        return profile(net.symbol, net.shapes, ctx=settings.ctx,
                       path=os.path.join(folder, "ops.json"))
