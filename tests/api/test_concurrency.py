"""Planning in several threads and processes at once, and a thousand times in one."""
from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from forked import python
from needed import needs_plugin

import memonger

mx = pytest.importorskip("mxnet")
pytestmark = needs_plugin
WIDTHS = (16, 24, 32, 40)


def planned(width: int, budget: str = "80%") -> memonger.Plan:
    x = mx.sym.var("data")
    for number in range(6):
        x = mx.sym.FullyConnected(x, num_hidden=width, name="fc%d" % number)
        x = mx.sym.Activation(mx.sym.BatchNorm(x, name="bn%d" % number), act_type="relu",
                              name="act%d" % number)
    net = mx.sym.SoftmaxOutput(x, name="softmax")
    return memonger.plan(net, budget=budget, time_limit=0.1, costs="reference",
                         data=(256, width))


def test_threads_plan_as_one_does_after_the_other():
    alone = [planned(width).symbol_json for width in WIDTHS]
    with ThreadPoolExecutor(4) as threads:
        together = list(threads.map(lambda width: planned(width).symbol_json, WIDTHS * 2))
    assert together == alone * 2


def test_processes_plan_alike():
    code = "from api.test_concurrency import planned; print(planned(24).graph.fingerprint, " \
           "planned(24).pool_bytes)"
    with ThreadPoolExecutor(2) as threads:
        done = list(threads.map(lambda _: python("-c", code), range(2)))
    assert all(one.returncode == 0 for one in done)
    here = planned(24)
    assert {one.stdout.splitlines()[-1] for one in done} == {
        "%s %d" % (here.graph.fingerprint, here.pool_bytes)}


@pytest.mark.slow
def test_a_thousand_plans_do_not_grow_the_process():
    code = """
from api.test_concurrency import planned
def resident_kib():
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmRSS"))
for number in range(1200):
    if number == 200:  # caches and pools are full
        before = resident_kib()
    planned(16 + 8 * (number % 4), "%d%%" % (75 + number % 20))
print("grown by KiB:", resident_kib() - before)
"""
    done = python("-c", code)
    assert done.returncode == 0, done.stdout[-2000:]
    # One graph of this network with its variants takes some 200 KiB.
    assert int(done.stdout.rsplit(":", 1)[1]) < 16 * 1024
