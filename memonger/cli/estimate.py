"""``memonger estimate``."""
from __future__ import annotations

import argparse
import json
from typing import Any, Dict

from ..mx.calls import calls as api
from ..mx.memory.stated_gpu import place, resolve_budget
from ..report.text import estimate_table
from ..util.files import write_whole
from ..util.units import parse_budget
from . import arguments, torch_model
from .command import EXIT_BUDGET, EXIT_OK, Command, answer


class Estimate(Command):
    """Tell how many bytes a training step takes, by category, without allocating them.

    With --budget the exit code is 3 when the network does not fit it.
    """

    name = "estimate"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        arguments.add_network(parser, "a *-symbol.json file, or model.py:build")
        torch_model.add_arguments(parser)
        arguments.add_place(parser)
        arguments.add_budget(parser)
        arguments.add_optimizer(parser)
        arguments.add_output(parser, "--graph", help="write the step's ops, bytes and times as "
                                                     "JSON, which memonger plan reads")

    def run(self, args: argparse.Namespace) -> int:
        if torch_model.is_model(args.network):
            return torch_model.estimate(args)
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
        code = EXIT_OK
        if budget is not None:
            budget_bytes = parse_budget(budget, total)
            fits = total <= budget_bytes
            record.update(budget_bytes=budget_bytes, fits=fits)
            code = EXIT_OK if fits else EXIT_BUDGET
        answer(args, record,
               lambda: estimate_table(estimate.by_category, record.get("budget_bytes")))
        return code
