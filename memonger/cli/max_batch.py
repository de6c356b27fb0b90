"""``memonger max-batch``."""
from __future__ import annotations

import argparse
import sys

from ..api import calls as api
from .arguments import (
    add_budget,
    add_optimizer,
    add_place,
    add_search,
    add_shapes,
    load_symbol,
    optimizer_arguments,
    place_arguments,
    search_arguments,
    shape_arguments,
)
from .command import EXIT_BUDGET, EXIT_OK, Command, answer
from .progress import ProgressLine


class MaxBatch(Command):
    """Find the largest batch that fits a budget, without a plan and with one.

    The first dimension of each --shape is the batch; its value does not matter. The exit code is 3
    when not even one sample fits.

      memonger max-batch net-symbol.json --shape data=1,3,224,224 --budget 8GB
    """

    name = "max-batch"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("network", metavar="NETWORK", help="a *-symbol.json file")
        add_shapes(parser)
        add_place(parser)
        add_budget(parser, required=True)
        add_search(parser)
        add_optimizer(parser)

    def run(self, args: argparse.Namespace) -> int:
        symbol = load_symbol(args.network)
        with ProgressLine() as line:
            found = api.max_batch(
                symbol, budget=args.budget, **place_arguments(args), progress=line.callback,
                **search_arguments(args), **optimizer_arguments(args),
                **shape_arguments(args, symbol))
        if found.reason:
            sys.stderr.write("error: %s\n" % found)
            if args.json:
                answer(args, found.to_dict, "")
            return EXIT_BUDGET
        answer(args, found.to_dict, lambda: str(found))
        return EXIT_OK
