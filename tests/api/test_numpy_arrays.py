"""Networks of ``npx.set_np()``: symbols and blocks keep their kind of arrays."""
from __future__ import annotations

import mxnet as mx
import numpy as np
import pytest
from mxnet import autograd, gluon, npx
from mxnet.gluon import nn
from needed import needs_plugin

import memonger
from memonger.mx.calls.plan import apply_plan

pytestmark = needs_plugin
SHAPE = (8, 3, 12, 12)


@pytest.fixture(autouse=True)
def numpy_arrays():
    npx.set_np()
    yield
    npx.reset_np()


class Net(gluon.HybridBlock):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            self.body = nn.HybridSequential()
            for _ in range(3):
                self.body.add(nn.Conv2D(8, 3, padding=1), nn.BatchNorm(), nn.Activation("relu"))
            self.out = nn.Dense(4)

    def hybrid_forward(self, F, x):
        x = self.body(x)
        return self.out(F.np.add(x, F.npx.relu(x * 0.5)))


def data(seed=2):
    return mx.np.array(np.random.RandomState(seed).randn(*SHAPE), dtype="float32")


def block():
    mx.random.seed(1)
    np.random.seed(1)
    net = Net(prefix="net_")
    net.initialize(mx.init.Xavier())
    net.hybridize()
    return net


def trained(net):
    """Parameters after two steps, and what the network then says."""
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1})
    loss = gluon.loss.SoftmaxCrossEntropyLoss()
    for _ in range(2):
        with autograd.record():
            output = net(data())
            value = loss(output, mx.np.zeros((8,)))
        assert isinstance(output, mx.np.ndarray)
        value.backward()
        trainer.step(8)
    output = net(data())
    assert isinstance(output, mx.np.ndarray)
    return [p.data().asnumpy() for p in net.collect_params().values()] + [output.asnumpy()]


def network():
    net = block()
    net(data())
    return net._cached_graph[1]


def is_numpy(symbol):
    return isinstance(symbol, mx.sym.np._Symbol)


@pytest.mark.parametrize("given, stripped", [(SHAPE, False), (None, True)],
                         ids=["shape", "array"])
def test_blocks_train_as_without_a_plan(given, stripped):
    plain = trained(block())
    net = block()
    plan = memonger.gluon.plan(net, given or data(), recompute=["*"])
    assert is_numpy(plan.symbol) and plan.schedule.recomputed()
    if stripped:
        memonger.gluon.strip(net)
    assert all(a.tobytes() == b.tobytes() for a, b in zip(plain, trained(net)))


def test_exported_blocks(tmp_path):
    net = block()
    memonger.gluon.plan(net, SHAPE, recompute=["*"])
    expected = net(data())
    net.export(str(tmp_path / "net"))
    again = gluon.SymbolBlock.imports(str(tmp_path / "net-symbol.json"), ["data"],
                                      str(tmp_path / "net-0000.params"))
    assert (again(data()) == expected).all()


def test_every_symbol_keeps_its_kind(tmp_path):
    symbol = network()
    for given, expected in ((symbol, True), (symbol.as_nd_ndarray(), False)):
        plan = memonger.plan(given, data=SHAPE, recompute=["*"])
        plan.save(str(tmp_path / "plan.json"))
        loaded = memonger.load_plan(str(tmp_path / "plan.json"))
        made = (plan.symbol, loaded.symbol, memonger.strip(plan), memonger.strip(loaded.symbol),
                apply_plan(loaded, given), memonger.search_plan(given, data=SHAPE),
                memonger.make_mirror_plan(given, 1, data=SHAPE))
        assert [is_numpy(one) for one in made] == [expected] * len(made)
        assert memonger.verify(plan).identical


def test_modules_take_both_kinds_alike():
    plan = memonger.plan(network(), data=SHAPE, recompute=["*"])
    outputs = []
    for symbol in (plan.symbol, memonger.strip(plan)):
        module = mx.mod.Module(symbol, label_names=None)
        module.bind([("data", SHAPE)])
        module.init_params(mx.init.One())
        module.forward(mx.io.DataBatch([mx.nd.ones(SHAPE)]), is_train=True)
        module.backward([mx.nd.ones((8, 4))])
        outputs.append(module.get_outputs()[0].asnumpy())
    assert outputs[0].tobytes() == outputs[1].tobytes()
