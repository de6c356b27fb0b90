"""A network read once: its graph with times, its bytes outside the pool, and the way back."""
from __future__ import annotations

import contextlib
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple

import numpy as np

from ...graph.schedule import expand
from ...graph.types import Graph
from ...memory import arena
from ...memory.storage import never_written_bytes, plan_storage
from ...memory.timeline import Timeline, timeline
from ...memory.workspace import objects_bytes
from ...plan.plan import Plan
from ...util.gc_pause import paused
from ..capture.devices import away
from ..capture.record import Captured
from ..costs.models import CostModel, Roofline, best_known
from ..memory.gpu_pool import BoundStep, Device, callers_outputs, reservations, workspaces
from ..memory.mkldnn import mkldnn_workspaces, stock_copies
from ..memory.native_workspaces import OBJECTS_LEAST_OPS, native_workspaces, objects_bytes_per_op
from ..memory.optimizer_state import state_arrays
from ..memory.stated_gpu import device_of
from ..plugin import loading as native
from ..plugin.environment import mkldnn_is_on
from ..profile.run import stored_profile
from ..rewrite.apply import apply_plan_to, asks_for_arena, is_planned, unforced, without_plan
from ..rewrite.variant_graph import with_variants
from ..symbol.common_subexpressions import to_json
from .op_times import cost_model, estimates
from .requests import Binding

#: A graph and its symbol to the graph of another runner.
Reshape = Callable[[Graph, Any], Graph]


@dataclass(frozen=True)
class Estimate:
    """Bytes of one training step, nothing allocated.

    Attributes
    ----------
    by_category : mapping
        "parameters", "gradients", "aux", "inputs", "head_gradients", "pool", "workspace",
        where the optimizer was named "optimizer", and on a GPU what
        :meth:`memonger.mx.memory.gpu_pool.BoundStep.extra_bytes` counts. Outputs of the network are
        in the pool. On a CPU without MKLDNN "never_written", less than 0, is what of the pool never
        gets resident: second outputs of max pooling. Networks of thousands of ops have "objects"
        there: those of MXNet's executor for each op that runs. On a CPU with MKLDNN
        "layout_copies" are what the executor of a network without a plan keeps for operators that
        are not MKLDNN's.
    pool_bytes, peak_live_bytes : int
        What MXNet allocates for internal tensors, and what of it is alive at the worst step.
    """

    by_category: Mapping[str, int]
    pool_bytes: int
    peak_live_bytes: int
    graph: Graph = field(repr=False)
    #: How the symbol's executors assign storage.
    storage: str = "best"
    #: Totals of a network on several devices, by the name of each.
    by_device: Mapping[str, int] = field(default_factory=dict)

    @property
    def total_bytes(self) -> int:
        """Of all categories."""
        return sum(self.by_category.values())

    def timeline(self) -> Timeline:
        """Live and pool bytes at each step, with the op that runs."""
        return timeline(self.graph, expand(self.graph, {}), self.storage)

    def to_dict(self) -> Dict[str, Any]:
        """All numbers, fit for JSON."""
        return {"by_category": dict(self.by_category), "total_bytes": self.total_bytes,
                "pool_bytes": self.pool_bytes, "peak_live_bytes": self.peak_live_bytes,
                **({"by_device": dict(self.by_device)} if self.by_device else {})}

    def __str__(self) -> str:
        from ...report.text import estimate_table
        return estimate_table(self.by_category, by_device=self.by_device, graph=self.graph)


