"""``memonger profile``."""
from __future__ import annotations

import argparse

from .arguments import add_context, add_shapes, context, load_symbol, shape_arguments
from .command import EXIT_OK, Command, answer
from .progress import ProgressLine


class Profile(Command):
    """Measure how long each op of a network takes on this device, for plan --costs.

    Each distinct op, with its attributes, shapes and types, runs alone; medians are kept.

      memonger profile net-symbol.json --shape data=32,3,224,224 -o profile.json
      memonger plan net-symbol.json --shape data=32,3,224,224 --costs profile.json
    """

    name = "profile"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("network", metavar="NETWORK", help="a *-symbol.json file")
        add_shapes(parser)
        add_context(parser)
        parser.add_argument("-o", "--output", metavar="FILE", required=True,
                            help="the profile; one that exists is extended")

    def run(self, args: argparse.Namespace) -> int:
        from ..mx.profile import profile_symbol
        symbol = load_symbol(args.network)
        with ProgressLine() as line:
            profile = profile_symbol(symbol, args.output, ctx=context(args.ctx),
                                     progress=line.callback, **shape_arguments(args))
        answer(args, profile.to_dict, lambda: str(profile))
        return EXIT_OK
