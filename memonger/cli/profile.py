"""``memonger profile``."""
from __future__ import annotations

import argparse

from ..report.progress import ProgressBar
from . import arguments, torch_model
from .command import EXIT_OK, Command, answer


class Profile(Command):
    """Measure how long each op of a network takes on this device, for better plans.

    The network trains for a few steps, unplanned and with each operator variant swapped in, while
    every op is timed; medians are kept. Where it does not fit into memory each op runs alone.
    Without -o every later plan on this device uses the times; delete the file to undo that.

      memonger profile net-symbol.json --shape data=32,3,224,224
      memonger plan net-symbol.json --shape data=32,3,224,224 --budget 60%
    """

    name = "profile"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        arguments.add_network(parser, "a *-symbol.json file of MXNet, or PyTorch's model.py:build")
        torch_model.add_arguments(parser)
        arguments.add_context(parser)
        parser.add_argument("--time-limit", type=arguments.positive, default=60.0,
                            metavar="SECONDS",
                            help="estimate what is not measured by then; default %(default)s")
        parser.add_argument("--repeats", type=arguments.count, default=5, metavar="N",
                            help="runs of each op, of which the median counts; "
                                 "default %(default)s")
        arguments.add_output(parser, "-o", "--output",
                             help="the profile, extended if it exists; by default one for this "
                                  "device that --costs auto finds")

    def run(self, args: argparse.Namespace) -> int:
        if torch_model.is_model(args.network):
            return torch_model.profile(args, self)
        from ..mx.costs.profile_files import default_path
        from ..mx.profile.run import circumstances, profile
        device = arguments.context(args.ctx)
        symbol = arguments.load_symbol(args.network)
        with ProgressBar() as bar:
            measured = profile(symbol, ctx=device, path=args.output, time_limit=args.time_limit,
                               repeats=args.repeats, progress=bar,
                               **arguments.shape_arguments(args, symbol))
        path = args.output or default_path(circumstances(device))
        answer(args, {"profile": path, "device": measured.device, "times": len(measured.times_s)},
               "%s holds %d op times of %s\n%s" % (
                   path, len(measured.times_s), measured.device,
                   "use it: memonger plan ... --costs %s" % path if args.output else
                   "later plans on this device use them where they cover the network; to undo: "
                   "rm %s" % path))
        return EXIT_OK
