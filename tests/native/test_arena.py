"""Executors with their tensors at offsets of one piece of memory."""
from __future__ import annotations

import gc

import mxnet as mx
import numpy as np
import pytest

import memonger
from memonger import native
from memonger.mx.check.verify import verify
from memonger.mx.rewrite.apply import strip_symbol

from .graphs import (
    PERCEPTRON,
    PYRAMID,
    captured,
    mark,
    perceptron,
    pyramid,
    with_arena,
)
from .test_executors import CHEAP


def total_mb(executor):
    line = next(line for line in executor.debug_str().splitlines() if "MB allocated" in line)
    return int(line.split()[1])


def test_the_pool_falls_and_nothing_else_changes():
    for marks in ({}, CHEAP, dict(CHEAP, conv1="1")):
        marked = mark(pyramid(), marks)
        whole, arena = captured(marked, PYRAMID), captured(with_arena(marked), PYRAMID)
        assert arena["pool_bytes"] < 0.9 * whole["pool_bytes"]
        assert [n["name"] for n in arena["nodes"]] == [n["name"] for n in whole["nodes"]]
        found = verify(with_arena(marked), pyramid(), PYRAMID, steps=3)
        assert found.identical, found.worst


def test_a_symbol_without_the_wish_and_a_switch_off():
    with native.switched(True, True, arena=False):
        off = captured(with_arena(pyramid()), PYRAMID)["pool_bytes"]
    assert off == captured(pyramid(), PYRAMID)["pool_bytes"]
    assert strip_symbol(with_arena(pyramid())).tojson() == pyramid().tojson()


def test_a_bind_that_fails_leaves_no_wish_behind():
    def pool_bytes(symbol):
        return captured(symbol, PYRAMID, grad_req="null")["pool_bytes"]

    whole = pool_bytes(pyramid())
    assert pool_bytes(with_arena(pyramid())) < whole
    wrong = {name: mx.nd.zeros((1,)) for name in perceptron().list_arguments()}
    with pytest.raises(mx.MXNetError):
        with_arena(perceptron()).bind(mx.cpu(), wrong, args_grad=dict(wrong))
    assert pool_bytes(pyramid()) == whole


def test_only_the_arena_is_allocated(forked):
    """Resident memory grows by little more than the pool that debug_str prints."""
    done = forked.run("""
import mxnet as mx
from memonger import native
from memonger.mx.symbol.planned_symbol import mark_storage
native.load()
x = mx.sym.var("data")
for i in range(12):
    x = mx.sym.tanh(mx.sym.exp(x) * 0.1)
symbol = mx.sym.load_json(mark_storage(mx.sym.sum(x).tojson()))
shape = (512, 4096)
executor = symbol.simple_bind(mx.cpu(), data=shape)
executor.arg_dict["data"][:] = 0.5
executor.grad_dict["data"][:] = 0.5
mx.nd.waitall()
def peak():
    line = next(line for line in open("/proc/self/status") if line.startswith("VmHWM"))
    return int(line.split()[1]) / 1024
before = peak()
executor.forward(is_train=True)
executor.backward([mx.nd.ones((1,))])
mx.nd.waitall()
line = next(l for l in executor.debug_str().splitlines() if "MB allocated" in l)
print(peak() - before, line.split()[1])
""")
    grown, pool = map(float, done.stdout.split())
    assert 50 < pool and pool / 2 < grown < pool + 10


def test_a_custom_op_that_computes_does_not_wait_for_itself():
    """Its Python code asks for temporary space, which all ops of the arena share."""
    class Sorted(mx.operator.CustomOp):
        def forward(self, is_train, req, in_data, out_data, aux):
            self.assign(out_data[0], req[0], mx.nd.sort(in_data[0], axis=1))

        def backward(self, req, out_grad, in_data, out_data, in_grad, aux):
            order = mx.nd.argsort(mx.nd.argsort(in_data[0], axis=1), axis=1)
            self.assign(in_grad[0], req[0], mx.nd.pick(out_grad[0].expand_dims(1), mx.nd.zeros(
                (in_data[0].shape[0], 1)), axis=2).broadcast_to(order.shape) + order)

    @mx.operator.register("memonger_test_sorted")
    class SortedProp(mx.operator.CustomOpProp):
        def create_operator(self, ctx, shapes, dtypes):
            return Sorted()

    x = mx.sym.FullyConnected(mx.sym.var("data"), num_hidden=8, name="fc")
    x = mx.sym.Custom(mx.sym.tanh(x), op_type="memonger_test_sorted", name="custom")
    net = mx.sym.SoftmaxOutput(mx.sym.FullyConnected(mx.sym.exp(x), num_hidden=3), name="softmax")
    found = verify(with_arena(net), net, {"data": (4, 5)}, steps=2)
    assert found.identical, found.worst


