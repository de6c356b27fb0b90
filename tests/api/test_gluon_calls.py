"""Planned blocks are called as stock ones are: in both modes, with nested, named and no inputs."""
from __future__ import annotations

import mxnet as mx
import numpy as np
import pytest
from mxnet import autograd, gluon
from mxnet.gluon import nn, rnn

import memonger
from memonger.util.errors import InputError, VerificationError

SHAPE = (2, 3, 8, 8)


class Detector(gluon.HybridBlock):
    """Scores for the loss in training, detections in inference, as gluoncv's detectors."""

    def __init__(self):
        super().__init__(prefix="detector_")
        with self.name_scope():
            self.body = nn.HybridSequential()
            self.body.add(nn.Conv2D(8, 3, padding=1, in_channels=3), nn.BatchNorm(in_channels=8),
                          nn.Activation("relu"))
            self.scores = nn.Conv2D(4, 3, padding=1, in_channels=8)
            self.boxes = nn.Conv2D(4, 1, in_channels=8)

    def hybrid_forward(self, F, x):
        features = F.sigmoid(self.body(x))
        scores = self.scores(features)
        if autograd.is_training():
            return scores, self.boxes(features)
        return F.argmax(scores, axis=1)


def initialized(block, **flags):
    mx.random.seed(1)
    np.random.seed(1)
    block.initialize(mx.init.Xavier())
    block.hybridize(**flags)
    return block


def arrays(*shapes, seed=0):
    random = np.random.RandomState(seed)
    return [mx.nd.array(random.standard_normal(shape)) for shape in shapes]


def flat(outputs):
    if not isinstance(outputs, (list, tuple)):
        return [outputs]
    return [array for output in outputs for array in flat(output)]


def trained(block, inputs, steps=2, call=lambda block, inputs: block(*inputs)):
    """All numbers of some steps in training, and the outputs of inference behind them."""
    found = []
    trainer = gluon.Trainer(block.collect_params(), "sgd", {"learning_rate": 0.01})
    for step in range(steps):
        mx.random.seed(step)
        with autograd.record():
            outputs = flat(call(block, inputs))
        autograd.backward(outputs, arrays(*[o.shape for o in outputs], seed=step))
        trainer.step(1, ignore_stale_grad=True)
        found += [o.asnumpy() for o in outputs]
        found += [p.grad().asnumpy() if p.grad_req != "null" else p.data().asnumpy()
                  for p in block.collect_params().values() if p._data is not None]
    return found + [o.asnumpy() for o in flat(call(block, inputs))]


def same(a, b):
    return len(a) == len(b) and all(x.shape == y.shape and x.tobytes() == y.tobytes()
                                    for x, y in zip(a, b))


OPTIONS = {"recompute": ["*"], "variants": "none", "time_limit": 0.1}


@pytest.mark.parametrize("before", ["nothing", "inference"])
def test_a_block_that_asks_for_the_mode_trains_as_after_a_first_call_in_training(before):
    data = arrays(SHAPE)
    expected = trained(initialized(Detector()), data)
    assert len(expected[0].shape) == 4
    block = initialized(Detector())
    if before == "inference":
        block(*data)
    plan = memonger.gluon.plan(block, SHAPE, **OPTIONS)
    assert plan.schedule.recomputed()
    assert same(expected, trained(block, data))


def test_the_mode_of_a_record_around_the_plan_counts():
    data = arrays(SHAPE)
    block = initialized(Detector())
    with autograd.record(train_mode=False):
        memonger.gluon.plan(block, SHAPE, **OPTIONS)
        outputs = flat(block(*data))
    assert [o.shape for o in outputs] == [(2, 8, 8)]


def test_a_block_stays_as_it_was_where_planning_fails():
    block = initialized(Detector())
    block(*arrays(SHAPE))
    before = block._cached_graph, block._cached_op, block._in_format
    with pytest.raises(InputError):
        memonger.gluon.plan(block, SHAPE, budget="60 bananas")
    with pytest.raises(InputError):
        memonger.gluon.plan(block, (4, 3))
    assert before == (block._cached_graph, block._cached_op, block._in_format)
    assert "_call_cached_op" not in vars(block)


