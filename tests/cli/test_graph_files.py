"""Graphs of other frameworks from files: planned by the peak of live bytes, in their own words."""
from __future__ import annotations

import json
import re

import pytest

import memonger
from memonger.cli import main
from memonger.graph.types import Graph, Op, Tensor
from memonger.plans import plan_file
from memonger.util.errors import InputError

KIB = 1 << 10
OTHERS = re.compile(r"mxnet|plugin|arena|stock|executor", re.IGNORECASE)


def joint_graph(dtype="bfloat16"):
    """Layers of a product and a ReLU with their gradients, as in PyTorch's joint graphs."""
    tensors, ops = [], []

    def run(name, kind, inputs, size_bytes, backward=False, of=-1, category="activation"):
        tensors.append(Tensor(name, size_bytes, len(ops), category, shape=(), dtype=dtype))
        ops.append(Op.of(name, kind, inputs, (len(tensors) - 1,), backward, of, time_s=1e-3))
        return len(tensors) - 1

    def given(name, size_bytes, category):
        tensors.append(Tensor(name, size_bytes, -1, category, "outside", dtype=dtype))
        return len(tensors) - 1

    value, weights, layers = given("x", 64 * KIB, "input"), [], []
    for layer in range(5):
        weights.append(given("w%d" % layer, 4 * KIB, "parameter"))
        product = run("mm_%d" % layer, "aten.mm.default", (value, weights[-1]), 64 * KIB)
        result = run("relu_%d" % layer, "aten.relu.default", (product,), 64 * KIB)
        layers.append((value, result, len(ops)))
        value = result
    outputs = [run("sum", "aten.sum.default", (value,), 16, category="output")]
    gradient = run("expand", "aten.expand.default", (), 64 * KIB, True, len(ops) - 1)
    for layer, (before, after, behind) in reversed(list(enumerate(layers))):
        gradient = run("threshold_%d" % layer, "aten.threshold_backward.default",
                       (gradient, after), 64 * KIB, True, behind - 1)
        outputs.append(run("mm_w%d" % layer, "aten.mm.default", (gradient, before), 4 * KIB, True,
                           behind - 2, "gradient"))
        gradient = run("mm_x%d" % layer, "aten.mm.default", (gradient, weights[layer]), 64 * KIB,
                       True, behind - 2)
    graph = Graph(tuple(tensors), tuple(ops), tuple(outputs), name="mlp")
    graph.check()
    return graph


@pytest.fixture(params=["bfloat16", "complex64", "float8_e4m3fn"])
def network(request, tmp_path):
    path = tmp_path / "mlp.json"
    path.write_text(json.dumps(joint_graph(request.param).to_dict()))
    return path


def test_a_joint_graph_is_planned_without_a_word_of_another_framework(network, tmp_path, capsys):
    saved, page = str(tmp_path / "plan.json"), str(tmp_path / "plan.html")
    assert main(["plan", str(network), "--budget", "0.7", "-o", saved]) == 0
    assert main(["explain", saved, "mm_0"]) == 0
    assert main(["plan", str(network), "--budget", "0.7", "--json"]) == 0
    assert main(["report", saved, "-o", page]) == 0
    shown = capsys.readouterr().out
    assert "recomputed" in shown and '"storage": "live"' in shown
    assert OTHERS.findall(shown) == []
    with open(page, encoding="utf-8") as file:
        assert OTHERS.findall(re.sub(r"<script.*?</script>|<style.*?</style>", "", file.read(),
                                     flags=re.DOTALL)) == []
    plan = plan_file.load_plan(saved)
    assert plan.storage == "live" and plan.total_bytes <= plan.budget_bytes
    live = plan.timeline().live_bytes
    assert plan.pool_bytes == max(live) < plan.baseline_pool_bytes


def test_a_graph_of_a_file_is_planned_at_its_knee(tmp_path, capsys):
    path = tmp_path / "mlp.json"
    path.write_text(json.dumps(joint_graph().to_dict()))
    assert main(["plan", str(path), "--budget", "knee"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    share = re.search(r"the knee of memory against time is at (\d+)% of the unplanned total", shown)
    plan = memonger.plan(str(path), budget="%s%%" % share.group(1))
    assert "budget %s" % plan.graph.format_size(plan.budget_bytes) in shown
    assert main(["max-batch", str(path), "--budget", "knee", "--shape", "data=1,2"]) == 1


def test_a_graph_of_a_file_cannot_be_verified(network, tmp_path, capsys):
    saved = str(tmp_path / "plan.json")
    assert main(["plan", str(network), "--budget", "0.7", "-o", saved]) == 0
    assert main(["verify", saved]) == 1
    assert "nothing to run" in capsys.readouterr().err


@pytest.mark.parametrize("in_bytes", [False, True])
def test_a_refused_budget_advises_no_other_batch(tmp_path, capsys, in_bytes):
    path = tmp_path / "chain.txt"
    path.write_text("4 4\n4 1 1\n4 1 1\n1 1 0\n1 1 0\n0 1\n1 2\n2 3\n0 3\n")
    if in_bytes:
        path.write_text(json.dumps(joint_graph().to_dict()))
    assert main(["plan", str(path), "--budget", "2"]) == 3
    advice = capsys.readouterr().err
    assert "Ask for at least that much" in advice and "try: --budget" in advice
    assert "batch" not in advice and ("KiB" in advice) is in_bytes
    assert re.search("[0-9] [KM]?i?B", advice) is None or in_bytes


def test_a_graph_in_bytes_takes_budgets_with_a_unit(network, tmp_path, capsys):
    assert main(["plan", str(network), "--budget", "400KiB", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["budget_bytes"] == 400 * KIB
    assert main(["estimate", str(network), "--budget", "4GB"]) == 0
    path = tmp_path / "chain.txt"
    path.write_text("2 1\n4 1 1\n1 1 0\n0 1\n")
    capsys.readouterr()
    assert main(["plan", str(path), "--budget", "4GB"]) == 1
    assert "a number in the graph's own units" in capsys.readouterr().err


def test_calls_take_graphs(network):
    graph = joint_graph()
    estimate = memonger.estimate(str(network))
    assert estimate.total_bytes == memonger.estimate(graph).total_bytes \
        == estimate.pool_bytes + 84 * KIB
    assert estimate.timeline().peak_live_bytes == estimate.peak_live_bytes
    assert "total" in str(estimate) and "KiB" in str(estimate)
    plans = memonger.sweep(graph, ["80%", "60%", "10%"], time_limit=0.5)
    assert [plan.total_bytes <= plan.budget_bytes for plan in plans] == [True, True]
    for call in (memonger.estimate, memonger.sweep):
        with pytest.raises(InputError, match="a graph has its own sizes and times, so it takes"):
            call(graph, optimizer="sgd")
    with pytest.raises(InputError, match="a graph such as mlp has the sizes of one batch"):
        memonger.max_batch(graph, "1GB")


def test_an_estimate_of_other_units_is_their_peak(tmp_path):
    path = tmp_path / "chain.txt"
    path.write_text("2 1\n4000 1 1\n1000 1 0\n0 1\n")
    assert str(memonger.estimate(path)).split() == ["peak", "5,000"]


def test_a_graph_is_written_as_memongers_own(tmp_path, capsys):
    path, written = tmp_path / "chain.txt", str(tmp_path / "graph.json")
    path.write_text("2 1\n4000 1 1\n1000 1 0\n0 1\n")
    assert main(["estimate", str(path), "--graph", written]) == 0
    first = capsys.readouterr().out
    assert main(["estimate", written]) == 0
    assert capsys.readouterr().out == first
