"""Ops whose state refers to the arrays of its run: nothing is made again around them."""
from __future__ import annotations

import json

import mxnet as mx
import numpy as np
import pytest

import memonger
from memonger.mx.capture.record import read
from memonger.mx.check.verify import verify
from memonger.mx.symbol.common_subexpressions import to_json
from memonger.mx.symbol.planned_symbol import FORCE_MIRRORING, RECOMPUTE
from memonger.util.errors import InputError

from .graphs import captured, clones, mark, with_arena
from .test_cached_op import FLAGS, same, train


class KeepsItsInput(mx.operator.CustomOp):
    """Squares, and reads in backward the very array that forward was given."""

    def forward(self, is_train, req, in_data, out_data, aux):
        self.seen = in_data[0]
        self.assign(out_data[0], req[0], in_data[0] * in_data[0])

    def backward(self, req, out_grad, in_data, out_data, in_grad, aux):
        self.assign(in_grad[0], req[0], 2 * out_grad[0] * self.seen)


@mx.operator.register("memonger_test_keeps_its_input")
class KeepsItsInputProp(mx.operator.CustomOpProp):
    def create_operator(self, ctx, shapes, dtypes):
        return KeepsItsInput()


def foreach(x):
    state = mx.sym.sigmoid(mx.sym.var("state"), name="before_state")
    weight = mx.sym.sigmoid(mx.sym.var("weight"), name="before_weight")

    def step(data, states):
        made = mx.sym.tanh(mx.sym.broadcast_mul(data, weight) + states[0] * 0.7)
        return made * 1.5, [made]

    out, states = mx.sym.contrib.foreach(step, x, [state], name="it")
    return mx.sym.broadcast_add(out, mx.sym.expand_dims(states[0], axis=0))


def rnn(x):
    return mx.sym.RNN(x, mx.sym.var("packed"), mx.sym.var("state"), mx.sym.var("cell"),
                      state_size=6, num_layers=1, mode="lstm", name="it")


def custom(x):
    return mx.sym.Custom(x, op_type="memonger_test_keeps_its_input", name="it")


SHAPES = {"foreach": {"data": (4, 2, 6), "state": (2, 6), "weight": (1, 6)},
          "rnn": {"data": (4, 2, 6), "state": (1, 2, 6), "cell": (1, 2, 6)},
          "custom": {"data": (4, 2, 6)}}


def network(kind):
    """The op between layers whose arrays are all of one size: what is freed is soon written."""
    x = mx.sym.FullyConnected(mx.sym.var("data"), num_hidden=6, flatten=False, name="fc")
    x = mx.sym.tanh(x, name="before")
    x = {"foreach": foreach, "rnn": rnn, "custom": custom}[kind](x)
    for index in range(4):
        x = mx.sym.sigmoid(x * 1.5, name="sigmoid%d" % index)
        x = mx.sym.FullyConnected(x, num_hidden=6, flatten=False, name="behind%d" % index)
    return mx.sym.MakeLoss(mx.sym.tanh(x, name="last"), name="loss")


def ops(symbol):
    return [node["name"] for node in json.loads(to_json(symbol))["nodes"]
            if node["op"] not in ("null", "Custom")]


def everything_again(symbol, key=RECOMPUTE):
    return mark(symbol, dict.fromkeys(ops(symbol), "1" if key == RECOMPUTE else "True"), key)


@pytest.mark.parametrize("key", [RECOMPUTE, FORCE_MIRRORING])
@pytest.mark.parametrize("kind", list(SHAPES))
def test_gradients_are_right_whatever_is_asked(kind, key):
    net, shapes = network(kind), SHAPES[kind]
    marked = everything_again(net, key)
    again = clones(captured(marked, shapes))
    assert "sigmoid0_recompute1" in again
    assert not [name for name in again if name.startswith(("before", "it", "_foreach"))]
    for ours in (marked, with_arena(marked)):
        assert verify(ours, net, shapes, steps=2).identical


@pytest.mark.parametrize("kind", list(SHAPES))
def test_only_what_runs_once_is_asked_for(kind):
    """MXNet's own mirroring does not take over."""
    net, shapes = network(kind), SHAPES[kind]
    marked = mark(net, {"before": "True"}, FORCE_MIRRORING)
    assert [n["name"] for n in captured(marked, shapes)["nodes"]] == \
        [n["name"] for n in captured(net, shapes)["nodes"]]
    assert verify(marked, net, shapes).identical


