"""Marked symbols through everything that makes executors out of them."""
from __future__ import annotations

import pickle

import mxnet as mx
import numpy as np
import pytest

import memonger
from memonger import native
from memonger.mx.check.verify import verify
from memonger.mx.symbol.planned_symbol import FORCE_MIRRORING, RECOMPUTE

from .graphs import (
    CONVOLUTIONS,
    PERCEPTRON,
    captured,
    clones,
    convolutions,
    filled,
    mark,
    order,
    perceptron,
    with_arena,
)

CHEAP = {prefix + str(i): "1" for i in range(3) for prefix in ("bn", "relu")}


@pytest.fixture(params=[False, True], ids=["whole buffers", "arena"])
def planned(request):
    """``planned(symbol, marks)``: marked by hand, and with an arena or without."""
    return lambda symbol, marks: with_arena(mark(symbol, marks)) if request.param \
        else mark(symbol, marks)


SOME_OUTPUTS = {
    "moments": lambda x: mx.sym.moments(x, axes=(2, 3), name="it")[1],
    "BilinearSampler": lambda x: mx.sym.BilinearSampler(
        x, mx.sym.tanh(mx.sym.slice_axis(x, axis=1, begin=0, end=2), name="grid"), name="it"),
    "GridGenerator": lambda x: mx.sym.GridGenerator(
        mx.sym.slice_axis(x, axis=1, begin=0, end=2), transform_type="warp", name="it"),
    "gather_nd": lambda x: mx.sym.gather_nd(x, mx.sym.var("indices"), name="it"),
    "scatter_nd": lambda x: mx.sym.scatter_nd(
        mx.sym.slice_axis(mx.sym.Flatten(x), axis=0, begin=0, end=1).reshape((-1,)),
        mx.sym.var("indices"), shape=(400,), name="it")}


@pytest.mark.parametrize("kind", list(SOME_OUTPUTS))
def test_ops_of_which_not_all_outputs_are_read(kind):
    x = mx.sym.square(mx.sym.square(mx.sym.var("data"), name="first"), name="before")
    x = mx.sym.square(SOME_OUTPUTS[kind](x), name="behind")
    net = mx.sym.MakeLoss(mx.sym.square(x, name="last"), name="loss")
    shapes, values = {"data": (2, 3, 6, 6)}, {}
    if kind.endswith("_nd"):
        values["indices"] = np.arange(108).reshape((1, -1)) % (400 if kind == "scatter_nd" else 2)
        shapes["indices"] = values["indices"].shape
    requests = {"data": "write", "indices": "null"} if values else "write"
    for chosen in (("it",), ("it", "before"), ("it", "before", "behind", "first")):
        for texts in (dict.fromkeys(chosen, "1"), {**dict.fromkeys(chosen, "1"),
                                                   "it": '{"behind": 1, "it": 0}'}):
            marked = mark(net, texts)
            for ours in (marked, with_arena(marked)):
                assert verify(ours, net, shapes, grad_req=requests, values=values).identical
    memonger.plan(net, shapes=shapes, grad_req=requests, method="sublinear")


RUN_AGAIN = {
    "Crop": lambda x: mx.sym.Crop(x, h_w=(4, 4), name="it"),
    "SliceChannel": lambda x: mx.sym.SliceChannel(x, num_outputs=2, name="it")[1],
    "SwapAxis": lambda x: mx.sym.SwapAxis(x, dim1=1, dim2=2, name="it"),
    "L2Normalization": lambda x: mx.sym.L2Normalization(x, name="it"),
    "LayerNorm": lambda x: mx.sym.LayerNorm(x, name="it"),
    "GroupNorm": lambda x: mx.sym.GroupNorm(x, num_groups=2, name="it"),
    "InstanceNorm": lambda x: mx.sym.InstanceNorm(x, name="it"),
    "BlockGrad": lambda x: mx.sym.BlockGrad(x, name="it") * x}


