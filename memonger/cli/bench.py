"""``memonger bench``."""
from __future__ import annotations

import argparse

from .arguments import add_context, context
from .command import Command


class Bench(Command):
    """Reproduce the benchmark tables.

      memonger bench resnet50 --budgets 75,50,35,25  every method on one network
      memonger bench --published                     compare with the published tables
      memonger bench resnet18 --measure              train, planned and unplanned in turn
      memonger bench --process                       promised memory and what processes take
      memonger bench peers [FOLDER]                  other planners' own graphs, in FOLDER
      memonger bench dmlc                            dmlc's ResNet-50 in less and less memory
      memonger bench operators                       frugal operators and MXNet's own
      memonger bench scaling                         time and memory of planning, to 20,000 ops
      memonger bench ablation                        what each part of the search is worth
      memonger bench smallest                        the least memory that any plan takes
      memonger bench --list                          the networks
    """

    name = "bench"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        from ..bench.run import configure
        configure(parser)
        add_context(parser)

    def run(self, args: argparse.Namespace) -> int:
        from ..bench.run import run
        if args.ctx != "cpu(0)":
            args.context = context(args.ctx)
        return run(args)