@dataclass(frozen=True)
class Session:
    """A symbol with shapes, bound once without allocation."""

    symbol: Any
    binding: Binding
    graph: Graph
    fixed_bytes: Mapping[str, int]
    #: Where op times come from.
    costs: str
    #: Pool of the unplanned symbol, on stock MXNet.
    unplanned_pool_bytes: int
    captured: Captured = field(repr=False)
    #: The cost model that priced the graph.
    model: CostModel = field(repr=False)
    #: Costs and optimizer as they were asked for, where a name tells them.
    asked: Mapping[str, Any] = field(repr=False)
    #: How the GPU hands out memory; None on a CPU.
    device: Optional[Device]
    #: The symbol as an executor of it runs; on a GPU point-wise ops may be fused.
    as_run: Captured = field(repr=False)
    #: The symbol that ``captured`` and ``as_run`` were read from.
    network: Any = field(repr=False)
    #: Turns the graph of an executor, read from a symbol, into that of another runner.
    reshape: Reshape = field(repr=False)
    #: Sizes of the arrays that the optimizer makes.
    optimizer_arrays: Tuple[int, ...] = field(repr=False)
    #: Largest workspace of the unplanned symbol, on stock MXNet.
    unplanned_workspace_bytes: int
    #: What of ``unplanned_pool_bytes`` is never resident.
    never_written_bytes: int
    #: MXNet's objects for each op of the unplanned symbol; 0 where they are not counted.
    unplanned_objects_bytes_per_op: int
    #: What stock MXNet keeps of arrays in other layouts, for the unplanned symbol.
    unplanned_copies_bytes: int
    #: Whether plans may ask for an arena.
    has_arena: bool = True

    @paused()
    def read(self, symbol: Any) -> Captured:
        """Another form of the same network, bound in the same way."""
        return self.binding.read(symbol)

    @property
    def storage(self) -> str:
        """How the memory of a plan is assigned; see :mod:`memonger.memory.storage`."""
        found = native.storage_model()
        fits = self.has_arena and arena.fits(self.graph)
        return "best" if found == "arena" and not fits else found

    @property
    def tunes(self) -> bool:
        """Whether MXNet tunes convolutions of the network."""
        return self.device is not None and self.device.autotunes and \
            any(reservations(self.graph, op) for op in self.graph.ops)

    def bound_bytes(self, captured: Captured, symbol: Any,
                    storage: str) -> Tuple[int, Dict[str, int]]:
        """Pool of a form of the network, and what it takes of the GPU besides; {} on a CPU."""
        is_executor = self.graph.pools == "executor"
        if is_executor and self.device is None:
            return int(captured.pool_bytes), {}
        step = self._bound_step(captured, symbol, storage)
        return (int(captured.pool_bytes) if is_executor else step.storage.pool_bytes,
                {} if self.device is None else
                step.extra_bytes(self.device, self._arrays(captured)))

    def device_bytes(self, captured: Captured, symbol: Any, storage: str) -> Dict[str, int]:
        """What a form of the network takes of the GPU besides; {} on a CPU."""
        return {} if self.device is None else self.bound_bytes(captured, symbol, storage)[1]

    def _bound_step(self, captured: Captured, symbol: Any, storage: str) -> BoundStep:
        spaces = _workspaces(captured, self.device, self.model)
        graph = self.reshape(captured.graph.with_times([0.0] * len(spaces), spaces), symbol)
        names = [op.name for op in captured.graph.ops]
        return BoundStep(graph, dict(zip(names, captured.attributes)),
                         dict(zip(names, captured.resources)),
                         plan_storage(graph, expand(graph, {}), storage))

    def _times_and_workspaces(self, captured: Captured) -> Tuple[Sequence[float], Sequence[int]]:
        """Seconds and bytes of each op."""
        found = self.model.op_times(captured.graph, captured.attributes)
        return found.times_s, _workspaces(captured, self.device, self.model)

    def _arrays(self, captured: Captured) -> List[int]:
        """Sizes of the arrays outside a step."""
        requests = dict(zip(captured.arguments.names, captured.arguments.grad_reqs))
        cached = self.graph.pools == "cached_op"  # which makes the gradients for outputs itself
        outside = [t for number, t in enumerate(captured.graph.tensors)
                   if t.producer < 0 and number not in captured.elsewhere
                   and not (cached and t.category == "head_gradient")]
        trained = [t for t in outside if requests.get(t.name, "null") != "null"]
        return [*(t.size_bytes for t in outside + trained), *self.optimizer_arrays]

    def pool_within(self, total_bytes: int) -> Tuple[int, Dict[str, int]]:
        """Of a total: what is left for the pool, and all else by category."""
        fixed = dict(self.fixed_bytes)
        if self.device is None:
            return total_bytes - sum(fixed.values()), fixed
        step = self._bound_step(self.captured, self.network, self.storage)
        extra = step.extra_bytes(self.device, self._arrays(self.captured))
        buffers = step.storage.buffer_bytes
        extra["rounding"] -= self.device.all_rounded(buffers) - sum(buffers)
        left_bytes = total_bytes - sum(fixed.values()) - sum(extra.values())
        pool_bytes = step.pool_within(self.device, left_bytes)
        extra["rounding"] += left_bytes - pool_bytes
        return pool_bytes, {**fixed, **extra}

    @cached_property
    def unplanned_fixed_bytes(self) -> Dict[str, int]:
        """Bytes outside the pool of the unplanned symbol, on stock MXNet."""
        return {**self.fixed_bytes, "workspace": self.unplanned_workspace_bytes,
                **self._as_stock, **self.device_bytes(self.as_run, self.network, "stock")}

    @property
    def _as_stock(self) -> Dict[str, int]:
        """Never resident bytes, objects and copies of the unplanned symbol."""
        graph = replace(self.graph,
                        objects_bytes_per_op=self.unplanned_objects_bytes_per_op)
        found = {"never_written": -self.never_written_bytes, "objects": objects_bytes(graph),
                 "layout_copies": self.unplanned_copies_bytes}
        return {name: size for name, size in found.items() if size}

    @property
    def unplanned_total_bytes(self) -> int:
        """All bytes of the unplanned symbol, on stock MXNet."""
        return self.unplanned_pool_bytes + sum(self.unplanned_fixed_bytes.values())

    def as_unplanned(self) -> "Session":
        """The same, taking no more outside the pool than on stock MXNet."""
        most = self.unplanned_workspace_bytes
        objects = self.unplanned_objects_bytes_per_op
        if self.fixed_bytes["workspace"] <= most and not self.never_written_bytes \
                and not self.unplanned_copies_bytes and self.graph.objects_bytes_per_op == objects:
            return self
        ops = self.graph.ops
        graph = self.graph.with_times([op.time_s for op in ops],
                                      [min(op.workspace_bytes, most) for op in ops])
        graph = replace(graph, objects_bytes_per_op=objects)
        return replace(self, graph=graph, fixed_bytes={
            **self.fixed_bytes, "workspace": min(most, self.fixed_bytes["workspace"]),
            **self._as_stock})

    @property
    def record(self) -> Dict[str, Any]:
        """Shapes, types, gradient requests, costs and optimizer, to be saved with a plan."""
        return {**self.binding.record(self.captured.arguments), **self.asked}

    @paused()
    def with_variants(self, exact_only: bool) -> "Session":
        """The same, its graph offering the operator variants that the symbol allows."""
        graph = with_variants(
            self.graph, to_json(unforced(self.symbol)), exact_only, self.read,
            self._times_and_workspaces, on_gpu=self.device is not None)
        return replace(self, graph=replace(graph, variants=tuple(
            variant for variant in graph.variants
            if not any(away(self.captured, graph.ops[op]) for op, _ in variant.choices))))

    def apply(self, plan: Plan) -> Any:
        """The symbol with the plan's decisions on it."""
        return apply_plan_to(self.symbol, plan)

    def estimate(self) -> Estimate:
        """Of a network without a plan what MXNet takes alone; of others what this process takes."""
        live = plan_storage(self.graph, expand(self.graph, {}), "live")
        pool_bytes, storage = self.as_run.pool_bytes, native.storage_model()
        fixed_bytes, graph = self.fixed_bytes, self.graph
        if not is_planned(self.symbol):
            pool_bytes, storage = self.unplanned_pool_bytes, "stock"
            fixed_bytes, graph = self.unplanned_fixed_bytes, self.as_unplanned().graph
        elif storage == "arena":
            storage = self.storage if asks_for_arena(self.symbol) else "best"
        by_category = dict(fixed_bytes, pool=pool_bytes,
                           **self.device_bytes(self.as_run, self.network, storage))
        return Estimate(by_category, pool_bytes, live.pool_bytes, graph, storage)


