"""The calls of memonger: plan, estimate, search_plan, make_mirror_plan, get_cost, strip, ..."""
from __future__ import annotations

import fnmatch
import time
from dataclasses import dataclass, field, replace
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple, Union

from . import native
from .errors import InfeasibleBudget, InputError, ShapeError, UnknownOpError
from .graph import Graph
from .optimizers import state_bytes
from .plan import Budget, Plan, Progress, Status
from .schedule import Recompute, Schedule, expand, recompute_of
from .units import format_bytes, parse_budget

Shapes = Mapping[str, Sequence[int]]
ProgressCallback = Callable[[Progress], None]


@dataclass(frozen=True)
class Estimate:
    """Bytes of one training step, nothing allocated.

    Attributes
    ----------
    by_category : mapping
        "parameters", "gradients", "aux", "inputs", "head_gradients", "pool", "workspace" and,
        where the optimizer was named, "optimizer". Outputs of the network are in the pool.
    pool_bytes, peak_live_bytes : int
        What MXNet allocates for internal tensors, and what of it is alive at the worst step.
    """

    by_category: Mapping[str, int]
    pool_bytes: int
    peak_live_bytes: int
    graph: Graph = field(repr=False)
    timeline: Any = field(repr=False, default=None)

    @property
    def total_bytes(self) -> int:
        return sum(self.by_category.values())


@dataclass(frozen=True)
class _Step:
    """A network with all that planning needs."""

    captured: Any
    graph: Graph
    fixed_bytes: Dict[str, int]
    costs: str


def _gather_shapes(symbol: Any, shapes: Optional[Shapes], named: Shapes, data_iter: Any) -> Shapes:
    """One dictionary of input shapes from all the ways to give them."""
    if shapes is not None and named:
        raise InputError("give shapes either as keyword arguments or as shapes={...}, not both: %s"
                         % ", ".join(sorted(named)))
    result: Dict[str, Sequence[int]] = {}
    if data_iter is not None:
        for description in list(data_iter.provide_data) + list(data_iter.provide_label or ()):
            result[description[0]] = tuple(description[1])
        result = {n: s for n, s in result.items() if n in symbol.list_arguments()}
    result.update(shapes if shapes is not None else named)
    return result


def _read(symbol: Any, shapes: Shapes, type_dict: Optional[Mapping[str, Any]], grad_req: Any,
          ctx: Any, costs: Any, optimizer: Optional[str],
          optimizer_params: Optional[Mapping[str, Any]], group2ctx: Any = None) -> _Step:
    from .cost import op_costs
    from .mx.read import read
    native.load()
    captured = read(symbol, shapes, type_dict, grad_req, ctx, group2ctx)
    model = op_costs(captured.graph, captured.attributes, costs)
    graph = captured.graph.with_times(model.times_s, model.workspaces_bytes)
    fixed = dict(captured.fixed_bytes)
    fixed["workspace"] = max([op.workspace_bytes for op in graph.ops] or [0])
    if optimizer:
        requests = dict(zip(captured.arguments.names, captured.arguments.grad_reqs))
        trained = [(t.size_bytes, t.dtype) for t in graph.tensors
                   if t.category == "parameter" and requests.get(t.name, "null") != "null"]
        fixed["optimizer"] = state_bytes(optimizer, trained, optimizer_params)
    return _Step(captured, graph, fixed, model.source)


def _pins(graph: Graph, patterns: Sequence[str], what: str) -> Tuple[int, ...]:
    """Ids of the forward ops that the patterns name; shell wildcards are allowed."""
    if isinstance(patterns, str):
        patterns = [patterns]
    names = graph.op_index
    found: List[int] = []
    for pattern in patterns:
        matching = [index for name, index in names.items() if fnmatch.fnmatchcase(name, pattern)]
        if not matching:
            import difflib
            close = difflib.get_close_matches(pattern, list(names), 3)
            raise UnknownOpError("%s=%r names no op of the network%s" % (
                what, pattern, "; did you mean %s?" % ", ".join(close) if close else ""))
        found += matching
    return tuple(sorted(set(found)))


