"""The calls of dmlc/mxnet-memonger, with the same arguments and meaning.

What differs is what was wrong there: parameters are known by their role and not by their name,
sizes by their dtype, no device is needed, random ops are never recomputed, nothing is printed, and
a plan that does not help is not returned.
"""
from __future__ import annotations

import math
from typing import Any, Dict, Mapping, Optional

from ...plans.plan import Budget
from ...util import argument_checks as check
from ..capture.binding import infer_arguments
from ..capture.record import read
from ..plugin import loading as native
from ..rewrite.apply import from_json, without_plan
from ..symbol.common_subexpressions import to_json
from .binding import Binding, Shapes
from .inputs import gather_shapes
from .opening import open_network
from .plan import plan
from .stock_mirroring import forward_graph, mirrored, printed_megabytes


def search_plan(symbol: Any, ntrial: int = 6, type_dict: Optional[Mapping[str, Any]] = None,
                budget: Budget = None, data_iter: Any = None, shapes: Optional[Shapes] = None,
                **named_shapes: Any) -> Any:
    """Search a good memory plan and return the planned symbol.

    Ops with the attribute ``mirror_stage`` are the only dividing points; without any, every op
    is a candidate (Chen et al. 2016).

    Parameters
    ----------
    symbol : mx.sym.Symbol
    ntrial : int
        Additional grid search steps. All are taken, however long they are.
    type_dict : dict, optional
        Dtypes of inputs by name.
    budget : int, float or str, optional
        With a budget, the cheapest plan that any method finds within it; see
        :func:`memonger.plan`.
    data_iter : mx.io.DataIter, optional
        Gives the shapes of data and labels.
    shapes, **named_shapes : optional
        Shapes of inputs, as for ``infer_shape``; not needed where variables carry them.

    Returns
    -------
    mx.sym.Symbol

    Raises
    ------
    InfeasibleBudget
        If no plan fits ``budget``.
    ShapeError, InputError, UnitError, BindError
        If the input cannot be used.
    """
    given = gather_shapes(search_plan, symbol, shapes, named_shapes, data_iter)
    check.whole_number("ntrial", ntrial, 0)
    if budget is not None:
        return plan(symbol, budget=budget, type_dict=type_dict, shapes=given).symbol
    if not _recomputes():
        return mirrored(symbol, Binding(given, type_dict), ntrial)
    from ...solve import solve
    from ...solve.options import Options
    network = open_network(symbol, Binding(given, type_dict))
    found = solve(network.graph, None, "sublinear", Options(
        ntrial=ntrial, time_limit_s=math.inf, storage=network.storage))
    return network.apply(found)


def _recomputes() -> bool:
    """Whether the plugin runs plans in this process; else dmlc's rule is for MXNet's mirroring."""
    return native.available() and native.backend() == "plugin"


def make_mirror_plan(symbol: Any, threshold: int, plan_info: Optional[Dict[str, int]] = None,
                     type_dict: Optional[Mapping[str, Any]] = None,
                     shapes: Optional[Shapes] = None, **named_shapes: Any) -> Any:
    """Mark the ops to recompute for one threshold.

    Parameters
    ----------
    symbol : mx.sym.Symbol
    threshold : int
        Megabytes (2**20 bytes) of results after which the next candidate is kept.
    plan_info : dict, optional
        Receives "max_size", the largest segment, and "save_size", what is kept, in bytes.
    type_dict, shapes, **named_shapes : optional
        As for :func:`search_plan`.

    Returns
    -------
    mx.sym.Symbol
        A copy with ``force_mirroring`` on the ops to recompute.

    Raises
    ------
    ShapeError, InputError, BindError
        If the input cannot be used.
    """
    from ...graph.stock_mirroring import safe_to_mirror
    from ...solve.baselines.sublinear import divide
    from ..symbol.planned_symbol import apply_mirroring
    given = gather_shapes(make_mirror_plan, symbol, shapes, named_shapes)
    threshold_bytes = int(check.real_number("threshold", threshold) * 2**20)
    if _recomputes():
        network = open_network(symbol, Binding(given, type_dict))
        symbol, graph = network.symbol, network.graph
        segments = divide(graph, threshold_bytes)
        recomputed = set(safe_to_mirror(graph, set(segments.recomputed)))
    else:
        symbol = without_plan(symbol)
        graph = forward_graph(symbol, infer_arguments(symbol, given, type_dict))
        segments = divide(graph, threshold_bytes)
        recomputed = set(segments.recomputed)
    if plan_info is not None:
        plan_info.update(max_size=segments.max_bytes, save_size=segments.saved_bytes)
    return from_json(apply_mirroring(to_json(symbol), graph, recomputed), symbol)


def get_cost(symbol: Any, type_dict: Optional[Mapping[str, Any]] = None,
             shapes: Optional[Shapes] = None, **named_shapes: Any) -> int:
    """Megabytes (2**20 bytes) of the pool of internal tensors, by real dtypes.

    The symbol is bound without allocation, so any size works on any machine.

    Parameters
    ----------
    symbol : mx.sym.Symbol
        The network, planned or not.
    type_dict, shapes, **named_shapes : optional
        As for :func:`search_plan`.

    Returns
    -------
    int

    Raises
    ------
    ShapeError, InputError, BindError
        If the input cannot be used.
    """
    given = gather_shapes(get_cost, symbol, shapes, named_shapes)
    if not native.available():
        return printed_megabytes(symbol, infer_arguments(symbol, given, type_dict))
    return read(symbol, given, type_dict).pool_bytes >> 20
