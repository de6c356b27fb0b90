"""``memonger estimate``."""
from __future__ import annotations

import argparse
import json
from typing import Any, Callable, Dict, Optional

from ..graph.imported import looks_like_graph, parse_imported_budget
from ..graph.types import Graph
from ..mx.calls import calls as api
from ..mx.calls.graphs import graph_in, unplanned_graph
from ..mx.memory.stated_gpu import place, resolve_budget
from ..report.facts import Facts
from ..report.formatting import Units
from ..report.text import estimate_table
from ..util.files import write_whole
from ..util.json_files import read_text
from ..util.units import format_bytes, parse_budget
from . import arguments, torch_model
from .command import EXIT_BUDGET, EXIT_OK, Command, UsageError, answer


class Estimate(Command):
    """Tell how many bytes a training step takes, by category, without allocating them.

    With --budget the exit code is 3 when the network does not fit it.
    """

    name = "estimate"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        arguments.add_network(parser, "a *-symbol.json file, model.py:build, or a graph")
        torch_model.add_arguments(parser)
        arguments.add_place(parser)
        arguments.add_budget(parser)
        arguments.add_optimizer(parser)
        arguments.add_output(parser, "--graph", help="write the step's ops, bytes and times as "
                                                     "JSON, which memonger plan reads")

    def run(self, args: argparse.Namespace) -> int:
        if torch_model.is_model(args.network):
            return torch_model.estimate(args)
        text = read_text(args.network)
        if not arguments.is_symbol(text) and looks_like_graph(text):
            arguments.refuse_plan(args.network, text)
            return self._of_graph(args, graph_in(text, args.network))
        symbol = arguments.load_symbol(args.network)
        options = arguments.call_arguments(args, symbol)
        budget = resolve_budget(args.budget, place(options["ctx"], options["device"]))
        estimate = api.estimate(symbol, **options)
        total = estimate.total_bytes
        if args.graph:
            write_whole(args.graph, json.dumps(estimate.graph.to_dict()) + "\n")
        record: Dict[str, Any] = {
            "bytes": dict(estimate.by_category), "total_bytes": total,
            "pool_bytes": estimate.pool_bytes, "peak_live_bytes": estimate.peak_live_bytes}
        return _finish(args, record, None if budget is None else parse_budget(budget, total),
                       format_bytes)

    def _of_graph(self, args: argparse.Namespace, graph: Graph) -> int:
        if args.graph or args.optimizer[0] or args.shape:
            raise UsageError("%s is a graph, with sizes of its own; of the options --budget and "
                             "--json mean something" % args.network)
        plan = unplanned_graph(graph)
        total = plan.baseline_total_bytes
        record = {"bytes": {**plan.fixed_bytes, "pool": plan.baseline_pool_bytes},
                  "total_bytes": total, "pool_bytes": plan.baseline_pool_bytes,
                  "peak_live_bytes": Facts(plan).baseline_timeline.peak_live_bytes}
        budget = None if args.budget is None else parse_imported_budget(args.budget, total)
        return _finish(args, record, budget, Units.of(plan).size)


def _finish(args: argparse.Namespace, record: Dict[str, Any], budget: Optional[int],
            size: Callable[[float], str]) -> int:
    """Print an estimate; the exit code tells whether it fits the budget."""
    if budget is not None:
        record.update(budget_bytes=budget, fits=record["total_bytes"] <= budget)
    answer(args, record, lambda: estimate_table(record["bytes"], budget, size=size))
    return EXIT_OK if record.get("fits", True) else EXIT_BUDGET
