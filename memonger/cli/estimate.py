"""``memonger estimate``."""
from __future__ import annotations

import argparse
import json
from typing import Any, Dict, Optional

from ..graph.imported import parse_imported_budget
from ..graph.types import Graph
from ..mx.calls import plan as api
from ..mx.memory.stated_gpu import place, resolve_budget
from ..report.text import estimate_table
from ..util.files import write_whole
from ..util.units import parse_budget
from . import arguments, torch_model
from .command import EXIT_BUDGET, EXIT_OK, Command, answer
from .graph_file import graph_of


class Estimate(Command):
    """Tell how many bytes a training step takes, by category, without allocating them.

    With --budget the exit code is 3 when the network does not fit it.
    """

    name = "estimate"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        arguments.add_network(parser, "a *-symbol.json file of MXNet, PyTorch's model.py:build, or "
                                      "a graph")
        torch_model.add_arguments(parser)
        arguments.add_place(parser)
        arguments.add_budget(parser)
        arguments.add_optimizer(parser)
        arguments.add_output(parser, "--graph", help="write the step's ops, bytes and times as "
                                                     "JSON, which memonger plan reads")

    def run(self, args: argparse.Namespace) -> int:
        if torch_model.is_model(args.network):
            return torch_model.estimate(args)
        graph = graph_of(args)
        if graph is not None:
            return self._of_graph(args, graph)
        symbol = arguments.load_symbol(args.network)
        options = arguments.call_arguments(args, symbol)
        budget = resolve_budget(args.budget, place(options["ctx"], options["device"]))
        estimate = api.estimate(symbol, **options)
        return _finish(args, estimate, None if budget is None else
                       parse_budget(budget, estimate.total_bytes))

    def _of_graph(self, args: argparse.Namespace, graph: Graph) -> int:
        estimate = api.estimate(graph)
        return _finish(args, estimate, None if args.budget is None else parse_imported_budget(
            args.budget, estimate.total_bytes, not graph.own_units))


def _finish(args: argparse.Namespace, estimate: api.Estimate, budget: Optional[int]) -> int:
    """Print an estimate; the exit code tells whether it fits the budget."""
    sizes, total = estimate.by_category, estimate.total_bytes
    if args.graph:
        write_whole(args.graph, json.dumps(estimate.graph.to_dict()) + "\n")
    record: Dict[str, Any] = {
        "bytes": dict(sizes), "total_bytes": total, "pool_bytes": estimate.pool_bytes,
        "peak_live_bytes": estimate.peak_live_bytes}
    if budget is not None:
        record.update(budget_bytes=budget, fits=total <= budget)
    answer(args, record, lambda: estimate_table(sizes, budget, graph=estimate.graph))
    return EXIT_OK if record.get("fits", True) else EXIT_BUDGET
