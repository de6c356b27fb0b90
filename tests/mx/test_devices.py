"""Totals and budgets for each device of a network on several."""
from __future__ import annotations

import mxnet as mx
import numpy as np
import pytest

import memonger
from memonger import native
from memonger.errors import InfeasibleBudget, InputError
from memonger.graph.schedule import expand_in_part
from memonger.memory.storage import plan_storage
from memonger.mx.capture.devices import devices_of, on_device
from memonger.mx.capture.record import read
from memonger.plans.plan import Status
from memonger.report.html import command_line
from mx.random_symbols import random_recompute
from mx.test_capture import PLACES, over_two_devices

SHAPES = {"data": (512, 32), "softmax_label": (512,)}


def network(depth: int = 4) -> mx.sym.Symbol:
    """A perceptron with one half on each device."""
    x = mx.sym.var("data")
    for place in sorted(PLACES):
        with mx.AttrScope(ctx_group=place):
            for number in range(depth):
                x = mx.sym.FullyConnected(x, num_hidden=64, name="%s_fc%d" % (place, number))
                x = mx.sym.tanh(x, name="%s_act%d" % (place, number))
    with mx.AttrScope(ctx_group="two"):
        return mx.sym.SoftmaxOutput(x, name="softmax")


def planned(**options) -> memonger.Plan:
    options = {"group2ctx": PLACES, "variants": "none", "time_limit": 1, "costs": "reference",
               "shapes": SHAPES, **options}
    return memonger.plan(network(), **options)


def trained(symbol: mx.sym.Symbol):
    executor = symbol.simple_bind(mx.cpu(), group2ctx=PLACES, **SHAPES)
    rng = np.random.RandomState(3)
    for name in sorted(executor.arg_dict):
        array = executor.arg_dict[name]
        array[:] = rng.uniform(-.3, .3, array.shape) if name != "softmax_label" \
            else rng.randint(0, 64, array.shape)
    executor.forward(is_train=True)
    executor.backward()
    return [executor.outputs[0].asnumpy(),
            *(executor.grad_dict[name].asnumpy() for name in sorted(executor.grad_dict))]


@pytest.mark.parametrize("storage", ["stock", "best"])
@pytest.mark.parametrize("seed", range(8))
def test_pools_of_the_devices_add_up_whatever_is_recomputed(seed: int, storage: str) -> None:
    symbol, shapes = over_two_devices(seed)
    with native.switched(True, storage == "best"):
        whole = read(symbol, shapes, group2ctx=PLACES)
    assert devices_of(whole) == ("cpu(0)", "cpu(1)")
    parts = [on_device(whole, name, storage) for name in devices_of(whole)]
    assert sum(part.pool_bytes for part in parts) == whole.pool_bytes
    assert {name: sum(part.fixed_bytes[name] for part in parts) for name in whole.fixed_bytes} \
        == whole.fixed_bytes
    recompute = random_recompute(whole.graph, seed)
    schedule = expand_in_part(whole.graph, recompute)
    pools = [plan_storage(part.graph, schedule, storage).pool_bytes for part in parts]
    assert sum(pools) == plan_storage(whole.graph, schedule, storage).pool_bytes
    # What the other device recomputes changes nothing here.
    assert pools == [plan_storage(part.graph, expand_in_part(part.graph, recompute),
                                  storage).pool_bytes for part in parts]


def test_estimate_names_the_total_of_each_device() -> None:
    estimate = memonger.estimate(network(), group2ctx=PLACES, **SHAPES)
    weights = 4 * (64 * 64 + 64)
    assert estimate.by_category["parameters"] == 8 * weights - 4 * 32 * 64
    assert sum(estimate.by_device.values()) >= estimate.total_bytes
    assert str(estimate).count("on cpu(") == 2
    assert memonger.estimate(network(), **SHAPES).by_device == {}


