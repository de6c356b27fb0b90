"""``python -m benchmarks.torch gpu``."""
from __future__ import annotations

import argparse
import sys

from . import gpu


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.torch")
    commands = parser.add_subparsers(dest="command", required=True)
    gpu.add_arguments(commands.add_parser("gpu", help="step time and peak on a device"))
    return gpu.main(parser.parse_args())


if __name__ == "__main__":
    sys.exit(main())