@pytest.mark.parametrize("kind", list(RUN_AGAIN))
def test_ops_run_again(kind):
    x = mx.sym.Convolution(mx.sym.var("data"), num_filter=4, kernel=(1, 1), name="conv")
    x = mx.sym.square(mx.sym.tanh(RUN_AGAIN[kind](x), name="tanh"))
    net = mx.sym.Group([mx.sym.MakeLoss(x, name="loss"), mx.sym.identity(x, name="open")])
    for texts in ({"it": "1"}, {"it": "1", "tanh": '{"tanh": 2}'},
                  dict.fromkeys(("conv", "it", "tanh"), "1")):
        assert verify(mark(net, texts), net, {"data": (2, 3, 6, 6)}).identical


@pytest.mark.parametrize("options", [
    {}, {"grad_req": "add"}, {"type_dict": {"data": "float64"}},
    {"grad_req": {"data": "write", "conv0_weight": "add", "bn1_gamma": "write"}}], ids=str)
def test_gradient_requests_and_types(options):
    marked = mark(convolutions(), dict(CHEAP, conv1="1", relu1='{"relu1": 2}'))
    assert verify(marked, convolutions(), CONVOLUTIONS, steps=3, **options).identical


def test_float16():  # on the CPU only ops like these know it
    x = mx.sym.Cast(mx.sym.var("data"), dtype="float16", name="cast")
    for index in range(3):
        x = mx.sym.elemwise_mul(mx.sym.tanh(x, name="tanh%d" % index), x, name="mul%d" % index)
    net = mx.sym.MakeLoss(x, name="loss")
    marked = mark(net, {"tanh0": "1", "mul0": "1", "tanh1": '{"mul1": 2}', "cast": "1"})
    assert captured(marked, {"data": (3, 4)})["pool_bytes"]
    assert verify(marked, net, {"data": (3, 4)}).identical


def test_several_devices():
    with mx.AttrScope(ctx_group="first"):
        x = mx.sym.tanh(mx.sym.FullyConnected(mx.sym.var("data"), num_hidden=4, name="fc1"),
                        name="a1")
    with mx.AttrScope(ctx_group="second"):
        x = mx.sym.sigmoid(mx.sym.FullyConnected(x, num_hidden=4, name="fc2"), name="a2")
        net = mx.sym.MakeLoss(mx.sym.square(x, name="square"), name="loss")
    places = {"first": mx.cpu(0), "second": mx.cpu(1)}
    marked = mark(net, dict.fromkeys(("fc1", "a1", "fc2", "a2"), "1"))
    record = captured(marked, {"data": (3, 5)}, group2ctx=places)
    found = {node["name"]: node["device"] for node in record["nodes"] if node["op"] != "null"}
    assert found["a2_recompute1"] == found["a2"] != found["a1"]
    results = []
    for symbol in (net, marked):
        executor = filled(symbol.simple_bind(mx.cpu(0), group2ctx=places, data=(3, 5)))
        executor.forward(is_train=True)
        executor.backward()
        results.append({n: g.asnumpy() for n, g in executor.grad_dict.items()})
    assert all(np.array_equal(results[0][n], results[1][n]) for n in results[0])


def test_marks_survive_files_and_pickling(tmp_path):
    marked = mark(convolutions(), {"relu1": "1", "bn1": "1"})
    expected = order(marked, CONVOLUTIONS)
    assert expected != order(convolutions(), CONVOLUTIONS)
    marked.save(str(tmp_path / "net.json"))
    for again in (mx.sym.load(str(tmp_path / "net.json")), mx.sym.load_json(marked.tojson()),
                  pickle.loads(pickle.dumps(marked)), marked.__copy__(),
                  marked.get_internals()["softmax_output"]):
        assert order(again, CONVOLUTIONS) == expected


def module(symbol, **options):
    options.setdefault("data_names", ["data"])
    found = mx.mod.Module(symbol, label_names=["softmax_label"], **options)
    found.bind([("data", (8, 3, 8, 8))], [("softmax_label", (8,))])
    return found


def fit(found, seed=0):
    """Parameters after three batches, from the same start."""
    random = np.random.RandomState(seed)
    mx.random.seed(seed)
    found.init_params(mx.init.Xavier())
    found.init_optimizer(optimizer_params={"learning_rate": 0.1})
    for _ in range(3):
        batch = mx.io.DataBatch([mx.nd.array(random.standard_normal((8, 3, 8, 8)))],
                                [mx.nd.array(random.randint(0, 3, (8,)))])
        found.forward_backward(batch)
        found.update()
        mx.nd.waitall()  # backward moves BatchNorm's averages without telling the engine
    arguments, aux = found.get_params()
    return {name: value.asnumpy() for name, value in {**arguments, **aux}.items()}


