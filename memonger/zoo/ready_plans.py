"""Ready plans for networks of the zoo: train in less memory without any search.

::

    plan = memonger.zoo.load("resnet50", budget="35%")
    mx.mod.Module(plan.symbol).fit(...)

The plans lie in ``plans/`` beside this file, one JSON file a network, for 75, 50, 35 and 25 % of
the unplanned total at the published batch size; ``python -m benchmarks ready_plans`` searches
again and keeps what is better.
A file holds decisions only. Loading builds the network, checks that it is the one planned for,
and predicts its memory again.
"""
from __future__ import annotations

import json
import os
import time
from typing import Any, Dict, Mapping, Optional, Sequence, Tuple, Union

from ..plans.plan import Plan, Status
from ..report.formatting import format_percent
from ..util.errors import InfeasibleBudget, InputError, PlanMismatch, PlanSchemaError
from ..util.units import format_bytes, parse_budget, refuse_bare_number
from . import nets

#: Budgets of the ready plans, as shares of the unplanned total.
SHARES = (0.75, 0.50, 0.35, 0.25)
#: Where their op times come from.
COSTS = "reference"
FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "plans")
FORMAT = "memonger ready plans 1"
_AGAIN = "make it again with python -m benchmarks ready_plans"


def names() -> Tuple[str, ...]:
    """Networks that have ready plans.

    Returns
    -------
    tuple of str
        Names for :func:`load`, in alphabetical order.
    """
    if not os.path.isdir(FOLDER):
        return ()
    return tuple(sorted(name[:-5] for name in os.listdir(FOLDER) if name.endswith(".json")))


def load(network: str, budget: Union[str, int, float] = "50%", symbol: Any = None,
         shapes: Optional[Mapping[str, Sequence[int]]] = None) -> Plan:
    """A ready plan.

    Parameters
    ----------
    network : str
        One of :func:`names`.
    budget : str, int or float
        As in ``memonger.plan``. The fastest ready plan that fits is taken.
    symbol : mx.sym.Symbol, optional
        Your own symbol of the same network; by default the zoo's.
    shapes : mapping, optional
        Input shapes of ``symbol``; by default the published ones.

    Returns
    -------
    Plan

    Raises
    ------
    InputError
        If there are no plans for the network.
    InfeasibleBudget
        If no ready plan fits; ``memonger.plan`` may still find one.
    PlanMismatch
        If ``symbol`` with ``shapes`` is not the graph that was planned.
    """
    started_s = time.perf_counter()
    data = read_file(network)
    net = nets.build(network)
    opened = read_network(net, data, symbol, shapes)
    if opened.graph.fingerprint != data["fingerprint"]:
        raise PlanMismatch(
            "the ready plans of %s are for the zoo's own network at batch %d, and this is another "
            "graph (other layers, names or shapes); plan it with memonger.plan"
            % (network, data["batch"]), data["fingerprint"], opened.graph.fingerprint)
    fixed_bytes = sum(opened.outside_bytes.values())
    refuse_bare_number(budget)
    whole_bytes = opened.unplanned.pool_bytes + fixed_bytes
    budget_bytes = parse_budget(budget, whole_bytes)
    fitting = [item for item in data["plans"] if item["total_bytes"] <= budget_bytes]
    if not fitting:
        smallest = min(item["total_bytes"] for item in data["plans"])
        raise InfeasibleBudget(
            "no ready plan of %s fits %s, the smallest takes %s (%s of the unplanned total); "
            "memonger.plan may find one" % (network, format_bytes(budget_bytes),
                                            format_bytes(smallest),
                                            format_percent(smallest / whole_bytes)),
            budget_bytes, smallest)
    chosen = min(fitting, key=lambda item: (item["overhead"], item["total_bytes"]))
    plan = _restore(opened, chosen, budget_bytes, data)
    if parse_budget(chosen["share"], whole_bytes) != budget_bytes:
        note = "the ready plan for %g %%, of those for %s; memonger.plan searches for the budget " \
            "itself" % (100 * chosen["share"], ", ".join(
                "%g %%" % (100 * item["share"]) for item in data["plans"]))
        plan = plan.changed(notes=(*plan.notes, note))
    return plan.changed(planning_s=time.perf_counter() - started_s)


