"""``memonger plan``."""
from __future__ import annotations

import argparse
from typing import Any, Dict

from .. import api
from ..plan import Plan
from ..report.text import frontier_table, summary
from .arguments import (
    add_budget,
    add_context,
    add_shapes,
    context,
    is_symbol,
    load_symbol,
    positive,
    read_text,
    shape_arguments,
    share,
)
from .command import EXIT_OK, Command, UsageError, answer
from .progress import ProgressLine
from .record import foreign_record, plan_record


class MakePlan(Command):
    """Plan a network: what to keep for the backward pass and what to compute again.

    NETWORK is a *-symbol.json file of MXNet, or a graph that is not MXNet's (node-link JSON,
    memonger's own JSON, or text; see docs), whose budget is in the graph's own units or a share.

      memonger plan net-symbol.json --shape data=32,3,224,224 --budget 4GB -o plan.json
      memonger plan graph.json --budget 0.8

    Ctrl-C ends the search and keeps the best plan found so far.
    """

    name = "plan"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("network", metavar="NETWORK")
        add_shapes(parser)
        add_context(parser)
        add_budget(parser)
        parser.add_argument("--overhead", type=share, metavar="SHARE",
                            help="instead of a budget: least memory within this extra time, 10%%")
        parser.add_argument("--method", default="auto", metavar="NAME",
                            help="auto, sublinear, milp, ...; default %(default)s")
        parser.add_argument("--variants", default="exact", choices=("none", "exact", "all"),
                            help="operator variants to use: those with the same bits, or also "
                                 "those within a stated tolerance; default %(default)s")
        parser.add_argument("--keep", action="append", default=[], metavar="OP",
                            help="keep what this op makes (wildcards work); repeat for more")
        parser.add_argument("--recompute", action="append", default=[], metavar="OP",
                            help="compute this op again; repeat for more")
        parser.add_argument("--costs", default="auto", metavar="SOURCE",
                            help="op times: a profile file, or a preset such as v100; "
                                 "default %(default)s")
        parser.add_argument("--time-limit", type=positive, default=10.0, metavar="SECONDS",
                            help="stop searching after this long; default %(default)s")
        parser.add_argument("--sweep", action="store_true",
                            help="plan for a range of budgets and print the frontier")
        parser.add_argument("-o", "--output", metavar="FILE", help="write the plan as JSON")

    def run(self, args: argparse.Namespace) -> int:
        if args.budget is not None and args.overhead is not None:
            raise UsageError("--budget and --overhead exclude each other")
        if args.sweep and (args.output or args.budget is not None or args.overhead is not None):
            raise UsageError("--sweep plans for many budgets; "
                             "it takes no --budget, --overhead or --output")
        if is_symbol(read_text(args.network)):
            return self._plan_symbol(args)
        return self._plan_foreign(args)

    def _plan_symbol(self, args: argparse.Namespace) -> int:
        symbol = load_symbol(args.network)
        options: Dict[str, Any] = dict(
            method=args.method, variants=args.variants, ctx=context(args.ctx), keep=args.keep,
            recompute=args.recompute, costs=args.costs, time_limit=args.time_limit,
            **shape_arguments(args))
        with ProgressLine() as line:
            options["progress"] = line.callback
            if args.sweep:
                frontier = api.sweep(symbol, **options)
            else:
                if args.overhead is not None:
                    options["overhead"] = args.overhead
                plan = api.plan(symbol, budget=args.budget, **options)
        if args.sweep:
            answer(args, lambda: [plan_record(p) for p in frontier],
                   lambda: frontier_table(frontier))
        else:
            finish(args, plan, plan_record(plan))
        return EXIT_OK

    def _plan_foreign(self, args: argparse.Namespace) -> int:
        refused = [flag for flag, value in (("--shape", args.shape), ("--type", args.types),
                                            ("--grad-req", args.grad_req)) if value]
        if refused:
            raise UsageError("%s is no MXNet symbol, so it takes no %s"
                             % (args.network, refused[0]))
        from ..foreign import plan_foreign, read_graph
        graph = read_graph(args.network)
        with ProgressLine() as line:
            plan = plan_foreign(graph, args.budget, method=args.method,
                                time_limit=args.time_limit, progress=line.callback)
        finish(args, plan, foreign_record(plan))
        return EXIT_OK


def finish(args: argparse.Namespace, plan: Plan, record: Dict[str, Any]) -> None:
    """Write the plan file and print the table."""
    if args.output:
        plan.save(args.output)
    answer(args, record, lambda: summary(plan, args.output))
