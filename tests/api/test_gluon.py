"""Planned Gluon blocks: CachedOp obeys, bytes are predicted, training stays the same."""
from __future__ import annotations

import mxnet as mx
import numpy as np
import pytest
from mxnet import autograd, gluon
from mxnet.gluon import nn

import memonger
from memonger import native
from memonger.util.errors import InputError

SHAPE = (8, 3, 16, 16)


class Net(gluon.HybridBlock):
    """Convolutions, BatchNorm and ReLU; a second input scales the first."""

    def __init__(self, two_inputs=False, **kwargs):
        super().__init__(**kwargs)
        self._two = two_inputs
        with self.name_scope():
            self.body = nn.HybridSequential()
            for _ in range(5):
                self.body.add(nn.Conv2D(8, 3, padding=1, use_bias=False), nn.BatchNorm(),
                              nn.Activation("relu"))
            self.out = nn.Dense(4)

    def hybrid_forward(self, F, x, scale=None):
        x = F.broadcast_mul(x, scale) if self._two else x
        return self.out(self.body(x))


def train(planned, flags, dtype="float32", two_inputs=False, batches=(8, 8)):
    mx.random.seed(3)
    np.random.seed(3)
    net = Net(two_inputs, prefix="net_")
    net.initialize(mx.init.Xavier())
    net.cast(dtype)
    net.hybridize(**flags)
    extra = [(1, 3, 1, 1)] if two_inputs else []
    plan = memonger.gluon.plan(net, SHAPE, *extra, method="sublinear", dtype=dtype) \
        if planned else None
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1})
    loss = gluon.loss.SoftmaxCrossEntropyLoss()
    random = np.random.RandomState(1)
    with native.capture() as records:
        for batch in batches:
            data = mx.nd.array(random.standard_normal((batch,) + SHAPE[1:]), dtype=dtype)
            inputs = [data] + [mx.nd.ones(shape, dtype=dtype) for shape in extra]
            with autograd.record():
                value = loss(net(*inputs), mx.nd.zeros((batch,)))
            value.backward()
            trainer.step(batch)
    values = {name: p.data().asnumpy() for name, p in net.collect_params().items()}
    return net, plan, values, [record["pool_bytes"] for record in records]


def test_a_block_is_planned_at_its_knee():
    net = Net(prefix="net_")
    net.initialize()
    net.hybridize()
    plan = memonger.gluon.plan(net, SHAPE, budget="knee")
    assert "the knee of memory against time is at" in plan.notes[-1]
    assert plan.total_bytes <= plan.budget_bytes <= plan.baseline_total_bytes


def same(a, b):
    return all(a[name].tobytes() == b[name].tobytes() for name in a)


@pytest.mark.parametrize("flags", [{}, {"static_alloc": True},
                                   {"static_alloc": True, "static_shape": True}], ids=str)
@pytest.mark.parametrize("storage", [True, False])
def test_pools_are_as_predicted_and_training_is_the_same(flags, storage):
    with native.switched(True, storage):
        _, _, plain, plain_pools = train(False, flags)
        _, plan, planned, pools = train(True, flags)
    assert same(plain, planned)
    assert sum(pools) == plan.pool_bytes < sum(plain_pools)


@pytest.mark.parametrize("flags", [{"inline_limit": 100},
                                   {"inline_limit": 100, "forward_bulk_size": 4}], ids=str)
def test_blocks_that_mxnet_would_run_op_by_op(flags):
    """Autograd would record ops whose memory the plan gives to others; the process ended."""
    _, _, plain, _ = train(False, {})
    _, plan, planned, pools = train(True, flags)
    assert same(plain, planned)
    assert sum(pools) == plan.pool_bytes


def test_float16_blocks():
    class Pointwise(gluon.HybridBlock):
        def hybrid_forward(self, F, x):
            for _ in range(6):  # the CPU has no float16 matrix products
                x = F.sqrt(F.sigmoid(x) * x * x + 1)
            return x

    results = []
    for planned in (False, True):
        net = Pointwise()
        net.hybridize()
        plan = memonger.gluon.plan(net, (64, 64), dtype="float16", method="sublinear") \
            if planned else None
        x = mx.nd.random.uniform(shape=(64, 64), dtype="float32").astype("float16") * 0 + 0.5
        x.attach_grad()
        with native.capture() as records:
            with autograd.record():
                y = net(x)
            y.backward()
        results.append(x.grad.asnumpy())
    assert np.array_equal(*results)
    assert plan.graph.tensors[plan.graph.ops[0].outputs[0]].size_bytes == 64 * 64 * 2
    assert len(records) == 2


def test_several_inputs():
    _, _, plain, _ = train(False, {}, two_inputs=True)
    _, plan, planned, pools = train(True, {}, two_inputs=True)
    assert same(plain, planned) and sum(pools) == plan.pool_bytes


