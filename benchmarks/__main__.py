"""``python -m benchmarks``: the measurements by name."""
from __future__ import annotations

import argparse
import importlib
import sys
from typing import Dict, Tuple

#: Name -> module, and what it does.
MEASUREMENTS: Dict[str, Tuple[str, str]] = {
    "torch": ("benchmarks.torch.plans", "PyTorch: predicted peaks and times of all methods"),
    "torch-gpu": ("benchmarks.torch.gpu", "PyTorch: step time and peak on a device"),
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks")
    parser.add_argument("name", choices=sorted(MEASUREMENTS), help="; ".join(
        "%s: %s" % (name, words) for name, (_, words) in sorted(MEASUREMENTS.items())))
    named, rest = parser.parse_known_args(sys.argv[1:2])
    module = importlib.import_module(MEASUREMENTS[named.name][0])
    options = argparse.ArgumentParser(prog="python -m benchmarks " + named.name)
    module.add_arguments(options)
    return module.main(options.parse_args([*rest, *sys.argv[2:]]))


if __name__ == "__main__":
    sys.exit(main())
