"""``memonger bench``: the benchmarks are no part of the package."""
from __future__ import annotations

import argparse
import os
import subprocess
import sys

from ..util.errors import InputError
from .command import Command


class Bench(Command):
    """Run python -m benchmarks of the checkout in the current folder.

    The benchmarks are no part of the package; memonger's repository has them.
    """

    name = "bench"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("words", nargs="*", metavar="WORDS",
                            help="arguments of python -m benchmarks")

    def run(self, args: argparse.Namespace) -> int:
        if not os.path.isfile(os.path.join("benchmarks", "__main__.py")):
            raise InputError("the benchmarks are no part of the package: run python -m benchmarks "
                             "in a checkout of memonger")
        return subprocess.call([sys.executable, "-m", "benchmarks", *args.words])
