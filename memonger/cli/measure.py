"""``memonger measure``."""
from __future__ import annotations

import argparse

from ..api import calls as api
from .arguments import add_context, add_output, add_shapes, context, count
from .command import EXIT_OK, Command, UsageError, answer
from .network import load_network


class Measure(Command):
    """Run a network and tell what it really allocated and how long a step took.

    A plan file is measured without the plan and with it, in one run; -o writes the plan again
    with the measurement, for its report.

      memonger measure plan.json -o plan.json
    """

    name = "measure"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("network", metavar="NETWORK",
                            help="a plan file or a *-symbol.json file")
        add_shapes(parser)
        add_context(parser)
        parser.add_argument("--steps", type=count, default=5,
                            help="steps whose median time counts; default %(default)s")
        add_output(parser, "-o", "--output", help="write the plan with what was measured")

    def run(self, args: argparse.Namespace) -> int:
        network = load_network(args, args.network)
        if args.output and network.plan is None:
            raise UsageError("-o needs a plan file; %s is a symbol" % args.network)
        options = dict(ctx=context(args.ctx), steps=args.steps, **network.arguments)
        if network.planned is None:
            measured = api.measure(network.original, **options)
        else:
            measured = api.measure(network.planned, original=network.original, **options)
        if args.output and network.plan is not None:
            network.plan.with_measured(measured.to_dict()).save(args.output)
        answer(args, measured.to_dict, lambda: str(measured))
        return EXIT_OK