def plan(symbol: Any, budget: Budget = None, method: str = "auto", variants: str = "exact",
         ctx: Any = None, type_dict: Optional[Mapping[str, Any]] = None, grad_req: Any = "write",
         keep: Sequence[str] = (), recompute: Sequence[str] = (), costs: Any = "auto",
         time_limit: float = 10.0, progress: Optional[ProgressCallback] = None,
         overhead: Union[None, str, float] = None, optimizer: Optional[str] = None,
         optimizer_params: Optional[Mapping[str, Any]] = None, data_iter: Any = None,
         group2ctx: Any = None, shapes: Optional[Shapes] = None, **named_shapes: Any) -> Plan:
    """Plan the memory of a training step.

    Parameters
    ----------
    symbol : mx.sym.Symbol
        The network, with its loss.
    budget : int, float or str, optional
        Largest total of the step: bytes, "4GB", "4GiB", "60%" of the unplanned total. Without
        one: the smallest pool that at most one extra forward pass buys.
    method : str
        "auto", "local", "milp", "sublinear", "chen", "ogc", or a registered name.
    variants : {"none", "exact", "all"}
        Which operator variants may be swapped in. "all" includes those whose results differ in
        the last bits (in-place BatchNorm).
    ctx, type_dict, grad_req, group2ctx
        As for ``simple_bind``. Planning never touches the device.
    keep, recompute : sequence of str
        Ops (shell wildcards allowed) that must, or must not, stay in memory.
    costs : "auto", a device preset, or a cost model
        Where op times come from; see :mod:`memonger.cost`.
    time_limit : float
        Seconds for the search.
    progress : callable, optional
        Called with :class:`memonger.plan.Progress` now and then.
    overhead : float or str, optional
        Largest extra step time, 0.1 or "10%": least memory within it. Not with ``budget``.
    optimizer, optimizer_params : optional
        Name and parameters of the optimizer; its state then counts in the total.
    data_iter : mx.io.DataIter, optional
        Gives the shapes of data and labels.
    shapes, **named_shapes
        Shapes of inputs by name, as for ``infer_shape``.

    Returns
    -------
    Plan

    Raises
    ------
    InfeasibleBudget
        If no plan fits; it carries the smallest total found and what pins it.
    ShapeError, InputError, UnknownOpError, UnitError, BindError
        If the input cannot be used.
    """
    started_s = time.perf_counter()
    if budget is not None and overhead is not None:
        raise InputError("give a budget or an overhead, not both")
    given = _gather_shapes(symbol, shapes, named_shapes, data_iter)
    options_record = {"budget": budget, "method": method, "variants": variants,
                      "overhead": overhead, "keep": list(keep), "recompute": list(recompute),
                      "shapes": {name: list(shape) for name, shape in sorted(given.items())}}
    step = _read(symbol, given, type_dict, grad_req, ctx, costs, optimizer, optimizer_params,
                 group2ctx)
    from .solve import solve
    from .solve.options import Options
    world = native.world()
    storage = native.storage_model()
    fixed_bytes = sum(step.fixed_bytes.values())
    base_pool_bytes = _pool_bytes(step.graph, expand(step.graph, {}), storage)
    pool_budget: Optional[int] = None
    total_budget: Optional[int] = None
    if budget is not None:
        total_budget = parse_budget(budget, base_pool_bytes + fixed_bytes)
        pool_budget = total_budget - fixed_bytes
    max_overhead = _share(overhead)
    if budget is None and overhead is None and step.graph.time_s > 0:
        max_overhead = step.graph.forward_time_s / step.graph.time_s
    options = Options(
        time_limit_s=time_limit, storage=storage, world=world, variants=variants,
        keep=_pins(step.graph, keep, "keep"), progress=progress,
        recompute=_pins(step.graph, recompute, "recompute"), costs=step.costs,
        objective="time" if budget is not None else "memory", max_overhead=max_overhead,
        fixed_bytes=step.fixed_bytes)
    found = solve(step.graph, pool_budget, method, options)
    return _finish(symbol, step, given, found, total_budget, options_record, grad_req, type_dict,
                   ctx, group2ctx, started_s)


def _share(value: Union[None, str, float]) -> Optional[float]:
    """An overhead as a share: "10%" and 0.1 are the same."""
    if value is None:
        return None
    try:
        share = float(value[:-1]) / 100 if isinstance(value, str) and value.endswith("%") \
            else float(value)
    except ValueError:
        raise InputError("cannot read the overhead %r; write it as 10%% or 0.1" % value) from None
    if not 0 <= share < float("inf"):
        raise InputError("the overhead cannot be %r" % (value,))
    return share


def _pool_bytes(graph: Graph, schedule: Schedule, storage: str) -> int:
    from .storage import plan_storage
    return plan_storage(graph, schedule, storage).pool_bytes


def _finish(symbol: Any, step: _Step, shapes: Shapes, found: Plan, budget_bytes: Optional[int],
            options_record: Mapping[str, Any], grad_req: Any, type_dict: Any, ctx: Any,
            group2ctx: Any, started_s: float) -> Plan:
    """Turn a solver's answer into a plan with a symbol, confirmed by binding that symbol."""
    from .mx.apply import apply_mirroring, apply_recompute
    from .mx.environment import mxnet
    from .mx.read import read
    mx = mxnet()
    original_json = symbol.tojson()
    if found.world == "stock":
        text = apply_mirroring(original_json, step.graph, set(found.schedule.recomputed()))
    else:
        text = apply_recompute(original_json, step.graph, recompute_of(step.graph, found.schedule))
    planned = mx.sym.load_json(text)
    bound = read(planned, shapes, type_dict, grad_req, ctx, group2ctx)
    return replace(
        found, original_json=original_json, symbol_json=planned.tojson(),
        pool_bytes=bound.pool_bytes, fixed_bytes=dict(step.fixed_bytes),
        budget_bytes=budget_bytes, costs=step.costs, options=dict(options_record),
        planning_s=time.perf_counter() - started_s)
