"""Operators that do not know MKLDNN's layouts, in planned networks: same bits, no copies kept."""
from __future__ import annotations

from needed import needs_plugin

pytestmark = needs_plugin

#: Trains `plain` and `marked` for three steps; `same` tells whether all bits are equal.
_TRAIN = """
import mxnet as mx, numpy as np
from memonger import native
from memonger.mx.symbol.planned_symbol import mark_storage
native.load()

def conv(x, filters, **more):
    return mx.sym.Convolution(x, num_filter=filters, kernel=(3, 3), pad=(1, 1), **more)

def train(symbol, request, shape=(4, 3, 20, 20)):
    mx.random.seed(0)
    executor = symbol.simple_bind(mx.cpu(), data=shape, grad_req=request)
    random = np.random.RandomState(0)
    for values in (executor.arg_dict, executor.aux_dict):
        for name in sorted(values):
            values[name][:] = random.uniform(0.1, 1, values[name].shape)
    found = []
    for step in range(3):
        found += [o.asnumpy() for o in executor.forward(is_train=True)]
        executor.backward([mx.nd.ones_like(o) for o in executor.outputs])
        found += [executor.grad_dict[name].asnumpy() for name in sorted(executor.grad_dict)]
        found += [executor.aux_dict[name].asnumpy() for name in sorted(executor.aux_dict)]
    return found

def same(plain, request="write"):
    one, other = (train(symbol, request) for symbol in (
        plain, mx.sym.load_json(mark_storage(plain.tojson()))))
    return len(one) == len(other) and all(
        a.tobytes() == b.tobytes() for a, b in zip(one, other))
"""


def test_mxnets_own_operators_compute_the_same(forked_as_users):
    """clip, sums over axes, slices, reshapes, dropout, concatenation and products by themselves."""
    done = forked_as_users.run(_TRAIN + """
x = mx.sym.clip(conv(mx.sym.var("data"), 16), a_min=0, a_max=6)
x = mx.sym.broadcast_mul(conv(x, 16), mx.sym.sum(x, axis=(2, 3), keepdims=True))
x = mx.sym.Concat(conv(x, 16), mx.sym.slice_axis(conv(x, 32), axis=1, begin=8, end=24), dim=1)
x = mx.sym.Dropout(conv(x, 16), p=0.3)
y = conv(x, 16)
x = mx.sym.elemwise_mul(y, y) + mx.sym.square(conv(x, 16))
x = mx.sym.BatchNorm(conv(mx.sym.tanh(x), 8), fix_gamma=False)
x = mx.sym.reshape(conv(x, 16), shape=(0, -1))
x = mx.sym.softmax(mx.sym.FullyConnected(x, num_hidden=7))
print(*(same(mx.sym.log(x), request) for request in ("write", "add")))
""")
    assert done.stdout.split() == ["True", "True"], done.stderr


def test_a_process_saves_what_the_plan_promises(forked_as_users):
    """Ten blocks whose variants read and write beside MKLDNN's convolutions."""
    done = forked_as_users.run("""
import memonger, mxnet as mx
from memonger.mx.check.measure import allocated_bytes
x = mx.sym.var("data")
for _ in range(10):
    x = mx.sym.Convolution(x, num_filter=32, kernel=(3, 3), pad=(1, 1))
    x = mx.sym.Activation(mx.sym.BatchNorm(x), act_type="relu")
x = mx.sym.SoftmaxOutput(mx.sym.FullyConnected(x, num_hidden=2), name="softmax")
shapes = {"data": (8, 3, 64, 64)}
plan = memonger.plan(x, budget="50%", time_limit=0.5, shapes=shapes)
promised = plan.baseline_total_bytes - plan.total_bytes
saved = allocated_bytes(x, shapes) - allocated_bytes(plan.symbol, shapes)
print(bool(plan.schedule.variants), saved / promised)
""")
    variants, share = done.stdout.split()
    assert variants == "True" and float(share) >= 0.9
