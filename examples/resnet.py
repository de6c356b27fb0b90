"""Plan a very deep ResNet, as example_resnet.py of dmlc/mxnet-memonger does.

    python examples/resnet.py [--blocks 3,24,36,3] [--batch 32] [--budget 2GB] [--no-hints]

The network is the one of that repository, with its ``mirror_stage`` hints. Nothing is allocated, so
it runs anywhere; feed ``planned`` to ``mx.mod.Module`` as usual.
"""
from __future__ import annotations

import argparse
import sys
from typing import Tuple

import memonger
from memonger.zoo import nets


def stages(text: str) -> Tuple[int, ...]:
    """``"3,24,36,3"`` as numbers."""
    return tuple(int(number) for number in text.split(","))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--blocks", default=(3, 24, 36, 3), help="residual blocks in each stage",
                        type=stages)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--budget", help="largest total; without one: the smallest pool")
    parser.add_argument("--no-hints", action="store_true", help="take the hints away")
    options = parser.parse_args()
    net = nets.build("dmlc_resnet50", options.batch, hints=not options.no_hints,
                     blocks=options.blocks)
    planned = memonger.search_plan(net.symbol, budget=options.budget, **net.shapes)
    print("Old feature map cost=%d MB" % memonger.get_cost(net.symbol, **net.shapes))
    print("New feature map cost=%d MB" % memonger.get_cost(planned, **net.shapes))


if __name__ == "__main__":
    try:
        main()
    except memonger.errors.MemongerError as error:
        sys.exit("error: %s" % error)
