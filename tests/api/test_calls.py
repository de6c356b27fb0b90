"""The calls of memonger on real symbols."""
from __future__ import annotations

import itertools
import re
from types import SimpleNamespace

import mxnet as mx
import numpy as np
import pytest

import memonger
from memonger.mx.calls import opening
from memonger.mx.capture.record import read
from memonger.mx.memory.native_workspaces import objects_bytes_per_op
from memonger.mx.plugin import loading as native
from memonger.plans.plan_file import dumps, loads
from memonger.solve import effort
from memonger.solve.baselines import sublinear
from memonger.util.errors import BindError, InfeasibleBudget, InputError, PluginError
from memonger.util.units import format_bytes
from memonger.zoo import nets

SHAPES = {"data": (4, 3, 16, 16)}


def convolutions(depth=6, dropout=False):
    with mx.name.NameManager():
        x = mx.sym.var("data")
        for _ in range(depth):
            x = mx.sym.Convolution(x, kernel=(3, 3), pad=(1, 1), num_filter=8, no_bias=True)
            x = mx.sym.relu(mx.sym.BatchNorm(x, fix_gamma=False))
        if dropout:
            x = mx.sym.Dropout(x, p=0.5, name="drop")
        x = mx.sym.FullyConnected(mx.sym.Flatten(x), num_hidden=4, name="fc")
        return mx.sym.SoftmaxOutput(x, name="softmax")


def test_sublinear_plan_is_smaller_exact_and_trains_the_same():
    net = convolutions(dropout=True)
    plan = memonger.plan(net, method="sublinear", **SHAPES)
    assert plan.pool_bytes < plan.baseline_pool_bytes
    assert plan.pool_bytes == read(plan.symbol, SHAPES).pool_bytes
    assert plan.decisions["drop"] == "keep"
    assert memonger.verify(plan.symbol, net, steps=3, **SHAPES).identical
    assert memonger.strip(plan.symbol).tojson() == net.tojson()
    assert plan.symbol.list_arguments() == net.list_arguments()


def test_a_symbol_is_planned_at_its_knee():
    net = convolutions()
    plan = memonger.plan(net, budget="knee", **SHAPES)
    share = re.search(r"is at (\d+)% of the unplanned total", plan.notes[-1]).group(1)
    assert plan.budget_bytes == int(int(share) * plan.baseline_total_bytes / 100)
    assert plan.total_bytes <= plan.budget_bytes < plan.baseline_total_bytes
    assert memonger.plan(net, budget="%s%%" % share, **SHAPES).overhead == plan.overhead
    assert memonger.search_plan(net, budget="knee", **SHAPES).tojson() == plan.symbol.tojson()


@pytest.mark.parametrize("mkldnn", ["0", "1"])
def test_objects_of_many_ops_are_counted_and_fit_the_budget(mkldnn, monkeypatch):
    """An LSTM of 200 steps ran most of its small ops again, and its process shrank less."""
    monkeypatch.setenv("MXNET_MKLDNN_ENABLED", mkldnn)
    unplanned, planned = (objects_bytes_per_op(mkldnn == "1", arena) for arena in (False, True))
    net = convolutions()
    without = memonger.plan(net, method="chen", costs="cpu", **SHAPES)
    fewer = memonger.estimate(net, **SHAPES)
    assert "objects" not in fewer.by_category and "MXNet's objects" in str(fewer)
    monkeypatch.setattr(opening, "OBJECTS_LEAST_OPS", 10)
    before = memonger.estimate(net, **SHAPES)
    ops = len(before.graph.ops)
    assert before.by_category["objects"] == unplanned * ops
    assert "not counted" in str(before) and "MXNet's objects (" not in str(before)
    plan = memonger.plan(net, method="chen", costs="cpu", **SHAPES)
    again = len(plan.schedule.recomputed())
    assert plan.schedule == without.schedule and again > 0
    assert plan.baseline_fixed_bytes["objects"] == unplanned * ops
    assert plan.fixed_bytes["objects"] == planned * (ops + again)
    assert plan.total_bytes == without.total_bytes + plan.fixed_bytes["objects"]
    assert loads(dumps(plan)).total_bytes == plan.total_bytes
    assert "objects" not in memonger.plan(net, method="chen", costs="v100", **SHAPES).fixed_bytes
    assert memonger.plan(net, budget="100%", costs="cpu", **SHAPES).total_bytes == \
        before.total_bytes
    cheap = memonger.plan(net, budget=before.total_bytes - unplanned, costs="cpu", **SHAPES)
    assert cheap.total_bytes <= before.total_bytes - unplanned


