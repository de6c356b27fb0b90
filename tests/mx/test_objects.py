"""MXNet's objects for each op, beside what processes take."""
from __future__ import annotations

import pytest
from needed import needs_plugin

from memonger.mx.memory.native_workspaces import objects_bytes_per_op

pytestmark = [needs_plugin, pytest.mark.slow]

#: Prints what a process takes for each op more, unplanned and in an arena.
_SCRIPT = """
import os
os.environ["MXNET_MKLDNN_ENABLED"] = %r
import mxnet as mx
import memonger
from memonger.mx.check.measure import allocated_bytes
from memonger.mx.symbol.planned_symbol import mark_storage
from memonger.zoo import nets

def bytes_of(steps):
    net = nets.build("dmlc_lstm", 1, steps=steps, units=16, embedding=16, labels=16)
    arena = mx.sym.load_json(mark_storage(net.symbol.tojson()))
    estimate = memonger.estimate(net.symbol, shapes=net.shapes)
    arrays = estimate.total_bytes - estimate.by_category["objects"]
    return [len(estimate.graph.ops)] + [
        allocated_bytes(symbol, net.shapes) - arrays for symbol in (net.symbol, arena)]

few, many = bytes_of(50), bytes_of(150)
ops, *sizes = (b - a for a, b in zip(few, many))
print(*(size / ops for size in sizes))
"""


@pytest.mark.parametrize("mkldnn", ["0", "1"])
def test_each_op_takes_what_totals_count(mkldnn, forked_as_users):
    done = forked_as_users.run(_SCRIPT % mkldnn)
    unplanned, in_arena = map(float, done.stdout.split())
    on = mkldnn == "1"
    assert unplanned == pytest.approx(objects_bytes_per_op(on, False), rel=0.06)
    assert in_arena == pytest.approx(objects_bytes_per_op(on, True), rel=0.06)
