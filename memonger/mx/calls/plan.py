"""The calls of memonger: plan, estimate, sweep and max_batch; the others are found here, too.

Each reads the network once (:mod:`memonger.mx.capture.record`), prices it
(:mod:`memonger.mx.costs.models`), and hands a framework-free graph to a solver. The calls of
dmlc/mxnet-memonger are in :mod:`memonger.mx.calls.dmlc`.
"""
from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any, List, Mapping, Optional, Sequence, Union

from ...graph.types import Graph
from ...planning.estimate import Estimate
from ...planning.graphs import estimate_graph, plan_of_graph, refuse_options, sweep_graph
from ...planning.max_batch import search_batch
from ...planning.requests import PlanRequest
from ...planning.searches import plan_network
from ...planning.sweeping import BUDGETS, sweep_requests
from ...plans.plan import Budget, Plan
from ...report.progress import Asked, callback_of, shows_progress
from ...util import argument_checks as check
from ...util.errors import InputError
from ..memory.stated_gpu import place, resolve_budget
from .binding import Binding, Shapes
from .devices import beside_devices, plan_over_devices, totals_by_device
from .inputs import batches, budget_once, gather_shapes, loaded
from .network import BoundNetwork
from .op_times import costs_of_bytes
from .opening import open_network
from .planned import apply_plan, measure, strip, verify

if TYPE_CHECKING:
    from ...plans.max_batch import MaxBatch

__all__ = ["Estimate", "apply_plan", "estimate", "max_batch", "measure", "plan",
           "strip", "sweep", "verify"]


@budget_once
@shows_progress
def plan(symbol: Any, budget: Union[Budget, Mapping[str, Budget]] = None, method: str = "auto",
         variants: str = "exact", ctx: Any = None, type_dict: Optional[Mapping[str, Any]] = None,
         grad_req: Any = "write", keep: Sequence[str] = (), recompute: Sequence[str] = (),
         costs: Any = "auto", time_limit: float = 10.0,
         progress: Asked = None, overhead: Union[None, str, float] = None,
         optimizer: Optional[str] = None, optimizer_params: Optional[Mapping[str, Any]] = None,
         data_iter: Any = None, group2ctx: Any = None, shapes: Optional[Shapes] = None,
         max_clones: int = 0, device: Optional[str] = None, name: str = "",
         **named_shapes: Sequence[int]) -> Plan:
    """Plan the memory of a training step.

    Parameters
    ----------
    symbol : mx.sym.Symbol, Graph or path
        The network, with its loss. Its plan is removed first, if it has one. A
        :class:`memonger.Graph`, or the path of a file that holds one (docs/graphs.md), is planned
        without MXNet; budgets are then in the graph's own units, and of the options ``budget``,
        ``overhead``, ``method``, ``variants``, ``keep``, ``recompute``, ``time_limit``,
        ``progress``, ``max_clones`` and ``name`` mean something.
    budget : int, float or str, optional
        Largest total of the step: bytes, "4GB", "4GiB", "60%" of the unplanned total, "auto"
        for what the GPU ``ctx`` has free less 5 %, or "knee": where less memory starts to cost more
        time, which plans for a few budgets tell; a note says where that is. Without one: the
        smallest pool that at most one extra forward pass buys. For a network on several devices
        (``group2ctx``) a budget for each, ``{"gpu(0)": "8GB", "gpu(1)": "6GB"}``; shares are of the
        device's own total, and a device without a budget keeps everything.
    method : str
        "auto", "local", "milp", "sublinear", "chen", "ogc", or a registered name.
    variants : {"exact", "none", "all"}
        Which operator variants may be swapped in. "exact": results are bit for bit those of the
        unplanned network with MXNET_MKLDNN_ENABLED=0 (and on a GPU with deterministic algorithms);
        with MKLDNN on, MXNet's default on a CPU, within rounding, as :func:`verify` judges against
        float64. "all" includes variants whose results differ in the last bits everywhere
        (in-place BatchNorm).
    ctx, type_dict, grad_req, group2ctx : optional
        As for ``simple_bind``. Planning never touches the device. Bytes are those of the gradients
        asked for; ``Module`` asks for none of data and labels.
    device : str, optional
        A GPU that need not be there, instead of ``ctx``: "p100", "v100", "t4", "a10", "a100",
        "rtx2080ti", "rtx3090" or "rtx4090", by its data sheet. Bytes are those that MXNet's pool
        hands out there, times are of its roofline, and the budget "auto" is its memory less
        1 GB for MXNet, cuDNN and cuBLAS, less 5 %. Works with MXNet for CPUs, too.
    keep, recompute : sequence of str
        Ops (shell wildcards allowed) that must, or must not, stay in memory.
    costs : "auto", a device preset, or a cost model
        Where op times come from: a preset is "cpu", "reference", a device with 10 TFLOP/s and
        600 GB/s, or a GPU's name such as "v100". "auto" takes what ``memonger profile`` measured,
        else estimates for this CPU, calibrated once in some seconds, and for a GPU those of
        "reference".
    time_limit : float
        Most work for the search, in seconds of an idle machine with two cores. The work is
        counted, so a busy machine takes longer and gives the same plan; the clock only ends a
        search after twenty times as long. More than the usual ten buy further searches where the
        plan is not near its bound. All searches of a call share the limit, and the call takes about
        twice as much at most; of networks of more than 7,000 ops reading takes more.
    progress : callable or bool, optional
        Called with :class:`memonger.Progress` now and then. True shows a bar in a terminal and
        in a notebook, and a line every ten seconds elsewhere. By default there is a bar where
        somebody watches, from two seconds on; False shows none.
    overhead : float or str, optional
        Largest extra step time, 0.1 or "10%": least memory within it. Not with ``budget``.
    optimizer, optimizer_params : optional
        Name and parameters of the optimizer; its state then counts in the total.
    data_iter : mx.io.DataIter, optional
        Gives the shapes of data and labels.
    shapes, **named_shapes : optional
        Shapes of inputs by name, as for ``infer_shape``: ``data=(32, 3, 224, 224)``.
    max_clones : int
        How often one op may be recomputed in a step; 0: without limit.
    name : str
        What tables, pictures and pages call the network.

    Returns
    -------
    Plan
        Its ``symbol`` trains in ``total_bytes``; ``print`` it, ``save`` it, make a ``report``.

    Raises
    ------
    InfeasibleBudget
        If no plan fits; it carries the smallest total found and what pins it.
    ShapeError, InputError, UnknownOpError, UnitError, BindError
        If the input cannot be used.
    PluginMissing
        If the native plugin is not built or does not fit MXNet; it says what to do.
    """
    started_s = time.perf_counter()
    symbol = loaded(symbol)
    request = PlanRequest(None if isinstance(budget, Mapping) else budget, overhead, method,
                          variants, keep, recompute, time_limit, max_clones, name,
                          callback_of(progress))
    if isinstance(symbol, Graph):
        refuse_options(
            ctx=ctx, device=device, type_dict=type_dict, optimizer=optimizer, grad_req=grad_req,
            costs=costs, group2ctx=group2ctx, data_iter=data_iter, shapes=shapes or named_shapes,
            budgets_by_device=isinstance(budget, Mapping))
        return plan_of_graph(symbol, request)
    ctx = place(ctx, device)
    given = gather_shapes(plan, symbol, shapes, named_shapes, data_iter)
    binding = Binding(given, type_dict, grad_req, ctx, group2ctx, optimizer, optimizer_params)
    if isinstance(budget, Mapping):
        return plan_over_devices(symbol, binding, costs, request, budget)
    request = replace(request, budget=resolve_budget(budget, ctx))
    network = open_network(symbol, binding, costs)
    return beside_devices(plan_network(network, request, started_s), network, costs)