def _workspaces(captured: Captured, device: Optional[Device], model: CostModel,
                planned: bool = True) -> Sequence[int]:
    """What MXNet's code takes; for the preset of another device what the graph says."""
    spaces = _of_all(captured, device, model, planned)
    return [0 if away(captured, op) else space for op, space in zip(captured.graph.ops, spaces)]


def _of_all(captured: Captured, device: Optional[Device], model: CostModel,
            planned: bool) -> Sequence[int]:
    if device is not None:
        return workspaces(device, captured.graph)
    if not mkldnn_is_on():
        return native_workspaces(captured.graph, captured.attributes)
    if not _is_of_cpu(model):
        return [op.workspace_bytes for op in captured.graph.ops]
    return mkldnn_workspaces(captured.graph, captured.attributes, planned)


def _is_of_cpu(model: CostModel) -> bool:
    """False for the preset of another device."""
    return not isinstance(model, Roofline) or model.device.name == "cpu"


@paused()
def open_session(symbol: Any, binding: Binding, costs: Any = "auto",
                 reshape: Optional[Reshape] = None,
                 as_it_is: bool = False, copies_stay: bool = True) -> Session:
    """Read a network and price its ops.

    ``reshape`` turns the graph of an executor into that of a CachedOp. With
    ``as_it_is`` a plan on the symbol and the user's ``force_mirroring`` show in the graph; else the
    plan is taken off, and the marks are hints on the ops. ``copies_stay``: who runs the network
    keeps the copies between MKLDNN's layouts and others, as executors do.
    """
    native.load()
    symbol = symbol if as_it_is else without_plan(symbol)
    network = symbol if as_it_is else unforced(symbol)
    ctx, optimizer, optimizer_params = binding.ctx, binding.optimizer, binding.optimizer_params
    device = device_of(binding.memory_ctx)
    with contextlib.ExitStack() as stack:
        if network is not symbol:  # MXNet's own mirroring would not see that the marks are off
            stack.enter_context(native.switched(True, native.storage_model() != "stock",
                                                native.storage_model() == "arena"))
        as_run = captured = binding.read(network)
        if device is not None and device.fuses:
            as_run = binding.read(network, as_run=True)
    if isinstance(costs, str) and costs == "auto":
        model = best_known(captured.graph, captured.attributes, stored_profile(ctx),
                           estimates(ctx))
    else:
        model = cost_model(costs)
    found = model.op_times(captured.graph, captured.attributes)
    source = model.source
    if found.estimated:
        source += " (%d of %d ops estimated)" % (len(found.estimated), len(found.times_s))
    spaces = _workspaces(captured, device, model)
    graph = captured.graph.with_times(found.times_s, spaces)
    if reshape is not None:
        graph = reshape(graph, network)
    fixed = dict(captured.fixed_bytes)
    states: Sequence[int] = ()
    if graph.pools == "cached_op":  # with the gradients given for them
        fixed["outputs"] = 2 * sum(size for _, size in callers_outputs(graph)) \
            - fixed["head_gradients"]
    fixed["workspace"] = max([*spaces, 0])
    unplanned_objects = 0
    if device is None and _is_of_cpu(model) and graph.pools == "executor" \
            and binding.only is None and len(graph.ops) >= OBJECTS_LEAST_OPS:
        unplanned_objects = objects_bytes_per_op(mkldnn_is_on(), in_arena=False)
        planned_objects = objects_bytes_per_op(
            mkldnn_is_on(), in_arena=native.storage_model() == "arena")
        graph = replace(graph, objects_bytes_per_op=planned_objects)
        fixed["objects"] = objects_bytes(graph)
    if optimizer:
        requests = dict(zip(captured.arguments.names, captured.arguments.grad_reqs))
        trained = [(t.size_bytes, t.dtype) for number, t in enumerate(graph.tensors)
                   if t.category == "parameter" and requests.get(t.name, "null") != "null"
                   and number not in captured.elsewhere]
        states = state_arrays(optimizer, trained, optimizer_params)
        fixed["optimizer"] = sum(states)
    unplanned_graph = graph if as_run is captured else as_run.graph
    if as_run is not captured and reshape is not None:
        unplanned_graph = reshape(unplanned_graph, network)
    unplanned = plan_storage(unplanned_graph, expand(unplanned_graph, {}), "stock")
    asked = {"costs": costs if isinstance(costs, str) and costs != "auto" else None,
             "optimizer": optimizer, "optimizer_params": _plain(optimizer_params or {}) or None}
    return Session(
        symbol=symbol, binding=binding, graph=graph, fixed_bytes=fixed, costs=source,
        unplanned_pool_bytes=unplanned.pool_bytes, captured=captured, model=model,
        asked={name: value for name, value in asked.items() if value is not None},
        device=device, as_run=as_run, network=network,
        reshape=reshape or (lambda graph, symbol: graph), optimizer_arrays=tuple(states),
        unplanned_workspace_bytes=max(
            [*_workspaces(captured, device, model, planned=False), 0]),
        never_written_bytes=never_written_bytes(unplanned_graph, unplanned)
        if device is None and not mkldnn_is_on() else 0,
        unplanned_objects_bytes_per_op=unplanned_objects,
        unplanned_copies_bytes=_copies_bytes(captured, copies_stay)
        if device is None and mkldnn_is_on() and _is_of_cpu(model) else 0)


def _copies_bytes(captured: Captured, stay: bool) -> int:
    """What stock MXNet has in copies of arrays in other layouts, at most."""
    graph = captured.graph
    storage = plan_storage(graph, expand(graph, {}), "stock")
    steps = storage.program.steps
    copies = stock_copies(graph, captured.default_layout, {
        (steps[value.step].op, value.position): index
        for value, index in zip(storage.program.values, storage.blocks.inplace_index)})
    copies = [0 if away(captured, op) else size for op, size in zip(graph.ops, copies)]
    return sum(copies) if stay else max([*copies, 0])


def _plain(options: Mapping[str, Any]) -> Dict[str, Any]:
    """Those that a plan file can hold, NumPy's numbers as Python's."""
    values = {name: value.item() if isinstance(value, np.generic) else value
              for name, value in options.items()}
    return {name: value for name, value in values.items() if isinstance(value, (int, float, str))}
