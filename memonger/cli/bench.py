"""``memonger bench``."""
from __future__ import annotations

import argparse

from .arguments import add_context, context
from .command import Command


class Bench(Command):
    """Reproduce the benchmark tables."""

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
