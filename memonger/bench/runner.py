"""Runs cases of the benchmark: plans, counts bytes, and on request trains and measures."""
from __future__ import annotations

import dataclasses
from typing import Callable, List, Optional, Sequence

from ..mx.environment import variable
from ..util.errors import InfeasibleBudget, MemongerError
from ..util.units import format_bytes, format_distinct
from ..zoo import nets
from .cases import Case, by_network
from .measuring import Trainer
from .planning import Settings, make_plan, stock_estimate
from .rows import Row


def run_cases(cases: Sequence[Case], settings: Settings, jobs: int = 1,
              on_row: Optional[Callable[[Row], None]] = None) -> List[Row]:
    """Run all cases, networks side by side in ``jobs`` processes.

    Parameters
    ----------
    on_row : callable, optional
        Called with each row as it comes; the result is in the order of ``cases`` by network.
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
        bench = _Network(net, settings)
    except MemongerError as error:
        return [Row(case.network, case.batch, case.method, case.target, published=case.published,
                    error=_first_line(error)) for case in cases]
    for case in cases:
        rows.append(bench.run(case))
        if on_row:
            on_row(rows[-1])
    return rows


class _Network:
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
                row = dataclasses.replace(row, measured=self.trainer.measure(case, row))
            return row
        except InfeasibleBudget as error:
            reason = "the smallest total found is %s" % format_bytes(error.minimum_bytes)
            if error.bound_bytes:
                proven = error.bound_bytes > error.budget_bytes
                least, budget = format_distinct(error.bound_bytes, error.budget_bytes)
                reason = "impossible: needs at least %s, budget %s" % (least, budget) \
                    if proven else "%s, every plan takes at least %s" % (reason, least)
            return dataclasses.replace(row, status="infeasible", error=reason)
        except MemongerError as error:
            return dataclasses.replace(row, status="failed", error=_first_line(error))

    def _plan(self, case: Case, row: Row) -> Row:
        if case.method in ("mxnet", "mirror"):
            found = self.unplanned
            if case.method == "mirror":
                with variable("MXNET_BACKWARD_DO_MIRROR", "1"):
                    found = stock_estimate(self.net, self.settings.costs, self.settings.ctx)
            base_s = self.unplanned.graph.time_s
            return dataclasses.replace(
                row, pool_bytes=found.pool_bytes, total_bytes=self.fixed_bytes + found.pool_bytes,
                overhead=found.graph.time_s / base_s - 1.0 if base_s else 0.0, status="as it is")
        plan = make_plan(case, self.net, self.unplanned.pool_bytes, self.fixed_bytes,
                         self.settings)
        return dataclasses.replace(
            row, pool_bytes=plan.pool_bytes, total_bytes=plan.total_bytes, overhead=plan.overhead,
            bound=plan.bound, planning_s=plan.planning_s, status=plan.status.value,
            costs=plan.costs)


def _first_line(error: BaseException) -> str:
    return "%s: %s" % (type(error).__name__, (str(error).splitlines() or [""])[0])