@pytest.mark.parametrize("flags", [{}, {"static_alloc": True}], ids=str)
def test_other_batch_sizes_than_the_planned_one(flags):
    batches = (8, 5, 8, 12)
    assert same(train(False, flags, batches=batches)[2], train(True, flags, batches=batches)[2])


def test_values_that_gradients_read_for_their_shape_alone_stay():
    """Behind BlockGrad the gradient of the data is made by zeros_like, of the value's first run."""
    class Blocked(gluon.HybridBlock):
        def __init__(self):
            super().__init__()
            self.out = nn.Dense(3)

        def hybrid_forward(self, F, x):
            twice = F.sin(x) + x
            return F.tanh(self.out(F.BlockGrad(F.tanh(twice - F.exp(twice)))))

    net = Blocked()
    net.initialize()
    net.hybridize()
    plan = memonger.gluon.plan(net, (4, 8), recompute=["*blocked*"], time_limit=0.3)
    x = mx.nd.random.uniform(shape=(4, 8))
    with native.capture() as records:
        with autograd.record():
            y = net(x)
        y.backward()
    assert "recompute" in plan.decisions.values()
    assert sum(record["pool_bytes"] for record in records) == plan.pool_bytes


def test_gradients_of_inputs_count_where_they_are_attached():
    block = gluon.SymbolBlock(mx.sym.sum(mx.sym.square(mx.sym.tanh(mx.sym.FullyConnected(
        mx.sym.sin(mx.sym.var("data")), num_hidden=8)))), [mx.sym.var("data")])
    block.initialize()
    block.hybridize(static_alloc=True)
    x = mx.nd.ones((16, 32))
    block(x)
    plans = {}
    for attached in (False, True):
        if attached:
            x.attach_grad()
        plans[attached] = memonger.gluon.plan(block, x, recompute=["*"], time_limit=0.3)
        with native.capture() as records:
            with autograd.record():
                y = block(x)
            y.backward()
        assert sum(record["pool_bytes"] for record in records) == plans[attached].pool_bytes
    assert plans[True].fixed_bytes["gradients"] - plans[False].fixed_bytes["gradients"] == 2048


class Table(gluon.HybridBlock):
    """Rows of a table, scaled; the shapes of both are known after the variables were made."""

    def __init__(self):
        super().__init__()
        self.table = self.params.get("table", shape=(0, 0), allow_deferred_init=True)
        self.scale = self.params.get("scale", shape=(0, 0), allow_deferred_init=True)
        self.out = nn.Dense(3, in_units=6)

    def hybrid_forward(self, F, x, table, scale):
        return self.out(F.tanh(F.broadcast_mul(F.take(table, x), scale)))


def table_as_symbol():
    rows = mx.sym.broadcast_mul(mx.sym.take(mx.sym.var("table"), mx.sym.var("data")),
                                mx.sym.var("scale"))
    out = mx.sym.FullyConnected(mx.sym.tanh(rows), num_hidden=3, no_bias=True)
    return gluon.SymbolBlock(out, [mx.sym.var("data")])


@pytest.mark.parametrize("make", [Table, table_as_symbol], ids=["hybrid", "symbol"])
def test_shapes_of_parameters_that_the_data_do_not_tell(make, tmp_path):
    def trained(planned):
        block = make()
        shapes = {"table": (10, 6), "scale": (1, 6), "weight": (3, 6), "bias": (3,)}
        for name, parameter in block.collect_params().items():
            if isinstance(block, Table):
                parameter.var()
            parameter.shape = shapes[name.split("_")[-1]]
            parameter.initialize()
            parameter.set_data(mx.nd.array(np.random.RandomState(2).random(parameter.shape)))
        block.hybridize(static_alloc=True)
        plan = memonger.gluon.plan(block, data, recompute=["*"], variants="none",
                                   time_limit=0.1) if planned else None
        with native.capture() as records:
            with autograd.record():
                y = block(data)
            y.backward()
        if planned:
            assert sum(record["pool_bytes"] for record in records) == plan.pool_bytes
            assert plan.fixed_bytes["inputs"] == 12 and plan.schedule.recomputed()
            plan.save(str(tmp_path / "plan.json"))
            assert memonger.verify(memonger.load_plan(str(tmp_path / "plan.json"))).identical
        return [p.grad().asnumpy() for p in block.collect_params().values()]

    data = mx.nd.array([1, 2, 7])
    assert all(np.array_equal(a, b) for a, b in zip(trained(False), trained(True)))


