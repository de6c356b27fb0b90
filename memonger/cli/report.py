"""``memonger report``."""
from __future__ import annotations

import argparse
from typing import List

from ..api import calls as api
from ..plan.plan import Plan
from ..util.errors import InputError
from .command import EXIT_OK, Command, UsageError, answer
from .progress import ProgressLine


class Report(Command):
    """Draw a plan: an HTML report, a diagram of the network, a timeline of its memory.

      memonger report plan.json -o plan.html
      memonger report plan.json --graph plan.svg --timeline memory.png
    """

    name = "report"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("plan", metavar="PLAN", help="a plan file")
        parser.add_argument("-o", "--output", metavar="FILE.html",
                            help="the report, one self-contained file")
        parser.add_argument("--graph", metavar="FILE", help="the diagram: .svg .png .pdf or .dot")
        parser.add_argument("--timeline", metavar="FILE", help="the timeline: .svg .png or .pdf")
        parser.add_argument("--expand", action="store_true",
                            help="draw repeated blocks one by one in the diagram")
        parser.add_argument("--clones", action="store_true",
                            help="draw backward, and what runs again beside what it serves")
        parser.add_argument("--sweep", action="store_true",
                            help="plan for a range of budgets, for the report's frontier "
                                 "(needs MXNet and takes a while)")

    def run(self, args: argparse.Namespace) -> int:
        if not (args.output or args.graph or args.timeline):
            raise UsageError("nothing to draw; give -o FILE.html, --graph FILE or --timeline FILE")
        if args.sweep and not args.output:
            raise UsageError("--sweep is for the report; give -o FILE.html")
        plan = api.load_plan(args.plan)
        written = []
        if args.output:
            from ..report.html import write_html
            write_html(plan, args.output, _sweep(plan) if args.sweep else ())
            written.append(args.output)
        if args.graph:
            from ..report.diagram.render import render
            render(plan, args.graph, collapse=not args.expand, clones=args.clones)
            written.append(args.graph)
        if args.timeline:
            from ..report.charts.timeline import draw_timeline
            draw_timeline(plan, args.timeline)
            written.append(args.timeline)
        answer(args, {"written": written}, "wrote " + ", ".join(written))
        return EXIT_OK


def _sweep(plan: Plan) -> List[Plan]:
    """The same network, asked for in the same way, with other budgets."""
    if plan.original_json is None:
        raise InputError("the plan is not of an MXNet network; there is nothing to sweep")
    from ..mx import symbol_from_json
    same = {name: plan.options[name] for name in (
        "shapes", "type_dict", "grad_req", "method", "variants", "keep", "recompute", "costs",
        "optimizer", "optimizer_params")
        if plan.options.get(name) is not None}
    with ProgressLine() as line:
        return api.sweep(symbol_from_json(plan.original_json), time_limit=5.0,
                         progress=line.callback, **same)