@pytest.mark.parametrize("flags", list(FLAGS))
@pytest.mark.parametrize("kind", list(SHAPES))
def test_gluon(kind, flags):
    if (kind, flags) == ("foreach", "static shape"):
        pytest.skip("MXNet loses the iterations of loops in blocks of static shape")
    net, shapes = network(kind), SHAPES[kind]
    plain, _ = train(net, shapes, FLAGS[flags])
    ours, records = train(everything_again(net), shapes, FLAGS[flags])
    assert same(plain, ours)
    assert any("sigmoid0_recompute1" in clones(record) for record in records)


@pytest.mark.parametrize("method", ["auto", "chen", "ogc", "sublinear"])
@pytest.mark.parametrize("kind", list(SHAPES))
def test_plans(kind, method):
    net, shapes = network(kind), SHAPES[kind]
    plan = memonger.plan(net, shapes=shapes, method=method, time_limit=0.3)
    assert memonger.verify(plan).identical
    assert "may refer to it" in plan.explain("before")
    assert any("ops that must not be recomputed: before (" in note for note in plan.notes)
    kept = {op.name: op.not_recomputable_because for op in read(net, shapes).graph.ops
            if not op.is_backward}
    assert kept["before"] and not kept["sigmoid0"] and not kept["fc"]


SCRIPT = """
from native.test_state_of_arrays import SHAPES, everything_again, network, verify
for kind in SHAPES:
    found = verify(everything_again(network(kind)), network(kind), SHAPES[kind])
    assert found.ok, (kind, str(found))
"""


def test_with_mkldnn(forked_as_users):
    """Its RNN reads in backward what lies where forward found its input."""
    run = forked_as_users.run(SCRIPT)
    assert run.returncode == 0, run.stderr


DROPOUT = """
import mxnet as mx
import memonger
from native.test_state_of_arrays import everything_again, verify
x = mx.sym.FullyConnected(mx.sym.var("data"), num_hidden=64, name="fc")
x = mx.sym.tanh(x, name="before")
for index in range(3):
    x = mx.sym.Dropout(mx.sym.sigmoid(x * 1.5, name="gate%d" % index), p=0.3)
    x = mx.sym.FullyConnected(x, num_hidden=64, name="behind%d" % index)
net, shapes = mx.sym.MakeLoss(mx.sym.tanh(x), name="loss"), {"data": (32, 64)}
plan = memonger.plan(net, shapes=shapes, recompute=["gate*", "before"], variants="none")
again = {plan.graph.ops[op].name for op in plan.schedule.recomputed()}
assert {"gate0", "gate1", "gate2"} <= again, again
assert "may refer" not in str(plan.notes), plan.notes
found = memonger.verify(plan)
assert found.ok, str(found)
"""


def test_what_dropout_reads_may_run_again_with_mkldnn(forked_as_users):
    """Its state holds no arrays, whatever implementation the plugin gives it."""
    run = forked_as_users.run(DROPOUT)
    assert run.returncode == 0, run.stderr


def while_loop(x):
    out, _ = mx.sym.contrib.while_loop(
        lambda i, s: i < 3, lambda i, s: (mx.sym.tanh(s), [i + 1, s * 1.5]),
        [mx.sym.var("count"), x], max_iterations=3)
    return out


def cond(x):
    return mx.sym.contrib.cond(mx.sym.sum(mx.sym.var("count")) < 3, lambda: mx.sym.tanh(x),
                               lambda: x * 2)


def boolean_mask(x):
    return mx.sym.contrib.boolean_mask(x, mx.sym.var("count") + 1)


@pytest.mark.parametrize("make, count", [(while_loop, (1,)), (cond, (1,)), (boolean_mask, (4,))])
def test_shapes_that_only_a_run_knows(make, count):
    x = mx.sym.tanh(mx.sym.sigmoid(mx.sym.var("data"), name="first"), name="before")
    net = mx.sym.MakeLoss(mx.sym.sigmoid(make(x), name="behind"), name="loss")
    shapes = {"data": (4, 6), "count": count}
    for call in (memonger.plan, memonger.estimate, memonger.search_plan):
        with pytest.raises(InputError, match="known only when it runs"):
            call(net, **({"shapes": shapes} if call is not memonger.search_plan else shapes))
    if make is cond:
        return  # MXNet leaves the gradient of the branch that did not run unwritten
    requests, values = {"data": "write", "count": "null"}, {"count": np.zeros(count)}
    marked = mark(net, dict.fromkeys(("first", "before", "behind"), "True"), FORCE_MIRRORING)
    assert verify(marked, net, shapes, grad_req=requests, values=values).identical
