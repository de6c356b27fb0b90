"""Planning graphs that are not MXNet's, straight from a file."""
from __future__ import annotations

from typing import Any, Union

from ..graph.imported import parse_foreign_budget, read_graph
from ..graph.schedule import expand
from ..memory.storage import plan_storage
from ..plan.plan import Plan
from . import solve
from .options import Options


def plan_foreign(path: str, budget: Union[None, str, int, float] = None, method: str = "auto",
                 time_limit_s: float = 10.0, **options: Any) -> Plan:
    """Plan the graph in a file; memory is the peak of live units.

    Parameters
    ----------
    path : str
        As for :func:`memonger.graph.imported.read_graph`.
    budget : str, int or float, optional
        As for :func:`memonger.graph.imported.parse_foreign_budget`; without one the least memory is
        looked for.
    method : str
        As for :func:`memonger.solve.solve`.
    time_limit_s : float
        More than the usual 10 s buys a longer search.
    **options
        Other fields of :class:`memonger.solve.Options`.

    Returns
    -------
    Plan
    """
    graph = read_graph(path)
    units = None
    if budget is not None:
        units = parse_foreign_budget(
            budget, plan_storage(graph, expand(graph, {}), "live").pool_bytes)
    else:
        options.setdefault("objective", "memory")
    return solve(graph, units, method,
                 Options(storage="live", time_limit_s=time_limit_s, **options))