def test_each_device_keeps_its_budget_and_the_network_its_gradients() -> None:
    plan = planned(budget={"cpu(0)": "75%", "cpu(1)": "85%"})
    for name, share in (("cpu(0)", .75), ("cpu(1)", .85)):
        totals = plan.by_device[name]
        assert totals["budget_bytes"] == int(share * totals["unplanned_total_bytes"])
        assert totals["total_bytes"] <= totals["budget_bytes"]
        assert "on %s: " % name in str(plan)
    again = [name for name, done in plan.decisions.items() if done == "recompute"]
    assert {name[:3] for name in again} == {"one", "two"}
    assert read(plan.symbol, SHAPES, group2ctx=PLACES).pool_bytes == plan.pool_bytes
    estimate = memonger.estimate(plan.symbol, group2ctx=PLACES, **SHAPES)
    assert estimate.by_device == {name: totals["total_bytes"]
                                  for name, totals in plan.by_device.items()}
    assert all(np.array_equal(a, b) for a, b in zip(trained(network()), trained(plan.symbol)))


def test_a_device_without_a_budget_keeps_everything(tmp_path) -> None:
    plan = planned(budget={"cpu(1)": "80%"})
    again = [name for name, done in plan.decisions.items() if done == "recompute"]
    assert again and all(name.startswith("two_") for name in again)
    assert "budget_bytes" not in plan.by_device["cpu(0)"] and plan.budget_bytes is None
    plan.save(str(tmp_path / "plan.json"))
    loaded = memonger.load_plan(str(tmp_path / "plan.json"))
    assert loaded.by_device == plan.by_device
    assert loaded.options["budget"] == {"cpu(1)": "80%"}
    assert command_line(loaded) == \
        "memonger.plan(symbol, budget={'cpu(1)': '80%'}, group2ctx=...)"


def test_shares_that_fit_need_no_plan() -> None:
    plan = planned(budget={"cpu(0)": "100%", "cpu(1)": "100%"})
    assert plan.status is Status.NOT_NEEDED and not plan.schedule.recomputed()


def test_variants_stay_on_their_device() -> None:
    x = mx.sym.var("data")
    for place in sorted(PLACES):
        with mx.AttrScope(ctx_group=place):
            for number in range(3):
                x = mx.sym.FullyConnected(x, num_hidden=64, name="%s_fc%d" % (place, number))
                x = mx.sym.BatchNorm(x, fix_gamma=False, name="%s_bn%d" % (place, number))
                x = mx.sym.Activation(x, act_type="relu", name="%s_act%d" % (place, number))
    net = mx.sym.MakeLoss(x, name="loss")
    plan = memonger.plan(net, budget={"cpu(1)": "60%"}, group2ctx=PLACES, time_limit=1,
                         costs="reference", data=(512, 64))
    chosen = [name for name, done in plan.decisions.items() if done != "keep"]
    assert chosen and all(name.startswith("two_") for name in chosen)
    assert plan.by_device["cpu(1)"]["total_bytes"] <= plan.by_device["cpu(1)"]["budget_bytes"]


def test_what_no_device_can_do_is_refused() -> None:
    with pytest.raises(InfeasibleBudget, match=r"on cpu\(1\) no plan .*fits") as refused:
        planned(budget={"cpu(1)": "20%"})
    least = refused.value.minimum_bytes
    assert planned(budget={"cpu(1)": least}).by_device["cpu(1)"]["total_bytes"] <= least
    for budget, words in (({"gpu(0)": "1GB"}, "names 'gpu.0.', and the network runs on"),
                          ({}, "names no device")):
        with pytest.raises(InputError, match=words):
            planned(budget=budget)
    with pytest.raises(InputError, match="group2ctx spreads"):
        planned(budget={"cpu(0)": "80%"}, group2ctx=None)
    with pytest.raises(InputError, match="not both"):
        planned(budget={"cpu(0)": "80%"}, overhead=0.1)