def test_search_plan_tries_every_threshold_and_no_choice_twice(monkeypatch):
    """A thousand time steps took longer than the limit: only threshold 0 was tried."""
    net, measured = convolutions(), []
    expected = memonger.search_plan(net, **SHAPES).tojson()
    hours, real = itertools.count(0, 3600), sublinear.pool_bytes

    def measure(graph, schedule, storage):
        measured.append(schedule)
        return real(graph, schedule, storage)

    monkeypatch.setattr(effort, "time", SimpleNamespace(perf_counter=lambda: next(hours)))
    monkeypatch.setattr(sublinear, "pool_bytes", measure)
    assert memonger.search_plan(net, **SHAPES).tojson() == expected
    assert len(measured) == len({schedule.recomputed() for schedule in measured}) > 2


def test_a_planned_symbol_is_planned_anew():
    net = convolutions(dropout=True)
    first = memonger.plan(net, method="sublinear", **SHAPES)
    again = memonger.plan(first.symbol, method="sublinear", **SHAPES)
    assert again.record == first.record
    assert again.symbol_json == first.symbol_json
    assert again.baseline_total_bytes == first.baseline_total_bytes
    assert memonger.search_plan(first.symbol, **SHAPES).tojson() == first.symbol.tojson()
    assert memonger.make_mirror_plan(first.symbol, 0, **SHAPES).tojson() \
        == memonger.make_mirror_plan(net, 0, **SHAPES).tojson()
    assert memonger.estimate(first.symbol, **SHAPES).pool_bytes == first.pool_bytes


@pytest.mark.parametrize("call, options", [
    (memonger.plan, {}), (memonger.plan, {"method": "sublinear"}), (memonger.sweep, {}),
    (memonger.max_batch, {"budget": "1GB"}), (memonger.search_plan, {"budget": "50%"})])
def test_plans_that_stock_mxnet_cannot_run_are_refused_there(call, options):
    """They promise memory that MXNet's own mirroring does not save."""
    with native.switched(False, False):
        with pytest.raises(PluginError, match="switched off; memonger.native.enable"):
            call(convolutions(), **options, **SHAPES)
        assert memonger.estimate(convolutions(), **SHAPES).total_bytes > 0
        marked = memonger.make_mirror_plan(convolutions(), 10**6, **SHAPES)
    assert "force_mirroring" in marked.tojson() and "memonger_recompute" not in marked.tojson()


def test_shapes_come_as_arguments_as_a_dictionary_or_from_an_iterator():
    net = convolutions()
    data = mx.io.NDArrayIter(np.zeros(SHAPES["data"], "float32"), np.zeros(4, "float32"), 4)
    named, as_dict, iterated = (
        memonger.plan(net, method="sublinear", **SHAPES),
        memonger.plan(net, method="sublinear", shapes=SHAPES),
        memonger.plan(net, method="sublinear", data_iter=data))
    assert named.pool_bytes == as_dict.pool_bytes == iterated.pool_bytes
    with pytest.raises(InputError, match="not both"):
        memonger.plan(net, shapes=SHAPES, **SHAPES)


def test_shapes_on_the_variables_are_enough():
    x = mx.sym.var("data", shape=(4, 8))
    net = mx.sym.SoftmaxOutput(mx.sym.FullyConnected(x, num_hidden=3), name="softmax")
    assert memonger.search_plan(net).list_arguments() == net.list_arguments()