def test_module_trains_the_same_and_its_checkpoint_keeps_the_marks(tmp_path):
    marked = mark(convolutions(), CHEAP)
    plain, ours = fit(module(convolutions())), module(marked)
    trained = fit(ours)
    assert all(np.array_equal(plain[name], trained[name]) for name in plain)
    ours.save_checkpoint(str(tmp_path / "net"), 3)
    symbol, arguments, _ = mx.model.load_checkpoint(str(tmp_path / "net"), 3)
    assert clones(captured(symbol, CONVOLUTIONS)) == clones(captured(marked, CONVOLUTIONS)) != []
    assert np.array_equal(arguments["conv0_weight"].asnumpy(), plain["conv0_weight"])
    data = mx.nd.ones((8, 3, 8, 8))
    again = mx.mod.Module.load(str(tmp_path / "net"), 3)
    again.bind([("data", (8, 3, 8, 8))], for_training=False)
    again.forward(mx.io.DataBatch([data]), is_train=False)
    ours.forward(mx.io.DataBatch([data], [mx.nd.zeros((8,))]), is_train=False)
    assert np.array_equal(again.get_outputs()[0].asnumpy(), ours.get_outputs()[0].asnumpy())


def test_several_devices_of_one_module(planned):
    contexts = [mx.cpu(0), mx.cpu(1)]
    plain = fit(module(convolutions(), context=contexts))
    ours = fit(module(planned(convolutions(), CHEAP), context=contexts))
    assert all(np.array_equal(plain[name], ours[name]) for name in plain)


def unrolled(length, planned=None):
    state = mx.sym.zeros(shape=(0, 6))
    steps = mx.sym.split(mx.sym.var("data"), num_outputs=length, axis=1, squeeze_axis=True)
    weight, bias = mx.sym.var("h_weight"), mx.sym.var("h_bias")
    for t in range(length):
        joined = mx.sym.concat(steps[t] if length > 1 else steps, state, dim=1, name="in%d" % t)
        state = mx.sym.tanh(mx.sym.FullyConnected(joined, weight, bias, num_hidden=6,
                                                  name="fc%d" % t), name="tanh%d" % t)
    net = mx.sym.SoftmaxOutput(mx.sym.FullyConnected(state, num_hidden=3, name="out"),
                               name="softmax")
    return planned(net, {name % t: "1" for t in range(length) if t % 3
                         for name in ("in%d", "fc%d", "tanh%d")}) if planned else net


def train_buckets(symbol, lengths):
    """Outputs of each step, and the parameters after all of them; buckets are bound as needed."""
    found = mx.mod.BucketingModule(
        lambda length: (symbol(length), ("data",), ("softmax_label",)), default_bucket_key=9)

    def shapes(length):
        return [mx.io.DataDesc("data", (4, length, 5))], [mx.io.DataDesc("softmax_label", (4,))]

    found.bind(*shapes(9))
    mx.random.seed(1)
    random = np.random.RandomState(1)
    found.init_params(mx.init.Xavier())
    found.init_optimizer(optimizer_params={"learning_rate": 0.1})
    outputs = []
    for length in lengths:
        data, label = shapes(length)
        found.forward_backward(mx.io.DataBatch(
            [mx.nd.array(random.standard_normal((4, length, 5)))],
            [mx.nd.array(random.randint(0, 3, (4,)))], bucket_key=length,
            provide_data=data, provide_label=label))
        found.update()
        outputs.append(found.get_outputs()[0].asnumpy())
    return outputs, {name: value.asnumpy() for name, value in found.get_params()[0].items()}


def test_bucketing_module_shares_memory_between_buckets(planned):
    lengths = (9, 4, 7, 2, 12, 9, 4)
    plain = train_buckets(unrolled, lengths)
    ours = train_buckets(lambda length: unrolled(length, planned), lengths)
    assert len(plain[0]) == len(ours[0]) == 7 and plain[1].keys() == ours[1].keys()
    assert all(np.array_equal(a, b) for a, b in zip(plain[0], ours[0]))
    assert all(np.array_equal(plain[1][name], ours[1][name]) for name in plain[1])


