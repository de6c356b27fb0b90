"""Plan an unrolled LSTM, as example_lstm.py of dmlc/mxnet-memonger does.

    python examples/lstm.py [--steps 40] [--layers 4] [--batch 64] [--budget 4GB]

Every time step is a named stage: its results are kept, or run again, together.
"""
from __future__ import annotations

import argparse
import sys

import memonger
from memonger.zoo import nets


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=40,
                        help="time steps; 1000 in dmlc/mxnet-memonger, which takes some minutes")
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--budget", help="largest total; without one: the smallest pool")
    options = parser.parse_args()
    net = nets.build("dmlc_lstm", options.batch, steps=options.steps, layers=options.layers,
                     hints=True)
    planned = memonger.search_plan(net.symbol, budget=options.budget, shapes=net.shapes)
    print("Old feature map cost=%d MB" % memonger.get_cost(net.symbol, shapes=net.shapes))
    print("New feature map cost=%d MB" % memonger.get_cost(planned, shapes=net.shapes))


if __name__ == "__main__":
    try:
        main()
    except memonger.errors.MemongerError as error:
        sys.exit("error: %s" % error)
