"""Reading a network: bound once without allocation, its ops priced, its bytes added up."""
from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import Any, Dict, Mapping, Optional, Tuple

import numpy as np

from ...graph.schedule import expand
from ...graph.types import Graph
from ...memory.storage import never_written_bytes, plan_storage
from ...memory.workspace import objects_bytes
from ...plans.footprint import Footprint
from ...util.errors import PluginError
from ...util.gc_pause import paused
from ..capture.devices import counted
from ..capture.record import Captured
from ..costs.models import CostModel, best_known
from ..memory.gpu_pool import callers_outputs
from ..memory.mkldnn import stock_copies
from ..memory.native_workspaces import OBJECTS_LEAST_OPS, objects_bytes_per_op
from ..memory.optimizer_state import state_arrays
from ..memory.recurrent import recurrent_bytes
from ..memory.stated_gpu import device_of
from ..plugin import loading as native
from ..plugin.environment import mkldnn_is_on
from ..profile.run import stored_profile
from ..rewrite.apply import is_forced_somewhere, unforced, without_plan
from .binding import Binding
from .network import BoundNetwork
from .op_times import cost_model, estimates
from .runner import Form, Reshape, Runner


@paused()
def open_network(symbol: Any, binding: Binding, costs: Any = "auto",
                 reshape: Optional[Reshape] = None,
                 as_it_is: bool = False, copies_stay: bool = True) -> BoundNetwork:
    """Read a network and price its ops.

    ``reshape`` turns the graph of an executor into that of a CachedOp. With
    ``as_it_is`` a plan on the symbol and the user's ``force_mirroring`` show in the graph; else the
    plan is taken off, and the marks are hints on the ops. ``copies_stay``: who runs the network
    keeps the copies between MKLDNN's layouts and others, as executors do.

    Raises PluginError where plans could not run: the plugin's recomputation is switched off.
    """
    native.load()
    if not as_it_is and native.backend() != "plugin":
        raise PluginError("plans run by the plugin's recomputation, which is switched off; "
                          "memonger.native.enable() switches it on")
    symbol = symbol if as_it_is else without_plan(symbol)
    network = symbol if as_it_is else unforced(symbol)
    device = device_of(binding.memory_ctx)
    with contextlib.ExitStack() as stack:
        if network is not symbol:  # MXNet's own mirroring would not see that the marks are off
            stack.enter_context(native.switched(True, native.storage_model() != "stock",
                                                native.storage_model() == "arena"))
        as_run = captured = binding.read(network)
        if device is not None and device.fuses:
            as_run = binding.read(network, as_run=True)
    form = Form(network, captured, as_run)
    model = _model(captured, binding.ctx, costs)
    runner = Runner(binding, device, model, reshape)
    times = model.op_times(captured.graph, captured.attributes)
    source = model.source
    if times.estimated:
        source += " (%d of %d ops estimated)" % (len(times.estimated), len(times.times_s))
    graph = runner.graph(captured, network, times.times_s)
    outside = dict(captured.fixed_bytes)
    if graph.pools == "cached_op":  # with the gradients given for them
        outside["outputs"] = 2 * sum(size for _, size in callers_outputs(graph)) \
            - outside["head_gradients"]
    outside["workspace"] = max([*runner.workspaces(captured), 0])
    recurrent = sum(counted(captured, recurrent_bytes(captured.graph, captured.attributes))) \
        if runner.is_of_cpu else 0
    if recurrent:
        outside["recurrent_states"] = recurrent
    unplanned_objects = 0
    if runner.is_of_cpu and graph.pools == "executor" \
            and binding.only is None and len(graph.ops) >= OBJECTS_LEAST_OPS:
        unplanned_objects = objects_bytes_per_op(mkldnn_is_on(), in_arena=False)
        planned_objects = objects_bytes_per_op(
            mkldnn_is_on(), in_arena=native.storage_model() == "arena")
        graph = replace(graph, objects_bytes_per_op=planned_objects)
        outside["objects"] = objects_bytes(graph)
    if binding.optimizer:
        arrays = _optimizer_arrays(captured, graph, binding)
        runner = replace(runner, optimizer_arrays=arrays)
        outside["optimizer"] = sum(arrays)
    asked = {"costs": costs if isinstance(costs, str) and costs != "auto" else None,
             "optimizer": binding.optimizer,
             "optimizer_params": _plain(binding.optimizer_params or {}) or None}
    mirrored = reshape is None and network is not symbol and not is_forced_somewhere(symbol)
    if mirrored:  # without a plan MXNet mirrors ops
        form_alone = Form(symbol, binding.read(symbol), binding.read(symbol, as_run=True))
        alone = runner.graph(form_alone.captured, symbol)
    else:
        form_alone, alone = form, graph
    unplanned = _unplanned(form_alone, runner, outside, copies_stay, replace(
        alone, objects_bytes_per_op=unplanned_objects))
    return BoundNetwork(
        symbol=symbol, graph=graph, outside_bytes=outside, unplanned=unplanned, costs=source,
        form=form, runner=runner,
        asked={name: value for name, value in asked.items() if value is not None},
        unplanned_objects_bytes_per_op=unplanned_objects, mirrored=mirrored)


