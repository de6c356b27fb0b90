"""Binding, training and freeing again and again keeps nothing."""
from __future__ import annotations

import pytest
from forked import python

PROGRAM = """
import sys
import mxnet as mx
from memonger import native
from memonger.mx.symbol.planned_symbol import mark_storage
from native.graphs import convolutions, mark, pyramid
from native.test_executors import CHEAP

native.load()
symbols = [mark(convolutions(), dict(CHEAP, relu1='{"relu1": 2}')),
           mx.sym.load_json(mark_storage(mark(pyramid(), CHEAP).tojson()))]  # in an arena
cycles = int(sys.argv[1])


def resident_kib():
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmRSS"))


def cycle(number):
    symbol = symbols[number % 2]
    executor = symbol.simple_bind(mx.cpu(), data=(2, 3, 8, 8))
    executor.forward(is_train=True)
    executor.backward()
    executor.outputs[0].wait_to_read()
    if number % 10 == 0:
        with native.capture() as plans:
            symbol.simple_bind(mx.cpu(), data=(1, 3, 8, 8))
        assert len(plans) == 1


for number in range(cycles // 5):  # caches and pools fill
    cycle(number)
mx.nd.waitall()
before = resident_kib()
for number in range(cycles):
    cycle(number)
mx.nd.waitall()
print("grown by KiB:", resident_kib() - before)
"""


def grown_kib(cycles, *, enabled=True):
    done = python("-c", PROGRAM, str(cycles), MEMONGER_DISABLE="" if enabled else "1")
    assert done.returncode == 0, done.stdout[-2000:]
    return int(done.stdout.rsplit(":", 1)[1])


def test_a_few_cycles_do_not_grow_the_process():
    # An executor of this network takes some 100 KiB: keeping one of them each time would show.
    assert grown_kib(200) < 8 * 1024


@pytest.mark.slow
def test_ten_thousand_cycles_do_not_grow_the_process():
    grown = grown_kib(10000)
    assert grown < 8 * 1024 or grown < 1.2 * grown_kib(10000, enabled=False)
