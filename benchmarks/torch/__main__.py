"""``python -m benchmarks.torch plans`` and ``gpu``."""
from __future__ import annotations

import argparse
import sys

from . import gpu, plans


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.torch")
    commands = parser.add_subparsers(dest="command", required=True)
    gpu.add_arguments(commands.add_parser("gpu", help="step time and peak on a device"))
    plans.add_arguments(commands.add_parser("plans", help="predicted peaks and times of all"))
    args = parser.parse_args()
    return (gpu if args.command == "gpu" else plans).main(args)


if __name__ == "__main__":
    sys.exit(main())
