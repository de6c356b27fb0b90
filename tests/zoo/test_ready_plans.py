"""Ready plans: made, written, loaded without a search, and refused where the graph differs."""
from __future__ import annotations

import json

import pytest

pytest.importorskip("mxnet")
from needed import needs_plugin

import memonger
from benchmarks import ready_plans as maker
from memonger.util.errors import InfeasibleBudget, InputError, PlanMismatch, PlanSchemaError
from memonger.zoo import nets
from memonger.zoo import ready_plans as zoo

#: Within reach of a network so small.
SHARES = (0.95, 0.85)
pytestmark = needs_plugin


@pytest.fixture(scope="module")
def made():
    return maker.make("attention_small", SHARES, time_limit=0.3)


@pytest.fixture
def folder(tmp_path, monkeypatch, made):
    """A folder with ready plans of one small network."""
    monkeypatch.setattr(zoo, "FOLDER", str(tmp_path))
    maker.write("attention_small", made)
    return tmp_path


def test_loaded_plans_take_the_bytes_of_the_search(folder, made):
    assert zoo.names() == ("attention_small",)
    for item in made["plans"]:
        plan = memonger.zoo.load("attention_small", budget="%g%%" % (100 * item["share"]))
        assert plan.total_bytes <= plan.budget_bytes
        assert plan.overhead == pytest.approx(
            min(p["overhead"] for p in made["plans"] if p["total_bytes"] <= plan.budget_bytes),
            abs=1e-6)
        assert plan.total_bytes < plan.baseline_total_bytes
        assert str(plan).startswith("attention_small ")


def test_a_loaded_plan_trains_as_the_original(folder, made):
    plan = zoo.load("attention_small", made["plans"][-1]["share"])
    net = nets.build("attention_small")
    assert memonger.verify(plan.symbol, net.symbol, steps=2, shapes=net.shapes)
    assert plan.symbol.tojson() != net.symbol.tojson()


def test_the_file_is_the_same_each_time(folder, made):
    again = maker.make("attention_small", SHARES, time_limit=0.3)
    before = (folder / "attention_small.json").read_bytes()
    maker.write("attention_small", again)
    assert (folder / "attention_small.json").read_bytes() == before


def test_better_plans_of_the_file_are_kept(folder, made):
    worse = [dict(item, overhead=item["overhead"] + 0.1, recompute=[], variants=[])
             for item in made["plans"]]
    assert maker.keep_better({**made, "plans": worse}) == made
    better = [dict(item, overhead=item["overhead"] - 0.1) for item in made["plans"]]
    assert maker.keep_better({**made, "plans": better})["plans"] == better
    assert maker.keep_better({**made, "plans": worse, "fingerprint": "other"})["plans"] == worse
    # Made when memory was shared in another way: the bytes are worked out again.
    other = [dict(item, pool_bytes=item["pool_bytes"] + 64, total_bytes=item["total_bytes"] + 64)
             for item in made["plans"]]
    maker.write("attention_small", {**made, "plans": other})
    assert maker.keep_better({**made, "plans": worse}) == made
    unknown = [dict(item, variants=[["layer0_gelu", "nothing"]]) for item in made["plans"]]
    maker.write("attention_small", {**made, "plans": unknown})
    assert maker.keep_better({**made, "plans": worse})["plans"] == worse


def test_the_command_prints_the_plans_that_it_writes(folder, made, monkeypatch, capsys):
    worse = [dict(item, overhead=item["overhead"] + 0.1) for item in made["plans"]]
    monkeypatch.setattr(maker, "make", lambda network, time_limit: {**made, "plans": worse})
    assert maker.main(["attention_small"]) == 0
    assert capsys.readouterr().out.rstrip().endswith("attention_small.json: " + ", ".join(
        "%g %% %+.1f %%" % (100 * item["share"], 100 * item["overhead"])
        for item in made["plans"]))


def test_other_graphs_are_refused(folder):
    net = nets.build("attention_small")
    wider, larger = (nets.build("attention_small", **other)
                     for other in ({"units": 48}, {"batch": 8}))
    with pytest.raises(PlanMismatch, match="another graph"):
        zoo.load("attention_small", "95%", symbol=wider.symbol)
    with pytest.raises(PlanMismatch, match="at batch 4"):
        zoo.load("attention_small", "95%", symbol=larger.symbol, shapes=larger.shapes)
    assert zoo.load("attention_small", "95%", symbol=net.symbol).symbol is not None


def test_budgets_below_every_ready_plan_are_refused(folder, made):
    with pytest.raises(InfeasibleBudget) as caught:
        zoo.load("attention_small", "1%")
    assert caught.value.minimum_bytes == min(p["total_bytes"] for p in made["plans"])


def test_networks_without_plans_and_damaged_files_are_told_apart(folder):
    with pytest.raises(InputError, match="no ready plans for vgg16; there are for: attention_sm"):
        zoo.load("vgg16")
    with pytest.raises(InputError, match="no network 'vgg17'"):
        zoo.load("vgg17")
    path = folder / "attention_small.json"
    data = json.loads(path.read_text())
    for item in data["plans"]:
        item["pool_bytes"] += 1
    path.write_text(json.dumps(data))
    with pytest.raises(PlanMismatch, match="make it again"):
        zoo.load("attention_small", "95%")
    path.write_text(path.read_text()[:100])
    with pytest.raises(PlanSchemaError, match="damaged"):
        zoo.load("attention_small", "95%")


def test_networks_that_no_budget_fits_say_what_does():
    with pytest.raises(InfeasibleBudget, match="none takes noticeably less"):
        maker.make("attention_small", (0.05, 0.01), time_limit=1.0)


def test_variants_cannot_serve_all_of_the_worst_ops_at_once():
    """Each of ResNet-18's worst ops alone would fit 25 %; no linear program sees more."""
    net = nets.build("resnet18")
    with pytest.raises(InfeasibleBudget) as caught:
        memonger.plan(net.symbol, "25%", shapes=net.shapes, time_limit=1.0)
    error = caught.value
    assert error.budget_bytes < error.bound_bytes <= error.minimum_bytes
    assert error.bound_bytes > 0.9999 * error.minimum_bytes


@pytest.mark.parametrize("network", zoo.names())
def test_shipped_plans_are_for_the_networks_of_the_zoo(network):
    with open(zoo.FOLDER + "/%s.json" % network) as file:
        data = json.load(file)
    assert data["network"] == network and data["batch"] == nets.spec(network).batch
    totals = [item["total_bytes"] for item in data["plans"]]
    overheads = [item["overhead"] for item in data["plans"]]
    assert totals == sorted(totals, reverse=True)
    assert overheads == sorted(overheads)