def estimate(symbol: Any, type_dict: Optional[Mapping[str, Any]] = None, grad_req: Any = "write",
             ctx: Any = None, costs: Any = "auto", optimizer: Optional[str] = None,
             optimizer_params: Optional[Mapping[str, Any]] = None, data_iter: Any = None,
             group2ctx: Any = None, shapes: Optional[Shapes] = None,
             device: Optional[str] = None, **named_shapes: Sequence[int]) -> Estimate:
    """Bytes by category of one training step; nothing is allocated on the device.

    Parameters
    ----------
    symbol : mx.sym.Symbol, Graph or path
        The network, planned or not; or a graph, which takes no options, as for :func:`plan`.
    type_dict, grad_req, ctx, costs, optimizer, optimizer_params, group2ctx, device : optional
        As for :func:`plan`.
    data_iter, shapes, **named_shapes : optional
        Shapes of inputs, as for :func:`plan`.

    Returns
    -------
    Estimate
        ``total_bytes``, ``pool_bytes`` and ``by_category``, of a network on several devices
        ``by_device``; prints as a table.

    Raises
    ------
    ShapeError, InputError, UnitError, BindError
        If the input cannot be used.
    """
    symbol = loaded(symbol)
    if isinstance(symbol, Graph):
        refuse_options(
            ctx=ctx, device=device, type_dict=type_dict, optimizer=optimizer, grad_req=grad_req,
            costs=costs, group2ctx=group2ctx, data_iter=data_iter, shapes=shapes or named_shapes)
        return estimate_graph(symbol)
    ctx = place(ctx, device)
    given = gather_shapes(estimate, symbol, shapes, named_shapes, data_iter)
    binding = Binding(given, type_dict, grad_req, ctx, group2ctx, optimizer, optimizer_params)
    network = open_network(symbol, binding, costs_of_bytes(costs, binding.on_gpu), as_it_is=True)
    return replace(network.estimate(), by_device=totals_by_device(symbol, network, costs))


