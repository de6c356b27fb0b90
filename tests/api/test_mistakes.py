"""Every mistake ends in a MemongerError that says what to give instead."""
from __future__ import annotations

import os

import mxnet as mx
import pytest
from mxnet.gluon import nn

import memonger
from memonger.mx.plugin.environment import mxnet
from memonger.solve import REGISTERED, register
from memonger.util.errors import (
    BindError,
    InputError,
    InvalidPlan,
    MemongerError,
    ShapeError,
    UnitError,
    UnknownOpError,
)
from memonger.zoo import nets

DATA = {"data": (2, 3, 8, 8)}


def network():
    with mx.name.NameManager():
        x = mx.sym.Convolution(mx.sym.var("data"), kernel=(3, 3), num_filter=4, name="conv")
        x = mx.sym.FullyConnected(mx.sym.relu(x, name="relu"), num_hidden=4, name="fc")
        return mx.sym.SoftmaxOutput(x, name="softmax")


def block(active=True):
    net = nn.HybridSequential()
    net.add(nn.Dense(3))
    net.initialize()
    net.hybridize(active)
    return net


def plan(*arguments, **options):
    return lambda: memonger.plan(network(), *arguments, **{**DATA, **options})


@pytest.mark.parametrize("call, error, words", [
    # what stands in the place of a symbol
    (lambda: memonger.plan("net.json", **DATA), InputError, "cannot read net.json: No such file"),
    (lambda: memonger.estimate("net.json", **DATA), InputError, "cannot read net.json: No such"),
    (lambda: memonger.plan(5, **DATA), InputError, "not an int; for example"),
    (lambda: memonger.plan(mx.mod.Module(network())), InputError, "not a Module; .*made from"),
    (lambda: memonger.plan(block(), data=(2, 4)), InputError, r"memonger.gluon.plan\(block"),
    (lambda: memonger.plan([network()], **DATA), InputError, r"not a list; .*mx.sym.Group\("),
    (lambda: memonger.plan(plan(method="sublinear")()), InputError, "plan.symbol"),
    (lambda: memonger.verify("plan.json"), InputError, "memonger.load_plan"),
    (lambda: memonger.verify(network(), "net.json", **DATA), InputError, "not a str"),
    (lambda: memonger.measure("plan.json"), InputError, "memonger.load_plan"),
    (lambda: memonger.strip(block()), InputError, "not a HybridSequential"),
    (lambda: memonger.get_cost("net.json"), InputError, r"not a str; .*mx.sym.load\("),
    (lambda: memonger.gluon.plan(network(), (2, 3)), InputError, "only HybridBlocks"),
    (lambda: memonger.gluon.plan(block(False), (2, 3)), InputError, r"block.hybridize\(\)"),
    (lambda: memonger.verify(network(), **DATA), InputError, "carries no plan"),
    (lambda: memonger.measure(network(), original="net.json", **DATA), InputError, "not a str"),
    (lambda: memonger.gluon.strip(network()), InputError, "memonger.strip removes one from"),
    (lambda: memonger.pln, AttributeError, "did you mean 'plan'"),
    # shapes, types, names
    (lambda: memonger.plan(network()), ShapeError, r"cannot be inferred: data; .*data=\(32,"),
    (plan(dta=(1, 3)), ShapeError, "'dta'"),
    (plan(data=mx.nd.ones((2, 3, 8, 8))), ShapeError, "not an NDArray; .*data=array.shape"),
    (plan(data="2,3,8,8"), ShapeError, "tuple of integers"),
    (plan(data=(2.5, 3, 8, 8)), ShapeError, "tuple of integers"),
    (lambda: memonger.plan(network(), shapes=(2, 3, 8, 8)), InputError, "shapes must be a dict"),
    (lambda: memonger.plan(network(), (2, 3, 8, 8)), UnitError, "and shapes as data="),
    (lambda: memonger.plan(network(), (2, 3, 8, 8), budget="60%"), InputError,
     r"second argument of plan\(\) is budget, .*keyword arguments, for example data=\(32,"),
    (lambda: memonger.sweep(network(), (2, 3, 8, 8), budgets=["60%"]), InputError,
     r"second argument of sweep\(\) is budgets,"),
    (lambda: memonger.plan(network(), data_iter=mx.io.NDArrayIter(
        {"x": mx.nd.zeros((4, 3))}, batch_size=2)), InputError, "no input named x, as data_iter"),
    (plan(type_dict="float16"), InputError, "type_dict must be a dictionary"),
    (plan(type_dict={"data": None}), InputError, "a type such as 'float16', not None"),
    (plan(grad_req=None), InputError, "'null' or a dictionary by name, not None"),
    (plan(group2ctx="gpu"), InputError, "group2ctx must be a dictionary"),
    (plan(group2ctx={"left": "gpu"}), InputError, r"group2ctx\['left'\] must be mx.cpu"),
    (lambda: memonger.gluon.plan(block(), (2, 3), dtype="flot16"), InputError, "'float16', not"),
    (lambda: memonger.gluon.plan(block(), (2, 3), "60%"), InputError, 'budget="60%"'),
    (plan(data=(2 ** 62, 3, 8, 8)), ShapeError, "larger than 2\\^31"),
    (lambda: memonger.max_batch(network(), "1MB", data=5), ShapeError, "tuple of integers"),
    (lambda: memonger.gluon.plan(block(), (-1, 3)), InputError, "mx.nd.NDArray, a shape"),
    (plan(data=(2, 3, 2, 2)), ShapeError, "kernel size|fit the network"),
    (plan(shapes=DATA), InputError, "not both"),
    (lambda: memonger.plan(network(), data_iter=[1]), InputError, "mx.io.DataIter, not a list"),
    (plan(type_dict={"nothing": "float16"}), InputError, "type_dict"),
    (plan(method="sublinear", keep=["fcc"]), UnknownOpError, "did you mean fc"),
    (plan(keep=["f*"], recompute=["fc"]), InputError, "op 'fc' is both"),
    (plan(keep=5), InputError, r'names of ops, such as \["fc\*"\], not 5'),
    (plan(keep=[network()]), InputError, "names of ops"),
    (plan(method="sublinear", keep="conv_weight"), UnknownOpError, "but an input or parameter"),
    (plan(data=(2 ** 30, 3, 8, 8)), BindError, "data would be of shape .*make the batch smaller"),
    (lambda: memonger.estimate(mx.sym.argmax_channel(mx.sym.var("x")), x=(2, 3)), BindError,
     "argmax_channel is non-differentiable"),
    # options
    (plan(timelimit=3), InputError, r"plan\(\) has no option 'timelimit'; .*'time_limit'"),
    (lambda: memonger.estimate(network(), optmizer="sgd", **DATA), InputError, "'optimizer'"),
    (plan(method="atuo"), InputError, "one of .*auto.*chen"),
    (plan(costs="v10"), InputError, "reference, p100, v100"),
    (plan(variants="exat"), InputError, "none, exact or all"),
    (plan(context=mx.cpu()), InputError, "did you mean 'ctx'"),
    (plan(device=mx.gpu()), InputError, "give gpu\\(0\\) as ctx"),
    (plan(optimizer=mx.optimizer.Adam()), InputError, "text such as 'adam', not an Adam"),
    (plan(optimizer_params={"momentum": 0.9}), InputError, "without an optimizer"),
    (plan(max_clones="2"), InputError, "max_clones must be a whole number"),
    (plan(progress=3), InputError, "progress must be a function, not 3"),
    (plan(name=5), InputError, "name must be a text"),
    (lambda: memonger.verify(network(), network(), steps=0, **DATA), InputError, "at least 1"),
    (lambda: memonger.verify(network(), network(), values={"x": 0}, **DATA), InputError,
     "values names 'x'"),
    (lambda: memonger.verify(network(), network(), values={"data": "x"}, **DATA), InputError,
     r"values\['data'\] must be an array of shape \(2, 3, 8, 8\), not 'x'"),
    (lambda: memonger.verify(network(), network(), values={"data": mx.nd.ones((2, 3))}, **DATA),
     InputError, r"not \(2, 3\)"),
    (lambda: memonger.measure(network(), steps="5", **DATA), InputError, "steps must be a whole"),
    (lambda: memonger.measure(network(), ctx="cpu", **DATA), InputError, r"must be mx.cpu\(\)"),
    (lambda: memonger.sweep(network(), budgets="60%", **DATA), InputError, "must be a list"),
    (lambda: memonger.max_batch(network(), "1MB", limit=0, **DATA), InputError, "limit must be"),
    (lambda: memonger.search_plan(network(), ntrial="6", **DATA), InputError, "ntrial must be"),
    (lambda: memonger.make_mirror_plan(network(), None, **DATA), InputError, "threshold must be"),
    (lambda: nets.build("resnet18", "2"), InputError, "the batch must be a whole number"),
    (lambda: memonger.zoo.load(None), InputError, "no network None in the zoo"),
    (plan(time_limit="3"), InputError, "time_limit must be a number, not '3'"),
    (plan(time_limit=float("inf")), InputError, "time_limit must be a number, not inf"),
    (plan(ctx="gpu"), InputError, r"mx.gpu\(0\), not 'gpu'"),
    (plan(type_dict={"data": "flot16"}), InputError, "a type such as 'float16'"),
    (lambda: memonger.verify(network(), network(), type_dict={"data": "flot16"}, **DATA),
     InputError, r"type_dict\['data'\] must be a type"),
    (lambda: memonger.gluon.plan(block(), (2, 3), timelimit=3), InputError, "'time_limit'"),
    (lambda: memonger.gluon.plan(block(), (2, 3), data=(2, 3)), InputError, "there are budget"),
    # budgets
    (plan([1]), UnitError, r"cannot be \[1\]"),
    (plan(mx.nd.ones((2,))), UnitError, "cannot be an NDArray; .*60%"),
    (lambda: memonger.sweep(network(), [[1]], **DATA), UnitError, r"cannot be \[1\]"),
    (plan(overhead=10), InputError, 'write "10%"'),
    (plan(overhead=[1]), InputError, "cannot read the overhead"),
    (plan(overhead=0, method="chen"), InputError, "'chen' gives a plan of .* 'auto' keeps to it"),
    (plan(60), UnitError, 'write "60%" for a share .* or "60GB"'),
    (plan("60"), UnitError, 'write "60%"'),
    (plan(1.5), UnitError, '"1.5GB"'),
    (plan(500), UnitError, 'write "500GB"'),
    (plan(True), UnitError, "cannot be True"),
    (plan("auto"), InputError, "what a GPU has free"),
    (plan("1GB", overhead=0.1), InputError, "not both"),
    (lambda: memonger.max_batch(network(), 60, **DATA), UnitError, "60GB"),
    (lambda: memonger.max_batch(network(), "50%", **DATA), InputError, "budget in bytes"),
    # a method of the user's, files
    (plan("60%", method="answers_nothing"), InvalidPlan, "a NoneType in place of a Plan"),
    (lambda: plan(time_limit=0.1)().save("/nonexistent/plan.json"), MemongerError,
     "No such file or directory"),
    (lambda: memonger.load_plan("/nonexistent/plan.json"), InputError, "No such file"),
    (lambda: memonger.load_plan(plan(method="sublinear")()), InputError, "give the name of a file"),
    (lambda: memonger.load_plan(5), InputError, "cannot read 5; give the name of a file"),
    (lambda: plan(method="sublinear")().save(None), MemongerError, "give the name of a file"),
    (lambda: plan(method="sublinear")().explain(None), UnknownOpError, "no forward op"),
    (lambda: plan(method="sublinear")().to_graphviz(nothing=1), InputError, "there are collapse"),
])
def test_mistakes(call, error, words, monkeypatch):
    monkeypatch.setitem(REGISTERED, "answers_nothing", None)
    register("answers_nothing", lambda *_: None)
    with pytest.raises(error, match=words) as raised:
        call()
    assert "\n" not in str(raised.value)