def test_an_input_may_be_called_budget():
    net = mx.sym.LinearRegressionOutput(mx.sym.FullyConnected(mx.sym.var("budget"), num_hidden=3),
                                        name="out")
    assert memonger.estimate(net, shapes={"budget": (2, 5)}).total_bytes > 0


def test_an_impossible_budget_says_what_is_possible():
    with pytest.raises(InfeasibleBudget) as error:
        memonger.plan(convolutions(), budget=1000, method="sublinear", **SHAPES)
    assert error.value.minimum_bytes > error.value.budget_bytes == 1000
    smallest = error.value.best_plan
    assert error.value.pinned and smallest.total_bytes == error.value.minimum_bytes
    assert smallest.symbol.list_arguments() == convolutions().list_arguments()
    assert memonger.estimate(smallest.symbol, **SHAPES).total_bytes == smallest.total_bytes
    assert "workspace takes %s" % format_bytes(smallest.fixed_bytes["workspace"]) \
        in str(error.value)
    fixed = dict(error.value.best_plan.fixed_bytes)
    fixed.pop("workspace")  # variants change it
    assert ", of which %s are the same in every plan (gradients %s, " % (
        format_bytes(sum(fixed.values())), format_bytes(fixed["gradients"])) in str(error.value)


def test_the_smallest_plan_stands_beside_the_network_as_it_is():
    x = mx.sym.var("data")
    for _ in range(3):
        x = mx.sym.Convolution(x, num_filter=8, kernel=(3, 3), pad=(1, 1))
        x = mx.sym.Activation(mx.sym.BatchNorm(x), act_type="relu")
        x = mx.sym.Pooling(x, kernel=(2, 2), stride=(2, 2), pool_type="max")
    net = mx.sym.SoftmaxOutput(mx.sym.FullyConnected(x, num_hidden=3), name="softmax")
    shapes = {"data": (4, 3, 16, 16)}
    with pytest.raises(InfeasibleBudget) as error:
        memonger.plan(net, budget=1000, method="sublinear", costs="cpu", **shapes)
    smallest, unplanned = error.value.best_plan, memonger.estimate(net, **shapes)
    assert unplanned.by_category["never_written"] < 0
    assert smallest.baseline_total_bytes == unplanned.total_bytes


def test_float16_and_float64_count_their_real_bytes():
    net = convolutions()
    single = memonger.estimate(net, **SHAPES)
    for dtype, factor in (("float16", 0.5), ("float64", 2)):
        other = memonger.estimate(net, type_dict={"data": dtype}, **SHAPES)
        assert other.by_category["parameters"] == pytest.approx(
            factor * single.by_category["parameters"], rel=0.02)
        assert other.pool_bytes == pytest.approx(factor * single.pool_bytes, rel=0.05)


def test_types_that_casts_decide_follow_from_the_data():
    """As in Module, which names the type of the data; float32 everywhere would contradict."""
    x = mx.sym.Cast(mx.sym.var("data"), dtype="float16")
    x = mx.sym.relu(mx.sym.FullyConnected(x, num_hidden=8, name="fc"))
    net = mx.sym.MakeLoss(mx.sym.Cast(x, dtype="float32"), name="loss")
    plan = memonger.plan(net, time_limit=0.3, data=(4, 6))
    types = {tensor.name: tensor.dtype for tensor in plan.graph.tensors}
    assert (types["data"], types["fc_weight"], types["fc_bias"]) == \
        ("float32", "float16", "float16")
    with pytest.raises(BindError, match="cannot run this network: float16 fully connected"):
        memonger.verify(plan)


def test_names_in_any_script():
    with mx.name.NameManager():
        x = mx.sym.Convolution(mx.sym.var("données"), num_filter=8, kernel=(3, 3),
                               name="слой \"1\"")
        for number in range(6):
            x = mx.sym.relu(mx.sym.BatchNorm(x, fix_gamma=False, name="层/%d" % number),
                            name="réluß <%d>" % number)
            if number % 2:
                x = mx.sym.exp(x * 0.01, name="e\\%d" % number)
        net = mx.sym.MakeLoss(x, name="perte")
    shapes = {"données": (2, 3, 12, 12)}
    for options in ({}, {"variants": "none"}, {"method": "sublinear"}):
        plan = memonger.plan(net, shapes=shapes, time_limit=0.3, **options)
        assert plan.pool_bytes < plan.baseline_pool_bytes
        assert read(plan.symbol, shapes).pool_bytes == plan.pool_bytes
        assert memonger.strip(plan).tojson() == net.tojson()
        assert memonger.verify(plan)