def _model(captured: Captured, ctx: Any, costs: Any) -> CostModel:
    if isinstance(costs, str) and costs == "auto":
        return best_known(captured.graph, captured.attributes, stored_profile(ctx),
                          estimates(ctx))
    return cost_model(costs)


def _optimizer_arrays(captured: Captured, graph: Graph, binding: Binding) -> Tuple[int, ...]:
    """Sizes of the optimizer's arrays for all that is trained."""
    requests = dict(zip(captured.arguments.names, captured.arguments.grad_reqs))
    trained = [(t.size_bytes, t.dtype) for number, t in enumerate(graph.tensors)
               if t.category == "parameter" and requests.get(t.name, "null") != "null"
               and number not in captured.elsewhere]
    return tuple(state_arrays(binding.optimizer or "", trained, binding.optimizer_params))


def _unplanned(form: Form, runner: Runner, outside: Mapping[str, int], copies_stay: bool,
               graph: Graph) -> Footprint:
    """What stock MXNet takes; ``outside``: the bytes outside a planned pool.

    ``graph``: the step, with the objects of stock MXNet.
    """
    as_run = graph
    if form.as_run is not form.captured:
        as_run = form.as_run.graph
        if runner.reshape is not None:
            as_run = runner.reshape(as_run, form.symbol)
    storage = plan_storage(as_run, expand(as_run, {}), "stock")
    on_cpu, mkldnn = runner.device is None, mkldnn_is_on()
    of_stock = {
        "never_written": -never_written_bytes(as_run, storage) if on_cpu and not mkldnn else 0,
        "objects": objects_bytes(graph),
        "layout_copies": _copies_bytes(form.captured, copies_stay)
        if mkldnn and runner.is_of_cpu else 0}
    on_device = {} if on_cpu else \
        runner.footprint(form.as_run, form.symbol, "stock").outside_bytes
    return Footprint(storage.pool_bytes, {
        **outside, "workspace": max([*runner.workspaces(form.captured, planned=False), 0]),
        **{name: size for name, size in of_stock.items() if size}, **on_device})


def _copies_bytes(captured: Captured, stay: bool) -> int:
    """What stock MXNet has in copies of arrays in other layouts, at most."""
    graph = captured.graph
    storage = plan_storage(graph, expand(graph, {}), "stock")
    steps = storage.program.steps
    copies = stock_copies(graph, captured.default_layout, {
        (steps[value.step].op, value.position): index
        for value, index in zip(storage.program.values, storage.blocks.inplace_index)})
    copies = counted(captured, copies)
    return sum(copies) if stay else max([*copies, 0])


def _plain(options: Mapping[str, Any]) -> Dict[str, Any]:
    """Those that a plan file can hold, NumPy's numbers as Python's."""
    values = {name: value.item() if isinstance(value, np.generic) else value
              for name, value in options.items()}
    return {name: value for name, value in values.items() if isinstance(value, (int, float, str))}