def read_file(network: str) -> Dict[str, Any]:
    path = os.path.join(FOLDER, "%s.json" % (network,))
    if not os.path.isfile(path):
        nets.spec(network)
        raise InputError("there are no ready plans for %s; there are for: %s"
                         % (network, ", ".join(names()) or "none"))
    with open(path, encoding="utf-8") as file:
        try:
            data = json.load(file)
        except ValueError as error:
            raise PlanSchemaError("%s is damaged (%s); %s" % (path, error, _AGAIN)) from error
    if data.get("format") != FORMAT:
        raise PlanSchemaError("%s is not of this memonger; %s" % (path, _AGAIN))
    return data


def read_network(net: nets.Net, data: Mapping[str, Any], symbol: Any = None,
                 shapes: Optional[Mapping[str, Sequence[int]]] = None) -> Any:
    """The network of a file's plans, or ``symbol`` in its place, bound without allocation."""
    from ..mx.calls.binding import Binding
    from ..mx.calls.opening import open_network
    return open_network(net.symbol if symbol is None else symbol,
                        Binding(net.shapes if shapes is None else shapes),
                        data["costs"]).named(data["network"])


def rebuild(opened: Any, item: Mapping[str, Any], budget_bytes: int,
            data: Mapping[str, Any]) -> Tuple[Plan, int]:
    """The plan of one entry, and the bytes of the pool when its symbol is bound here."""
    from ..graph.in_use import graph_in_use
    from ..graph.schedule import Schedule, expand
    from ..solve.options import Options
    from ..solve.result import build_plan
    if item["variants"]:
        opened = opened.offering("exact")
    graph = opened.graph
    wanted = {tuple(pair) for pair in item["variants"]}
    variants = tuple(i for i, v in enumerate(graph.variants)
                     if (graph.ops[v.op].name, v.name) in wanted)
    recompute: Dict[int, Dict[Tuple[int, int], int]] = {}
    for entry in item["recompute"]:
        op, served = (entry, []) if isinstance(entry, int) else entry
        recompute[op] = {(reader, number): clone for reader, number, clone in served}
    steps = expand(graph_in_use(graph, Schedule((), variants)), recompute).steps
    options = Options(storage=opened.storage, costs=opened.costs,
                      fixed_bytes=opened.outside_bytes)
    pool_budget = budget_bytes - sum(opened.outside_bytes.values())
    plan = build_plan(graph, Schedule(steps, variants), item["method"], options, pool_budget,
                      Status(item["status"]))
    if len(variants) != len(wanted):
        raise PlanMismatch("the ready plan of %s has variants that are not known here; %s"
                           % (data["network"], _AGAIN))
    return plan, opened.runner.read(opened.apply(plan)).pool_bytes


def _restore(opened: Any, item: Mapping[str, Any], budget_bytes: int,
             data: Mapping[str, Any]) -> Plan:
    """The plan of one entry, with its memory predicted again and its symbol bound once."""
    from ..mx.calls.symbol_record import SymbolRecord
    plan, found_bytes = rebuild(opened, item, budget_bytes, data)
    if found_bytes != item["pool_bytes"]:
        raise PlanMismatch(
            "the ready plan of %s takes %d bytes in the pool here, not the %d it was made for; %s"
            % (data["network"], found_bytes, item["pool_bytes"], _AGAIN))
    shapes = opened.runner.binding.shapes
    return plan.changed(
        bound=item["bound"], record=SymbolRecord.of(opened.symbol), budget_bytes=budget_bytes,
        options={"network": data["network"], "share": item["share"], "shapes": {
            name: list(shape) for name, shape in sorted(shapes.items())}})
