"""``python -m benchmarks FILE ...``: the methods side by side on graphs from files.

Published rules have one answer for a graph. All other methods, also those of installed packages
(entry points ``memonger.methods``), plan for each budget, a share of the unplanned peak. Nothing of
MXNet is needed.
"""
from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Dict, Iterator, List, Optional, Sequence

from memonger.graph.types import Graph
from memonger.planning.graphs import graph_in
from memonger.plans.plan import Plan
from memonger.report.formatting import format_extra, format_percent, format_time, table
from memonger.solve import methods
from memonger.solve.imported import plan_graph
from memonger.util.errors import InfeasibleBudget, InputError, MemongerError
from memonger.util.files import write_out
from memonger.util.json_files import read_text

#: Rules with one answer for each graph.
RULES = ("sublinear", "chen", "ogc")


@dataclass(frozen=True)
class Row:
    """A graph planned by a method for a budget."""

    graph: Graph
    method: str
    #: Percentage of the unplanned peak; None for a rule.
    budget: Optional[float]
    plan: Optional[Plan] = None
    #: Why there is no plan.
    error: str = ""

    def to_dict(self) -> Dict[str, Any]:
        """All numbers, fit for JSON; sizes are in the graph's units."""
        plan = self.plan
        found = {} if plan is None else {
            "total_bytes": plan.total_bytes, "unplanned_total_bytes": plan.baseline_total_bytes,
            "overhead": plan.overhead, "bound": plan.bound, "status": plan.status.value,
            "seconds": plan.planning_s}
        return {"graph": self.graph.name, "method": self.method, "budget_percent": self.budget,
                "error": self.error, **found}


def run(graphs: Sequence[Graph], names: Sequence[str], budgets: Sequence[float],
        time_limit_s: float) -> Iterator[Row]:
    """A row for each graph, method and budget.

    ``budgets``: percentages of the unplanned peak.
    """
    for graph in graphs:
        for method in names:
            for budget in (None,) if method in RULES else budgets:
                asked = None if budget is None else "%g%%" % budget
                try:
                    yield Row(graph, method, budget, plan_graph(
                        graph, asked, method, time_limit_s=time_limit_s))
                except InfeasibleBudget as error:
                    yield Row(graph, method, budget, error="no plan: at least %s" %
                              graph.format_size(error.minimum_bytes))
                except MemongerError as error:
                    yield Row(graph, method, budget, error=str(error))


def describe(rows: Sequence[Row]) -> str:
    """The rows as a table."""
    lines: List[Sequence[str]] = [("graph", "method", "budget", "total", "of unplanned",
                                   "extra time", "at least", "search", "status")]
    for row in rows:
        plan = row.plan
        head = (row.graph.name, row.method, "" if row.budget is None else "%g %%" % row.budget)
        if plan is None:
            lines.append((*head, "", "", "", "", "", row.error))
            continue
        base = plan.baseline_total_bytes
        lines.append((*head, row.graph.format_size(plan.total_bytes),
                      format_percent(plan.total_bytes / base) if base else "",
                      format_extra(plan.overhead), format_extra(plan.bound) if plan.bound else "",
                      format_time(plan.planning_s), plan.status.value))
    return table(lines, "<<>>>>>><")


def main(paths: Sequence[str], names: Sequence[str], budgets: Sequence[float],
         time_limit_s: float, as_json: bool = False) -> int:
    """Print the table; 1 where no method has a plan.

    Raises InputError if a file holds no graph or a method is unknown.
    """
    names = names or (*RULES, "auto")
    unknown = [name for name in names if name not in methods()]
    if unknown:
        raise InputError("no method %r for graphs; there are %s"
                         % (unknown[0], ", ".join(methods())))
    rows = list(run([graph_in(read_text(path), path) for path in paths], names, budgets,
                    time_limit_s))
    write_out((json.dumps([row.to_dict() for row in rows], indent=2) if as_json
               else describe(rows)) + "\n")
    return 1 if all(row.error for row in rows) else 0