def gradients_of_batches(symbol, batches):
    """Gradients of one step in each of the executors that are reshaped one from the other."""
    executor = filled(symbol.simple_bind(mx.cpu(), data=(4, 3, 8, 8)), 3, 0.2)
    random, found = np.random.RandomState(3), []
    for batch in batches:
        executor = executor.reshape(data=(batch, 3, 8, 8), partial_shaping=True,
                                    allow_up_sizing=True)
        executor.arg_dict["data"][:] = random.standard_normal((batch, 3, 8, 8))
        executor.arg_dict["softmax_label"][:] = random.randint(0, 3, (batch,))
        executor.forward(is_train=True)
        executor.backward()
        found += [g.asnumpy() for n, g in sorted(executor.grad_dict.items())
                  if g is not None and n != "softmax_label"]  # which is never written
    return found


def test_executors_of_another_shape(planned):
    results = [gradients_of_batches(symbol, (4, 2, 6, 4))
               for symbol in (convolutions(), planned(convolutions(), CHEAP))]
    assert len(results[0]) == len(results[1])
    assert all(np.array_equal(a, b) for a, b in zip(*results))


def test_force_mirroring_alone_and_the_way_back():
    forced = mark(perceptron(), {"act1": "True"}, FORCE_MIRRORING)
    exact = order(mark(perceptron(), {"act1": "1"}), PERCEPTRON)
    native.enable()
    assert order(forced, PERCEPTRON) == exact
    native.disable()
    stock = order(forced, PERCEPTRON)
    assert "act1_mirror" in stock and "act1_recompute1" not in stock
    native.enable()
    assert order(forced, PERCEPTRON) == exact
    assert verify(forced, perceptron(), PERCEPTRON).identical
    assert order(mark(perceptron(), {"act1": "TRUE"}, FORCE_MIRRORING), PERCEPTRON) == exact
    assert order(mark(perceptron(), {"act1": "False"}, FORCE_MIRRORING), PERCEPTRON) == \
        order(perceptron(), PERCEPTRON)


def test_the_environment_of_stock_mirroring(monkeypatch):
    """Without marks MXNET_BACKWARD_DO_MIRROR stays MXNet's own affair; with marks it is off."""
    monkeypatch.setenv("MXNET_BACKWARD_DO_MIRROR", "1")
    assert any(name.endswith("_mirror") for name in order(perceptron(), PERCEPTRON))
    marked = order(mark(perceptron(), {"act1": "1"}), PERCEPTRON)
    assert [n for n in marked if "_mirror" in n or "_recompute" in n] == ["act1_recompute1"]


def test_storage_planning_alone_and_the_way_back():
    symbol = mark(convolutions(), dict(CHEAP, conv0="1", conv1="1"))
    pools = {}
    for storage in (False, True, False):
        with native.switched(True, storage):
            assert native.storage_model() == ("best" if storage else "stock")
            record = captured(symbol, {"data": (16, 3, 32, 32)})
            assert record["replayed"]
            pools.setdefault(storage, record["pool_bytes"])
            assert pools[storage] == record["pool_bytes"]
    assert pools[True] <= pools[False]


def test_ids_below_zero_and_buffers_in_place_are_respected():
    record = captured(mark(convolutions(), CHEAP), CONVOLUTIONS)
    entries = record["entries"]
    ids = entries["storage_id"]
    of_variables = [node["op"] == "null" for node in record["nodes"]
                    for _ in range(node["num_outputs"])]
    for given, variable, found in zip(record["given_storage"], of_variables, ids):
        assert found == given if given < -1 or variable else found >= 0
    first = {}
    for entry, found in enumerate(ids):
        if found >= 0 and found not in first:
            first[found] = entry
            assert entries["inplace_index"][entry] < 0  # CachedOp checks this


def test_a_conflict_of_marks_is_settled_by_the_more_precise_one():
    both = mark(mark(perceptron(), {"act1": "True"}, FORCE_MIRRORING), {"act1": "0"}, RECOMPUTE)
    assert clones(captured(both, PERCEPTRON)) == []