def test_weights_that_the_network_computes(forked_as_users):
    """For inference MKL-DNN rearranges weights behind the op; see RearrangesWeight."""
    done = forked_as_users.run("""
import mxnet as mx, numpy as np
from memonger import native
from memonger.mx.symbol.planned_symbol import mark_storage
native.load()
x, steps = mx.sym.var("data"), 4
for i in range(steps):
    weight = mx.sym.tanh(mx.sym.var("w%d" % i, shape=(16, 16, 3, 3)))
    x = mx.sym.Convolution(x, weight, num_filter=16, kernel=(3, 3), pad=(1, 1), no_bias=True)
    x = mx.sym.Activation(x, act_type="relu")
plain = mx.sym.sum(x)
results = []
for symbol in (plain, mx.sym.load_json(mark_storage(plain.tojson()))):
    executor = symbol.simple_bind(mx.cpu(), data=(4, 16, 20, 20))
    random = np.random.RandomState(0)
    for name in sorted(executor.arg_dict):
        executor.arg_dict[name][:] = random.standard_normal(executor.arg_dict[name].shape)
    for is_train in (False, True, False, True, False):
        results.append(executor.forward(is_train=is_train)[0].asnumpy())
        if is_train:
            executor.backward([mx.nd.ones((1,))])
            results += [executor.grad_dict[name].asnumpy() for name in sorted(executor.grad_dict)]
half = len(results) // 2
worst = max(float(abs(a - b).max() / abs(a).max()) for a, b in zip(results[:half], results[half:]))
print(worst)
""")
    assert done.returncode == 0 and float(done.stdout) < 1e-5, done.stderr


def test_a_network_on_several_devices_has_whole_buffers():
    with mx.AttrScope(ctx_group="first"):
        x = mx.sym.FullyConnected(mx.sym.var("data"), num_hidden=64, name="fc1")
    with mx.AttrScope(ctx_group="second"):
        x = mx.sym.FullyConnected(mx.sym.tanh(x), num_hidden=64, name="fc2")
        net = mx.sym.SoftmaxOutput(x, name="softmax")
    groups = {"first": mx.cpu(0), "second": mx.cpu(1)}
    plan = memonger.plan(net, group2ctx=groups, time_limit=0.2, data=(8, 32))
    assert plan.storage == "best"
    outputs = []
    for symbol in (net, with_arena(net), plan.symbol):
        executor = symbol.simple_bind(mx.cpu(), group2ctx=groups, data=(8, 32))
        for number, name in enumerate(sorted(executor.arg_dict)):
            executor.arg_dict[name][:] = 0.01 * number
        executor.forward(is_train=True)
        executor.backward()
        outputs.append([executor.outputs[0].asnumpy(), executor.grad_dict["fc1_weight"].asnumpy()])
    assert all(np.array_equal(a, b) for other in outputs[1:] for a, b in zip(outputs[0], other))


def test_outputs_outlive_their_executor():
    results = []
    for symbol in (perceptron(), with_arena(perceptron())):
        executor = symbol.simple_bind(mx.cpu(), **PERCEPTRON)
        for array in executor.arg_arrays:
            array[:] = 0.25
        output = executor.forward(is_train=True)[0]
        executor.backward()
        del executor
        gc.collect()
        junk = [mx.nd.ones((64,)) for _ in range(50)]
        results.append(output.asnumpy())
        assert len(junk) == 50
    assert np.array_equal(*results)


def test_an_executor_may_go_while_its_step_runs():
    symbol = with_arena(mark(pyramid(), CHEAP))
    for _ in range(20):
        executor = symbol.simple_bind(mx.cpu(), **PYRAMID)
        executor.forward(is_train=True)
        executor.backward()
        del executor
    mx.nd.waitall()


def test_the_total_of_debug_str_is_the_pool():
    symbol, shapes = with_arena(mark(pyramid(), CHEAP)), {"data": (64, 3, 32, 32)}
    executor = symbol.simple_bind(mx.cpu(), grad_req="write", **shapes)
    assert total_mb(executor) == captured(symbol, shapes)["pool_bytes"] >> 20