@pytest.mark.parametrize("flags", [{}, {"static_alloc": True, "static_shape": True}], ids=str)
def test_verify_compares_with_the_block_as_it_runs_without_a_plan(flags):
    data = arrays(SHAPE)[0]
    block = initialized(Detector(), **flags)
    memonger.gluon.plan(block, data, **OPTIONS)
    trained(block, [data])
    before = [p.data().asnumpy() for p in block.collect_params().values()]
    planned = block._cached_graph
    found = memonger.gluon.verify(block, data).check()
    assert found.identical and block._cached_graph is planned
    assert {"output 0", "output 1", "gradient detector_conv0_weight",
            "gradient detector_conv2_weight", "aux detector_batchnorm0_running_mean"} <= {
                d.tensor for d in found.differences}
    assert same(before, [p.data().asnumpy() for p in block.collect_params().values()])


@pytest.mark.parametrize("recompute", [["*"], []], ids=["planned", "nothing to run again"])
def test_verify_finds_a_block_that_was_traced_in_another_mode(recompute):
    block = initialized(Detector())
    with autograd.record(train_mode=False):
        memonger.gluon.plan(block, SHAPE, **{**OPTIONS, "recompute": recompute})
    found = memonger.gluon.verify(block, SHAPE)
    assert not found and {d.tensor for d in found.differences if not d.ok} >= {
        "output 0", "output 1", "gradient detector_conv2_weight"}
    with pytest.raises(VerificationError, match="Do not train"):
        found.check()


def test_verify_goes_back_from_every_output():
    class Two(gluon.HybridBlock):
        def hybrid_forward(self, F, x):
            return F.BlockGrad(x), F.tanh(F.sin(x) * x)

    x = arrays((3, 4))[0]
    x.attach_grad()
    block = initialized(Two())
    memonger.gluon.plan(block, x, **OPTIONS)
    good = block._cached_graph[1]
    assert memonger.gluon.verify(block, x).check()
    block._cached_graph = (block._cached_graph[0], mx.sym.Group([good[0], 0.99 * good[1]]))
    assert {d.tensor for d in memonger.gluon.verify(block, x).differences if not d.ok} == {
        "output 1", "gradient data"}


def test_verify_needs_a_plan():
    block = initialized(Detector())
    for _ in range(2):
        with pytest.raises(InputError, match="no plan"):
            memonger.gluon.verify(block, SHAPE)
        with autograd.record():
            block(*arrays(SHAPE))


class Nested(gluon.HybridBlock):
    """Reads states in lists of lists, and a mask that may be missing."""

    def __init__(self):
        super().__init__(prefix="nested_")
        with self.name_scope():
            self.out = nn.Dense(4, in_units=6)

    def hybrid_forward(self, F, x, states=None, mask=None):
        for state in states or ():
            for part in state if isinstance(state, (list, tuple)) else [state]:
                if part is not None:
                    x = F.tanh(F.sin(x) + part)
        x = x if mask is None else F.broadcast_mul(x, mask)
        return self.out(F.sigmoid(x) * x), [x, [F.tanh(x)]]


class Named(Nested):
    """Has a call of its own, with names."""

    def __call__(self, x, states=None, *, mask=None, twice=False):
        return super().__call__(2 * x if twice else x, states, mask)


X, MASK = (5, 6), (5, 1)


@pytest.mark.parametrize("inputs", [
    (X,), (X, [X, X]), (X, (X,), MASK), (X, None, MASK), (X, [], MASK), (X, [X, None]),
    (X, [[X], (X, X)]), (X, [None, [X, None]], MASK), (X, None, None)], ids=str)
def test_inputs_may_be_nested_or_missing(inputs):
    def filled(item):
        if item is None:
            return None
        if isinstance(item, tuple) and isinstance(item[0], int):
            return arrays(item)[0]
        return type(item)(filled(part) for part in item)

    data = filled(inputs)
    expected = trained(initialized(Nested()), data)
    for given in (inputs, data):
        block = initialized(Nested())
        plan = memonger.gluon.plan(block, *given, **OPTIONS)
        assert plan.schedule.recomputed()
        assert same(expected, trained(block, data))
        assert memonger.gluon.verify(block, *given).identical


