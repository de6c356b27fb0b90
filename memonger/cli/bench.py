"""``memonger bench``."""
from __future__ import annotations

import argparse

from .command import Command


class Bench(Command):
    """Print the tables that memonger's claims rest on."""

    name = "bench"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        from ..bench.run import configure
        configure(parser)

    def run(self, args: argparse.Namespace) -> int:
        from ..bench.run import run
        return run(args)