def test_grad_req_add_and_null_are_planned_as_bound():
    net = convolutions()
    for grad_req in ("add", {"fc_weight": "write", "convolution0_weight": "add"}):
        plan = memonger.plan(net, method="sublinear", grad_req=grad_req, **SHAPES)
        assert memonger.verify(plan.symbol, net, grad_req=grad_req, **SHAPES).identical
    assert memonger.estimate(net, grad_req="null", **SHAPES).by_category["gradients"] == 0


def test_plans_and_sweeps_count_the_optimizer_and_remember_it(tmp_path):
    """A report with --sweep left it out, and its points lay beside the plan."""
    state = {"optimizer": "sgd", "optimizer_params": {"momentum": 0.9, "lr_scheduler": object()}}
    found, = memonger.sweep(convolutions(), ["100%"], method="sublinear", costs="v100", **state,
                            **SHAPES)
    plain, = memonger.sweep(convolutions(), ["100%"], method="sublinear", **SHAPES)
    assert found.fixed_bytes["optimizer"] == found.fixed_bytes["parameters"]
    assert "optimizer" not in plain.fixed_bytes
    found.save(str(tmp_path / "plan.json"))  # what is no number or word cannot be saved
    options = memonger.load_plan(str(tmp_path / "plan.json")).options
    assert (options["optimizer"], options["optimizer_params"], options["costs"]) == (
        "sgd", {"momentum": 0.9}, "v100")
    assert not {"optimizer", "optimizer_params", "costs"} & set(plain.options)


def test_the_plans_of_a_sweep_share_their_graph_and_are_those_of_single_calls():
    """Variants were looked for again for each budget, which took half of a sweep."""
    net = nets.build("resnet18", 64)
    loose, tight = memonger.sweep(net.symbol, ["80%", "60%"], time_limit=2.0, shapes=net.shapes)
    assert loose.graph is tight.graph and tight.graph.variants
    alone = memonger.plan(net.symbol, "60%", time_limit=1.0, shapes=net.shapes)
    assert alone.schedule == tight.schedule
    assert alone.minimum_total_bytes == tight.minimum_total_bytes


def test_get_cost_counts_megabytes_of_the_pool():
    net = nets.build("dmlc_resnet50", 32)
    with native.switched(False, False):
        assert memonger.get_cost(net.symbol, **net.shapes) == 4899


@pytest.mark.parametrize("hints", [True, False])
def test_stock_mirroring_reaches_the_pool_of_the_original_memonger(hints):
    net = nets.build("dmlc_resnet50", 32, hints=hints)
    with native.switched(False, False):
        planned = memonger.search_plan(net.symbol, **net.shapes)
        printed = read(planned, net.shapes).printed_bytes >> 20
    assert printed <= 1658


def test_make_mirror_plan_keeps_the_first_hint_behind_the_threshold():
    net = nets.build("dmlc_resnet50", 4, hints=True, image=64)
    info = {}
    every = memonger.make_mirror_plan(net.symbol, 0, info, **net.shapes)
    hinted = [n for n in every.get_internals()
              if n.attr("mirror_stage") and n.attr("force_mirroring") != "True"]
    assert hinted and info["save_size"] > 0 and info["max_size"] > 0
    none = memonger.make_mirror_plan(net.symbol, 10**6, info, **net.shapes)
    assert info["save_size"] == 0
    assert memonger.strip(none).tojson() == memonger.strip(every).tojson() == net.symbol.tojson()


