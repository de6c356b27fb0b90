"""``memonger measure``."""
from __future__ import annotations

import argparse

from ..mx.calls import plan as api
from ..plans.plan import Plan
from ..report.measured import measurement_table
from . import torch_model
from .arguments import add_context, add_network, add_output, context, count, load_network
from .command import EXIT_OK, Command, UsageError, answer


class Measure(Command):
    """Run a network and tell what it really allocated and how long a step took.

    A plan file is measured without the plan and with it, in one run; -o writes the plan again
    with the measurement, for its report.

      memonger measure plan.json -o plan.json
    """

    name = "measure"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        add_network(parser, "a plan file, a *-symbol.json file of MXNet, or PyTorch's "
                            "model.py:build")
        torch_model.add_arguments(parser)
        add_context(parser)
        parser.add_argument("--steps", type=count, default=5,
                            help="steps whose median time counts; default %(default)s")
        add_output(parser, "-o", "--output", help="write the plan with what was measured")

    def run(self, args: argparse.Namespace) -> int:
        if torch_model.is_model_or_its_plan(args.network):
            return torch_model.measure(args)
        network, options = load_network(args, args.network)
        if args.output and not isinstance(network, Plan):
            raise UsageError("-o needs a plan file; %s is a symbol" % args.network)
        measured = api.measure(network, steps=args.steps, ctx=context(args.ctx), **options)
        if args.output:
            network.with_measured(measured.to_dict()).save(args.output)
        answer(args, measured.to_dict, lambda: measurement_table(
            measured, measured.original, network if isinstance(network, Plan) else None))
        return EXIT_OK
