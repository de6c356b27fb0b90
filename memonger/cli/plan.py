"""``memonger plan``."""
from __future__ import annotations

import argparse
from dataclasses import replace
from typing import Any, Dict, List

from ..mx.calls import plan as api
from ..planning.graphs import name_of
from ..plans.plan import Plan
from ..report.charts.figures import FORMATS
from ..report.charts.frontier import draw_frontier, frontier_table
from ..report.progress import ProgressBar
from ..report.text import summary
from ..solve.frontier import BUDGETS
from . import arguments, torch_model
from .command import EXIT_OK, Command, UsageError, answer
from .graph_file import graph_of
from .record import plan_record


def _refused(planned: int) -> str:
    """How many of a sweep's budgets have no plan."""
    missing = len(BUDGETS) - planned
    return "\nno plan was found for the %stightest of the %d budgets, which end at %s of the " \
        "unplanned total" % ("%d " % missing * (missing > 1), len(BUDGETS), BUDGETS[-1]) \
        if missing else ""


class MakePlan(Command):
    """Plan a network: what to keep for the backward pass and what to recompute.

    NETWORK is a *-symbol.json file of MXNet, or model.py:build, a function that gives a PyTorch
    module, or a graph (memonger's own JSON, node-link JSON or text; see docs/graphs.md), whose
    budget is in its own units or a share.

      memonger plan net-symbol.json --shape data=32,3,224,224 --budget 4GB -o plan.json
      memonger plan model.py:build --input 32,3,224,224 --budget 50% -o plan.json
      memonger plan graph.json --budget 0.8

    Ctrl-C ends the search and keeps the best plan found so far.
    """

    name = "plan"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        arguments.add_network(parser, "a *-symbol.json file of MXNet, PyTorch's model.py:build, or "
                                      "a graph")
        torch_model.add_arguments(parser)
        arguments.add_place(parser)
        arguments.add_budget(parser, more=", or knee: where less memory starts to cost more time")
        parser.add_argument("--overhead", type=arguments.share, metavar="SHARE",
                            help="instead of a budget: least memory within this extra time, 10%%")
        arguments.add_search(parser)
        arguments.add_optimizer(parser)
        parser.add_argument("--keep", action="append", default=[], metavar="OP",
                            help="keep what this op makes (wildcards work); repeat for more")
        parser.add_argument("--recompute", action="append", default=[], metavar="OP",
                            help="recompute this op (wildcards work); repeat for more")
        parser.add_argument("--max-clones", type=arguments.count, default=0, metavar="N",
                            help="recompute any op at most N times (default: unlimited)")
        parser.add_argument("--host", metavar="SIZE",
                            help="values of a PyTorch module may lie on the host, in so many "
                                 "bytes, or \"auto\", half of what is free")
        parser.add_argument("--link", metavar="SPEED",
                            help="with --host: speed of a copy there or back (default: 25GB/s)")
        parser.add_argument("--sweep", action="store_true",
                            help="plan for a range of budgets and print the frontier")
        arguments.add_output(parser, "--plot", endings=FORMATS,
                             help="with --sweep: draw the frontier: .svg .png or .pdf")
        arguments.add_output(parser, "-o", "--output", help="write the plan as JSON")

    def run(self, args: argparse.Namespace) -> int:
        if args.budget is not None and args.overhead is not None:
            raise UsageError("--budget and --overhead exclude each other")
        if args.plot and not args.sweep:
            raise UsageError("--plot draws the frontier of --sweep")
        if args.sweep and (args.output or args.budget is not None or args.overhead is not None
                           or args.max_clones or args.host):
            raise UsageError("--sweep plans for many budgets; it takes no --budget, --overhead, "
                             "--max-clones, --host or --output")
        if torch_model.is_model(args.network):
            if args.sweep:
                _finish_sweep(args, torch_model.sweep(args))
            else:
                plan = torch_model.plan(args)
                finish(args, plan, plan_record(plan))
            return EXIT_OK
        if args.host or args.link:
            raise UsageError("--host and --link are for PyTorch modules")
        network = graph_of(args)
        options: Dict[str, Any] = {name: getattr(args, name) for name in arguments.OF_SEARCHES}
        if network is None:
            network = arguments.load_symbol(args.network)
            options = arguments.call_arguments(args, network)
        with ProgressBar() as bar:
            options["progress"] = bar
            if args.sweep:
                frontier = api.sweep(network, **options)
            else:
                plan = api.plan(network, budget=args.budget, overhead=args.overhead,
                                max_clones=args.max_clones, **options)
        if args.sweep:
            _finish_sweep(args, frontier)
        else:
            finish(args, named(plan, args.network), plan_record(plan))
        return EXIT_OK


def _finish_sweep(args: argparse.Namespace, frontier: List[Plan]) -> None:
    """Draw and print a frontier."""
    if args.plot:
        draw_frontier([named(p, args.network) for p in frontier], args.plot)
    answer(args, lambda: [plan_record(p) for p in frontier],
           lambda: frontier_table(frontier) + _refused(len(frontier)))


def named(plan: Plan, path: str) -> Plan:
    """The plan with the name of the network's file, if it has no name yet."""
    name = plan.graph.name or name_of(path)
    return plan.changed(graph=replace(plan.graph, name=name))


def finish(args: argparse.Namespace, plan: Plan, record: Dict[str, Any]) -> None:
    """Write the plan file and print the table."""
    if args.output:
        plan.save(args.output)
    answer(args, record, lambda: summary(plan, args.output))