@pytest.mark.parametrize("named", [{}, {"mask": MASK}, {"states": [X, X]},
                                   {"states": [X], "mask": MASK, "twice": True}], ids=str)
def test_inputs_may_have_names_where_the_call_has_any(named):
    values = {name: arrays(value)[0] if name == "mask" else
              arrays(*value) if name == "states" else value for name, value in named.items()}

    def call(block, inputs):
        return block(*inputs, **values)

    data = arrays(X)
    expected = trained(initialized(Named()), data, call=call)
    for given in (named, values):
        block = initialized(Named())
        memonger.gluon.plan(block, X, **given, **OPTIONS)
        assert same(expected, trained(block, data, call=call))
        assert memonger.gluon.verify(block, X, **given).identical
    with pytest.raises(InputError, match="mask"):  # as stock Gluon
        memonger.gluon.plan(initialized(Nested()), X, mask=MASK)


def test_recurrent_layers_make_their_states_themselves():
    data = arrays((5, 2, 6))
    states = arrays((1, 2, 8), (1, 2, 8), seed=1)
    for given in ([], [states]):
        results = []
        for planned in (False, True):
            block = initialized(rnn.LSTM(8, prefix="lstm_"))
            if planned:
                memonger.gluon.plan(block, *data, *given, **OPTIONS)
                assert memonger.gluon.verify(block, *data, *given).ok
            results.append(trained(block, [*data, *given]))
        assert same(*results)


def test_an_input_that_nothing_reads():
    class Ignoring(gluon.HybridBlock):
        def hybrid_forward(self, F, x, unused):
            return F.tanh(F.sin(x))

    block = initialized(Ignoring())
    x, unused = arrays(X, MASK)
    x.attach_grad()
    memonger.gluon.plan(block, x, unused, **OPTIONS)
    with pytest.warns(UserWarning, match="1-th input"), autograd.record():
        y = block(x, unused)
    y.backward()
    assert np.allclose(y.asnumpy(), np.tanh(np.sin(x.asnumpy())), rtol=1e-6)


class ReadsShapes(gluon.HybridBlock):
    def hybrid_forward(self, F, x):
        return F.reshape(x, shape=(x.shape[0], -1))


class Branches(gluon.HybridBlock):
    def hybrid_forward(self, F, x):
        return F.tanh(x) if F.sum(x) > 0 else x


@pytest.mark.parametrize("make", [ReadsShapes, Branches])
def test_what_symbols_do_not_have_is_said_with_its_place(make):
    with pytest.raises((AttributeError, mx.MXNetError)):
        initialized(make())(*arrays(X))
    with pytest.raises(InputError, match=r"line \d+ of test_gluon_calls.py, in hybrid_forward.*"
                                         r"plain call fails, too.*F.shape_array") as caught:
        memonger.gluon.plan(initialized(make()), X)
    assert isinstance(caught.value.__cause__, (AttributeError, mx.MXNetError))


def test_a_call_may_read_shapes():
    class InCall(Nested):
        def __call__(self, x):
            return super().__call__(x.reshape((x.shape[0], -1)))

    data = arrays((5, 2, 3))
    expected = trained(initialized(InCall()), data)
    block = initialized(InCall())
    memonger.gluon.plan(block, (5, 2, 3), **OPTIONS)
    assert same(expected, trained(block, data))


def test_calls_that_run_no_graph():
    class Forward(gluon.HybridBlock):
        def forward(self, x):
            return mx.nd.tanh(x)

    with pytest.raises(InputError, match="plan the blocks that it calls"):
        memonger.gluon.plan(initialized(Forward()), X)
    for wrong in ("60%", 3, {"x": X}, [X, "a"]):
        with pytest.raises(InputError, match="an input must be"):
            memonger.gluon.plan(initialized(Nested()), X, wrong)
    with pytest.raises(InputError, match="no option 'budgett'; did you mean 'budget'"):
        memonger.gluon.plan(initialized(Nested()), X, budgett="60%")