@pytest.mark.skipif(mx.runtime.Features().is_enabled("CUDA"), reason="this MXNet has CUDA")
def test_a_gpu_is_refused_where_mxnet_has_none():
    with pytest.raises(BindError, match="without CUDA"):
        plan(ctx=mx.gpu())()


def test_a_missing_shape_names_the_input():
    with pytest.raises(ShapeError) as missing:
        memonger.plan(network())
    assert missing.value.names == ("data",)


def test_the_largest_batch_says_why_there_is_none():
    found = memonger.max_batch(network(), "1KB", **DATA)
    assert found.planned == found.unplanned == 0
    assert str(found).startswith("no batch fits: with a batch of 1, no plan fits 1000 B")


def test_a_plan_in_a_prompt_is_one_line():
    made = plan(time_limit=0.1)()
    assert "\n" not in repr(made) and len(repr(made)) < 100 and made.status.value in repr(made)


def test_mxnet_does_not_report_its_binds(monkeypatch):
    monkeypatch.delenv("MXNET_SUBGRAPH_VERBOSE")
    mxnet()
    assert os.environ["MXNET_SUBGRAPH_VERBOSE"] == "0"


@pytest.mark.parametrize("mkldnn, told", [("0", "0"), ("1", None)])
def test_mxnet_does_not_report_that_mkldnn_is_off(monkeypatch, mkldnn, told):
    """Its words are about sparse arrays, where they stay."""
    monkeypatch.setenv("MXNET_MKLDNN_ENABLED", mkldnn)
    monkeypatch.setenv("MXNET_STORAGE_FALLBACK_LOG_VERBOSE", "to be restored")
    monkeypatch.delenv("MXNET_STORAGE_FALLBACK_LOG_VERBOSE")
    mxnet()
    assert os.environ.get("MXNET_STORAGE_FALLBACK_LOG_VERBOSE") == told


def test_planning_tells_the_log_what_it_does(caplog):
    with caplog.at_level("INFO", "memonger"):
        plan(time_limit=0.1)()
    assert "op times: " in caplog.text and "searching with method auto for" in caplog.text