def test_named_stages_are_kept_or_run_again_together():
    net = nets.build("dmlc_lstm", 2, steps=4, layers=2, units=8, embedding=8, labels=5,
                     hints=True)
    plan = memonger.plan(net.symbol, method="sublinear", shapes=net.shapes)
    stages = {}
    for op in plan.graph.ops:
        if op.mirror_stage and not op.is_backward:
            stages.setdefault(op.mirror_stage, set()).add(plan.decisions[op.name])
    assert stages and all(len(kinds) == 1 for kinds in stages.values())


def test_measure_reports_bytes_and_time_of_both():
    net = convolutions()
    planned = memonger.plan(net, method="sublinear", **SHAPES).symbol
    shapes = {name: tuple(map(np.int64, shape)) for name, shape in SHAPES.items()}
    measured = memonger.measure(planned, steps=2, type_dict={"data": np.float32}, **shapes)
    assert measured.allocated_bytes > 0 and measured.step_s > 0 and len(measured.steps_s) == 2
    assert measured.original is not None and measured.overhead is not None


def test_largest_batch_fits_and_the_next_does_not():
    net = convolutions()
    found = memonger.max_batch(net, "4MB", method="sublinear", data=(1, 3, 16, 16))
    assert found.planned >= found.unplanned >= 1
    with native.switched(False, False):
        whole = memonger.estimate(net, data=(found.unplanned + 1, 3, 16, 16)).total_bytes
    assert whole > 4 * 10**6
    assert found.plan.total_bytes <= 4 * 10**6


@pytest.mark.slow
def test_a_batch_whose_smallest_plan_fits_is_not_too_large():
    """The largest batch of ResNet-50 in 8 GB was 399, and 494 fit: short searches missed them."""
    net = nets.build("resnet18", 32)
    least = memonger.plan(net.symbol, time_limit=4, shapes=net.shapes)
    found = memonger.max_batch(net.symbol, int(1.03 * least.total_bytes), time_limit=5,
                               shapes=net.shapes)
    assert found.planned >= 32 and found.plan.total_bytes <= found.budget_bytes


@pytest.mark.parametrize("method", ["sublinear", "auto"])
def test_plans_made_with_the_plugin_train_the_same_on_stock_mxnet(method):
    with mx.name.NameManager():
        x = mx.sym.LayerNorm(mx.sym.relu(convolutions(dropout=True).get_internals()["fc_output"]))
        net = mx.sym.SoftmaxOutput(mx.sym.FullyConnected(x, num_hidden=3), name="last")
    plan = memonger.plan(net, method=method, variants="none", recompute=["*layernorm*"],
                         **SHAPES)
    with native.switched(False, False):
        assert memonger.verify(plan.symbol, net, **SHAPES).identical


def test_unplanned_is_one_number():
    """What MXNet takes alone; a plan that is not needed fits by it."""
    net, shapes = nets.build("resnet50", 2, image=64).symbol, {"data": (2, 3, 64, 64)}
    estimate = memonger.estimate(net, shapes=shapes)
    plan = memonger.plan(net, "100%", shapes=shapes)
    assert estimate.total_bytes == plan.baseline_total_bytes == plan.budget_bytes
    assert estimate.timeline().pool_bytes == estimate.pool_bytes == plan.baseline_pool_bytes
    assert plan.status.value == "not_needed"
    with native.switched(False, False):
        assert read(net, shapes).pool_bytes == plan.baseline_pool_bytes
    tighter = memonger.plan(net, plan.baseline_total_bytes - 1, shapes=shapes)
    assert tighter.status.value != "not_needed"
    assert memonger.estimate(tighter.symbol, shapes=shapes).pool_bytes == tighter.pool_bytes


def test_plans_are_called_what_the_user_says(tmp_path):
    plan = memonger.plan(convolutions(), "95%", name="tower", time_limit=0.5, **SHAPES)
    plan.save(str(tmp_path / "plan.json"))
    again = memonger.load_plan(str(tmp_path / "plan.json"))
    assert str(plan).startswith("tower   ") and str(again).startswith("tower   ")
    assert repr(plan).startswith("<Plan tower: ")
    assert "tower" in again._repr_html_()
