"""Trains random networks with random clones beside the plain ones; a process of its own.

    python random_training.py FIRST LAST

Every second network has its tensors in an arena.

Prints how many cases were bit for bit the same; fails at the first that was not. The engine comes
from MXNET_ENGINE_TYPE.
"""
from __future__ import annotations

import os
import sys
from pathlib import Path

os.environ.setdefault("MXNET_MKLDNN_ENABLED", "0")
os.environ.setdefault("MXNET_USE_MKLDNN_RNN", "0")
os.environ.setdefault("MXNET_STORAGE_FALLBACK_LOG_VERBOSE", "0")
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import mxnet as mx
from mx.random_symbols import random_recompute, random_symbol

from memonger import native
from memonger.mx.capture.record import read
from memonger.mx.check.verify import verify
from memonger.mx.symbol.planned_symbol import apply_recompute, mark_storage


def main(first: int, last: int) -> None:
    native.load()
    for seed in range(first, last):
        symbol, shapes = random_symbol(seed)
        graph = read(symbol, shapes).graph
        recompute = random_recompute(graph, seed)
        text = apply_recompute(symbol.tojson(), graph, recompute)
        planned = mx.sym.load_json(mark_storage(text) if seed % 2 else text)
        found = verify(planned, symbol, shapes)
        if not found.identical:
            raise SystemExit("seed %d: %s" % (seed, found.worst))
    print("identical: %d" % (last - first))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
