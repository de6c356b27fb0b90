"""``memonger report``."""
from __future__ import annotations

import argparse

from .. import api
from .command import EXIT_OK, Command, UsageError, answer


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

    def run(self, args: argparse.Namespace) -> int:
        if not (args.output or args.graph or args.timeline):
            raise UsageError("nothing to draw; give -o FILE.html, --graph FILE or --timeline FILE")
        plan = api.load_plan(args.plan)
        written = []
        if args.output:
            plan.report(args.output)
            written.append(args.output)
        if args.graph:
            from ..report.dot import render
            render(plan, args.graph, collapse=not args.expand)
            written.append(args.graph)
        if args.timeline:
            from ..report.timeline import draw_timeline
            draw_timeline(plan, args.timeline)
            written.append(args.timeline)
        answer(args, {"written": written}, "wrote " + ", ".join(written))
        return EXIT_OK
