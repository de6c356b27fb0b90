"""``memonger report``."""
from __future__ import annotations

import argparse
from typing import List

from ..planning.sweeping import sweep_like
from ..plans import plan_file
from ..plans.plan import Plan
from ..report.charts.figures import FORMATS
from ..report.diagram import render
from ..report.progress import ProgressBar
from .arguments import add_output
from .command import EXIT_OK, Command, UsageError, answer


class Report(Command):
    """Draw a plan: an HTML report, a diagram of the network, a timeline of its memory.

      memonger report plan.json -o plan.html
      memonger report plan.json --graph plan.svg --timeline memory.png
    """

    name = "report"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("plan", metavar="PLAN", help="a plan file")
        add_output(parser, "-o", "--output", metavar="FILE.html", endings=("html", "htm"),
                   help="the report, one self-contained file")
        add_output(parser, "--graph", endings=render.FORMATS,
                   help="the diagram: .svg .png .pdf or .dot")
        add_output(parser, "--timeline", endings=FORMATS,
                   help="the timeline: .svg .png or .pdf")
        parser.add_argument("--expand", action="store_true",
                            help="draw each op in the diagram, and repeated blocks one by one")
        parser.add_argument("--clones", action="store_true",
                            help="draw backward, and recomputed ops beside the ops that they serve")
        parser.add_argument("--sweep", action="store_true",
                            help="plan for a range of budgets, for the report's frontier "
                                 "(takes a while)")

    def run(self, args: argparse.Namespace) -> int:
        if not (args.output or args.graph or args.timeline):
            raise UsageError("nothing to draw; give -o FILE.html, --graph FILE or --timeline FILE")
        if args.sweep and not args.output:
            raise UsageError("--sweep is for the report; give -o FILE.html")
        plan = plan_file.load_plan(args.plan)
        written = []
        if args.output:
            from ..report.html import write_html
            sweep: List[Plan] = []
            if args.sweep:
                with ProgressBar() as bar:
                    sweep = sweep_like(plan, 20.0, bar)
            write_html(plan, args.output, sweep)
            written.append(args.output)
        if args.graph:
            render.render(plan, args.graph, collapse=not args.expand, clones=args.clones)
            written.append(args.graph)
        if args.timeline:
            from ..report.charts.timeline import draw_timeline
            draw_timeline(plan, args.timeline)
            written.append(args.timeline)
        answer(args, {"written": written}, "wrote " + ", ".join(written))
        return EXIT_OK