def frozen_branch(recompute):
    """Averages and a gradient of a block with a frozen BatchNorm beside a trained layer."""
    shared = mx.sym.tanh(mx.sym.var("data"), name="shared")
    frozen = mx.sym.Convolution(shared, kernel=(1, 1), num_filter=4, no_bias=True, name="frozen")
    frozen = mx.sym.BatchNorm(frozen, fix_gamma=False, name="norm")
    trained = mx.sym.FullyConnected(shared, no_bias=True, num_hidden=3, name="trained")
    net = mx.sym.MakeLoss(mx.sym.mean(mx.sym.square(trained)) + mx.sym.mean(mx.sym.square(frozen)))
    block = gluon.SymbolBlock(net, [mx.sym.var("data")])
    data = mx.nd.array(np.random.RandomState(0).standard_normal((2, 3, 6, 6)))
    block.initialize()
    block.collect_params("frozen|norm").setattr("grad_req", "null")
    block.hybridize(static_alloc=True)
    block(data)
    for number, (_, values) in enumerate(sorted(block.collect_params().items())):
        values.set_data(mx.nd.array(np.random.RandomState(number).uniform(.5, 1, values.shape)))
    if recompute:
        plan = memonger.gluon.plan(block, data, variants="none", recompute=["*"], time_limit=0.1)
        assert "shared" in [plan.graph.ops[op].name for op in plan.schedule.recomputed()]
    with native.capture() as records:
        with autograd.record():
            loss = block(data)
        loss.backward()
        mx.nd.waitall()
    ran = [node["name"] for node in records[-1]["nodes"]]
    values = block.collect_params()
    return ran, [values["norm_moving_mean"].data().asnumpy(),
                 values["trained_weight"].grad().asnumpy()]


def test_clones_run_no_gradients_of_frozen_layers():
    # BatchNorm's gradient moves its averages.
    unplanned, planned = frozen_branch(False), frozen_branch(True)
    assert not any("norm_backward" in name for name in planned[0])
    assert any("shared_recompute" in name for name in planned[0])
    assert all(np.array_equal(a, b) for a, b in zip(unplanned[1], planned[1]))


def test_amp_cast_of_float64_runs_once():
    # MXNet's code for MKLDNN refuses float64 where the result may not lie in the input.
    data = mx.sym.var("data")
    cast = mx.sym.amp_cast(mx.sym.tanh(data, name="first"), dtype="float32", name="cast")
    net = mx.sym.MakeLoss(mx.sym.mean(mx.sym.square(mx.sym.tanh(cast, name="second"))))
    block = gluon.SymbolBlock(net, [data])
    block.hybridize()
    array = mx.nd.array(np.ones((4, 8)), dtype="float64")
    array.attach_grad()
    plan = memonger.gluon.plan(block, array, variants="none", recompute=["*"], time_limit=0.1)
    assert {tensor.dtype for tensor in plan.graph.tensors} >= {"float64"}
    assert plan.decisions["cast"] == "keep" and "copies no float64" in str(plan)
    with autograd.record():
        loss = block(array)
    loss.backward()
    assert np.isfinite(array.grad.asnumpy()).all()


def test_what_merged_outputs_read_is_not_recomputed():
    """The gradient of the second output, not asked for, reads the first run of what it copies."""
    shared = mx.sym.erf(mx.sym.var("data") * 2, name="shared")
    trained = mx.sym.FullyConnected(shared, num_hidden=5, name="trained")
    twice = [mx.sym.identity(shared, name="first"), mx.sym.identity(shared, name="second")]
    block = gluon.SymbolBlock(mx.sym.Group([*twice, mx.sym.tanh(trained)]), [mx.sym.var("data")])
    block.initialize()
    block.hybridize(static_alloc=True)
    data = mx.nd.ones((4, 8))
    block(data)
    plan = memonger.gluon.plan(block, data, recompute=["*"], variants="none", time_limit=0.1)
    with native.capture() as records:
        with autograd.record():
            outputs = block(data)
        autograd.backward(outputs)
    assert sum(record["pool_bytes"] for record in records) == plan.pool_bytes
    assert plan.predicted_pool_bytes is None
    assert plan.decisions["shared"] == "keep"


def test_exported_blocks_carry_the_plan(tmp_path):
    net, plan, _, _ = train(True, {})
    net.export(str(tmp_path / "net"))
    again = gluon.SymbolBlock.imports(str(tmp_path / "net-symbol.json"), ["data"],
                                      str(tmp_path / "net-0000.params"))
    data = mx.nd.ones(SHAPE)
    assert np.array_equal(again(data).asnumpy(), net(data).asnumpy())
    text = (tmp_path / "net-symbol.json").read_text()
    assert text.count("__memonger_recompute__") >= sum(d == "recompute"
                                                    for d in plan.decisions.values())


def test_hybridize_or_strip_takes_the_plan_off():
    net, _, _, _ = train(True, {})
    memonger.gluon.strip(net)
    assert "memonger" not in net._cached_graph[1].tojson()


def test_blocks_that_cannot_be_planned():
    net = Net(prefix="other_")
    with pytest.raises(InputError, match="hybridize"):
        memonger.gluon.plan(net, SHAPE)
    net.hybridize()
    with pytest.raises(InputError, match="inputs"):
        memonger.gluon.plan(net)
    with pytest.raises(InputError, match="HybridBlock"):
        memonger.gluon.plan(nn.Sequential(), SHAPE)


def test_blocks_are_named_after_their_class():
    assert train(True, {})[1].graph.name == "Net"