@budget_once
@shows_progress
def sweep(symbol: Any, budgets: Sequence[Budget] = BUDGETS, method: str = "auto",
          variants: str = "exact", ctx: Any = None,
          type_dict: Optional[Mapping[str, Any]] = None, grad_req: Any = "write",
          keep: Sequence[str] = (), recompute: Sequence[str] = (), costs: Any = "auto",
          time_limit: float = 10.0, progress: Asked = None,
          data_iter: Any = None, shapes: Optional[Shapes] = None,
          optimizer: Optional[str] = None,
          optimizer_params: Optional[Mapping[str, Any]] = None,
          device: Optional[str] = None, **named_shapes: Sequence[int]) -> List[Plan]:
    """Plans for a list of budgets: the frontier of memory and time.

    Budgets that no plan meets are left out. Overheads never fall as budgets fall: where a tighter
    budget found a cheaper plan, the looser one gets it too.

    Parameters
    ----------
    symbol : mx.sym.Symbol, Graph or path
        The network, with its loss; or a graph, as for :func:`plan`.
    budgets : sequence of int, float or str
        Each as for :func:`plan`.
    time_limit : float
        Most work for all budgets together, in seconds: each has the same share.
    method, variants, ctx, type_dict, grad_req, keep, recompute, costs, progress : optional
        As for :func:`plan`.
    data_iter, shapes, optimizer, optimizer_params, device, **named_shapes : optional
        As for :func:`plan`.

    Returns
    -------
    list of Plan
        From the largest budget to the smallest.

    Raises
    ------
    ShapeError, InputError, UnknownOpError, UnitError, BindError
        If the input cannot be used.
    """
    symbol = loaded(symbol)
    request = PlanRequest(None, None, method, variants, keep, recompute, time_limit,
                          progress=callback_of(progress))
    if isinstance(budgets, str) or not hasattr(budgets, "__iter__"):
        raise InputError("budgets must be a list such as [\"80%%\", \"60%%\"], not %s"
                         % check.shown(budgets))
    if isinstance(symbol, Graph):
        refuse_options(
            ctx=ctx, device=device, type_dict=type_dict, optimizer=optimizer, grad_req=grad_req,
            costs=costs, data_iter=data_iter, shapes=shapes or named_shapes)
        return sweep_graph(symbol, request, budgets)
    ctx = place(ctx, device)
    given = gather_shapes(sweep, symbol, shapes, named_shapes, data_iter)
    binding = Binding(given, type_dict, grad_req, ctx, None, optimizer, optimizer_params)
    asked = [resolve_budget(budget, ctx) for budget in budgets]
    network = open_network(symbol, binding, costs)
    return sweep_requests(request, asked, network.unplanned.total_bytes,
                          lambda request: plan_network(network, request))


@budget_once
@shows_progress
def max_batch(symbol: Any, budget: Budget, method: str = "auto", variants: str = "exact",
              type_dict: Optional[Mapping[str, Any]] = None, grad_req: Any = "write",
              ctx: Any = None, costs: Any = "auto", time_limit: float = 10.0,
              optimizer: Optional[str] = None,
              optimizer_params: Optional[Mapping[str, Any]] = None, limit: int = 65536,
              progress: Asked = None, shapes: Optional[Shapes] = None,
              device: Optional[str] = None, **named_shapes: Sequence[int]) -> MaxBatch:
    """Largest batch that fits a budget, unplanned and planned.

    The first dimension of every shape that equals the first shape's first dimension is the
    batch. The smallest plan that is found, which may add half the time of a step, says what fits;
    the largest batch then gets the fastest plan that is found for it. Each candidate is bound
    without allocation, so that the bytes are exact.

    Parameters
    ----------
    symbol : mx.sym.Symbol or path
        The network, with its loss. A graph has no batch to change, and is refused.
    budget : int or str
        Bytes, "8GB", "8GiB" or "auto"; no share, as each batch has another total.
    time_limit : float
        Most work for all candidates together, in seconds, as in :func:`plan`: most of it for the
        smallest plan, which says what fits, the rest for the plan of the largest batch.
    limit : int
        The largest batch to try.
    method, variants, type_dict, grad_req, ctx, costs, progress : optional
        As for :func:`plan`.
    optimizer, optimizer_params, shapes, device, **named_shapes : optional
        As for :func:`plan`.

    Returns
    -------
    memonger.plans.max_batch.MaxBatch
        ``unplanned``, ``planned`` (batch sizes, 0 when not even one sample fits) and ``plan``.

    Raises
    ------
    ShapeError, InputError, UnitError, BindError
        If the input cannot be used, or no shape has a batch.
    """
    symbol = loaded(symbol)
    if isinstance(symbol, Graph):
        raise InputError("max_batch needs a network: a graph%s has the sizes of one batch, and "
                         "does not say how they grow with it"
                         % (" such as %s" % symbol.name if symbol.name else ""))
    ctx = place(ctx, device)
    given = gather_shapes(max_batch, symbol, shapes, named_shapes)
    binding = Binding(given, type_dict, grad_req, ctx, None, optimizer, optimizer_params)
    request = PlanRequest(resolve_budget(budget, ctx), None, method, variants,
                          time_limit=time_limit, progress=callback_of(progress))
    shapes_at = batches(given)

    def network_at(batch: int) -> BoundNetwork:
        return open_network(symbol, replace(binding, shapes=shapes_at(batch)), costs)

    return search_batch(request, check.whole_number("limit", limit, 1),
                        lambda batch: network_at(batch).unplanned.total_bytes,
                        lambda asked, batch: plan_network(network_at(batch), asked))
