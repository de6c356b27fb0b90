"""Running cases of the benchmark: plan, count, and where asked for, train and measure."""
from __future__ import annotations

import contextlib
import dataclasses
from dataclasses import dataclass
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence

from ..util.errors import InfeasibleBudget, MemongerError
from ..zoo import nets
from .cases import Case, by_network
from .published import Published


@dataclass(frozen=True)
class Row:
    """What one case gave. Sizes are bytes, ``overhead`` and ``bound`` shares of the step."""

    network: str
    batch: int
    method: str
    target: str = ""
    #: What stock MXNet allocates for the network without any plan.
    unplanned_pool_bytes: int = 0
    unplanned_total_bytes: int = 0
    pool_bytes: int = 0
    total_bytes: int = 0
    overhead: float = 0.0
    #: No plan of the class has less overhead at this budget.
    bound: float = 0.0
    planning_s: float = 0.0
    status: str = ""
    costs: str = ""
    ops: int = 0
    #: Forward pass as a share of the unplanned step.
    forward: float = 0.0
    published: Optional[Published] = None
    #: From ``memonger.measure``, at its own batch; see :class:`memonger.bench.measuring.Trainer`.
    measured: Optional[Mapping[str, Any]] = None
    #: Why there is no result.
    error: str = ""

    @property
    def pool_cut(self) -> float:
        return 1.0 - self.pool_bytes / self.unplanned_pool_bytes

    @property
    def total_cut(self) -> float:
        return 1.0 - self.total_bytes / self.unplanned_total_bytes

    def to_dict(self) -> Dict[str, Any]:
        """For JSON; what is empty is left out."""
        return {name: value for name, value in dataclasses.asdict(self).items()
                if value not in (None, "")}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "Row":
        """Inverse of :meth:`to_dict`."""
        published = data.get("published")
        return cls(**{**data, "published": Published(**published) if published else None})


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
    """One network, with what stock MXNet needs for it."""

    def __init__(self, net: nets.Net, settings: Settings) -> None:
        self.net, self.settings = net, settings
        self.unplanned = stock_estimate(net, settings.costs)
        self.fixed_bytes = self.unplanned.total_bytes - self.unplanned.pool_bytes
        self.trainer: Any = None

    def run(self, case: Case) -> Row:
        graph = self.unplanned.graph
        row = Row(case.network, self.net.batch, case.method, case.target,
                  self.unplanned.pool_bytes, self.unplanned.total_bytes,
                  ops=graph.num_forward, published=case.published,
                  forward=graph.forward_time_s / graph.time_s if graph.time_s else 0.0)
        try:
            row = self._plan(case, row)
            if self.settings.measure_bytes:
                from .measuring import Trainer
                if self.trainer is None:
                    self.trainer = Trainer(case, self.settings)
                row = dataclasses.replace(row, measured=self.trainer.measure(case, row))
            return row
        except InfeasibleBudget as error:
            from ..util.units import format_bytes
            reason = "the smallest total found is %s" % format_bytes(error.minimum_bytes)
            if error.bound_bytes:
                proven = error.bound_bytes > error.budget_bytes
                reason = "%severy plan takes at least %s%s" % (
                    "impossible, " if proven else reason + ", ", format_bytes(error.bound_bytes),
                    " of %s" % format_bytes(error.budget_bytes) if proven else "")
            return dataclasses.replace(row, status="infeasible", error=reason)
        except MemongerError as error:
            return dataclasses.replace(row, status="failed", error=_first_line(error))

    def _plan(self, case: Case, row: Row) -> Row:
        if case.method in ("mxnet", "mirror"):
            found = self.unplanned
            if case.method == "mirror":
                from ..mx.environment import variable
                with variable("MXNET_BACKWARD_DO_MIRROR", "1"):
                    found = stock_estimate(self.net, self.settings.costs)
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


def make_plan(case: Case, net: nets.Net, pool_bytes: int, fixed_bytes: int,
              settings: Settings) -> Any:
    """The plan of a case; ``pool_bytes`` and ``fixed_bytes`` are those of stock MXNet."""
    from ..api.calls import plan
    method, _, variants = case.method.partition(":")
    symbol = net.symbol
    if method == "sublinear" and "hints" in _options(net):
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
            from ..mx import plugin as native
            native.load()
            stack.enter_context(native.switched(False, False))
        return plan(symbol, method=method, variants=variants or "none", costs=settings.costs,
                    time_limit=settings.time_limit_s, shapes=net.shapes, **wanted)


def stock_estimate(net: nets.Net, costs: Any) -> Any:
    """What MXNet does by itself: the plugin reads, but changes nothing."""
    from ..api.calls import estimate
    from ..mx import plugin as native
    native.load()
    with native.switched(False, False):
        return estimate(net.symbol, shapes=net.shapes, costs=costs)


def _options(net: nets.Net) -> Mapping[str, Any]:
    import importlib
    module = importlib.import_module("." + net.spec.family, nets.__name__)
    return getattr(module, net.spec.builder).__kwdefaults__ or {}


def _first_line(error: BaseException) -> str:
    return "%s: %s" % (type(error).__name__, (str(error).splitlines() or [""])[0])
