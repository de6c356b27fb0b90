"""The benchmarks' count agrees with the plans', on small networks."""
from __future__ import annotations

import argparse
import sys
import time
from functools import partial
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from benchmarks.torch import count, depth, gpu, measured, methods, nets, planning, plans, published  # noqa: E402
from benchmarks.torch_models import table, training  # noqa: E402
from memonger.errors import MemongerError  # noqa: E402
from memonger.torch.calls.tracing import traced  # noqa: E402
from memonger.torch.pytorch.sizes import tensor_bytes, tensors  # noqa: E402
from memonger.torch.rewrite.apply import split  # noqa: E402
from memonger.torch.step.request import Request  # noqa: E402


@pytest.mark.parametrize("name", ["densenet121", "gpt2", "unet3d"])
def test_peak_and_extra_time_of_a_plan_are_those_that_are_counted(name):
    module, inputs = nets.build(name, 2, tiny=True)
    request = Request("85%", mode="eager", time_limit=1.0, costs="reference")
    planned = traced(module, inputs, request)
    plan, captured = planned.plan, planned.captured
    peak, _ = count.both(*split(captured, plan.schedule), captured.num_forward_outputs)
    assert peak == plan.pool_bytes <= plan.baseline_pool_bytes


def test_selective_checkpoints_keep_what_takes_long():
    def found(change):
        module, inputs = nets.build("vit_b", 2, tiny=True)
        change(module)
        both, outputs = plans.halves_as_written(module, inputs)
        heavy = [{node.name for node in half.graph.nodes
                  if getattr(node.target, "overloadpacket", None) in methods.KEPT}
                 for half in both]
        assert any("attention" in name for name in heavy[0])
        saved = both[0].graph.output_node().args[0][outputs:]
        return len(heavy[0] & heavy[1]), sum(map(tensor_bytes, tensors(
            [node.meta["val"] for node in saved if node.op != "placeholder"])))
    unplanned, kept, second, blocks = map(found, (
        lambda module: module, methods.selective, partial(methods.selective, every=2),
        methods.by_blocks))
    assert 0 == kept[0] < second[0] < blocks[0]
    assert unplanned[1] > kept[1] > second[1] > blocks[1]


def test_the_page_has_a_row_for_each_network():
    rows = [{"net": "resnet50", "batch": 2, "ops": 9, "fixed_bytes": 0, "method": method,
             "peak_bytes": peak, "time_s": seconds, "planning_s": 1.0}
            for method, peak, seconds in (
                ("unplanned", 100, 1.0), ("memonger 50%", 50, 1.1),
                ("PyTorch's budget 0.5, dp", 70, 1.2), ("PyTorch's budget 0.4, dp", 80, 1.3),
                ("each block", 60, 1.4), ("selective", 65, 1.3))]
    rows[1]["bound"] = 0.08
    [line] = plans.page([rows]).splitlines()[2:]
    assert "50 +10.0 (8.0)" in line and "70 +20.0 |" in line
    assert "| 60 +40.0 | 65 +30.0 |" in line


def test_a_peak_that_is_not_the_predicted_one_is_said():
    row = {"net": "unet", "method": "memonger 50%", "peak_bytes": 50, "time_s": 1.0,
           "fixed_bytes": 0, "planning_s": 1.0, "predicted_bytes": 50}
    assert plans.as_predicted(row) and "PREDICTED" not in plans.words(row, row)
    row["predicted_bytes"] = 49
    assert not plans.as_predicted(row) and "PREDICTED 49" in plans.words(row, row)


def test_small_networks_are_measured_in_turn():
    left = iter([9, 9, 9])
    rows = measured.rows_of("vit_b", "eager", lambda: next(left),
                            lambda *asked: list(measured.ways(*asked))[:3])
    assert [row["method"] for row in rows] == ["module", "unplanned", "memonger 75%"]
    assert rows[0]["extra"] == rows[0]["off"] == rows[1]["off"] == rows[2]["off"] == 0
    assert rows[2]["peak_bytes"] < rows[0]["peak_bytes"]
    assert abs(measured.prediction_off(rows[2])) < 1e-3
    rows.append({**rows[2], "method": "PyTorch's budget 0.1", "off": 0.6})
    rows.append({"net": "vit_b", "mode": "eager", "method": "memonger 35%", "refused": "no plan"})
    faster = {**rows[2], "method": "each block", "extra": rows[2]["extra"] - 0.1}
    rows.append(faster)
    rows.append({**faster, "method": "selective", "peak_bytes": 2 * rows[0]["peak_bytes"]})
    assert [word.split(" (")[0] for word in measured.ahead(rows)] == ["each block"]
    [line] = measured.page([rows]).splitlines()[2:]
    assert "· 35: no plan |" in line and line.count("(wrong)") == 1 and "| each block (" in line


def test_each_method_is_beaten_in_its_own_bytes():
    base = {"method": "module", "peak_bytes": 90, "before_bytes": 10, "off": 0.0}
    rows = [base, {**base, "method": "PyTorch's budget 0.5, dp", "peak_bytes": 50},
            {**base, "method": "each block", "peak_bytes": 40, "off": 0.5},
            {**base, "method": "selective", "peak_bytes": 95}]
    found = list(measured.ways("eager", None, rows))
    assert [way.label for way in found if "bytes of" in way.label] == [
        "memonger, bytes of PyTorch's budget 0.5, dp"]
    assert found[-1].made.keywords["budget"] == 60


def test_extra_times_are_medians_beside_the_first_step():
    pauses = {"unplanned": 0.02, "planned": 0.06}
    found = measured.step_times({name: partial(time.sleep, s) for name, s in pauses.items()}, 3)
    assert found["unplanned"][1] == 0 and found["planned"][1] > 0.5
    assert all(found[name][0] >= seconds for name, seconds in pauses.items())


def test_aims_of_depth_are_said_to_be_met_or_not():
    rows = [{"net": "unet", "method": "module", "peak_bytes": 90, "before_bytes": 10, "extra": 0.0,
             "step_s": 1.0, "off": 0.0},
            {"net": "unet", "method": "each block", "peak_bytes": 50, "before_bytes": 10,
             "extra": 0.2, "step_s": 1.2, "off": 0.0},
            {"net": "unet", "method": depth.AT_BLOCKS, "peak_bytes": 50, "before_bytes": 10,
             "extra": 0.1, "step_s": 1.1, "off": 1e-7, "predicted_bytes": 50},
            {"net": "unet", "method": "memonger 50%", "refused": "no plan"}]
    blocks, share, peaks, gradients = depth.verdicts(rows)
    assert blocks.endswith("60.0 % +20.0 %: 60.0 % +10.0 %: met") and gradients.endswith(": met")
    assert share.endswith("no plan: NOT MET") and peaks.endswith("0.0 % off at most: met")
    rows[2].update(extra=0.3, predicted_bytes=48)
    assert [line.endswith("NOT MET") for line in depth.verdicts(rows)] == [True, True, True, False]


def test_depth_asks_for_shares_of_what_plain_code_takes(monkeypatch):
    asked = []
    monkeypatch.setattr(depth, "memonger", lambda net, budget, **_: asked.append(budget))
    rows = [{"peak_bytes": 90, "before_bytes": 10}, {"peak_bytes": 50, "before_bytes": 10}]
    made = list(depth.ways("gpt2", "inductor", None, rows))
    assert [way.label for way in made[2:]] == [
        "memonger 75%", "memonger 60%", "memonger 50%", "memonger 42%", "memonger 40%",
        depth.AT_BLOCKS, "memonger least"]
    for way in made[2:-1]:
        way.made(None)
    assert asked == [75, 60, 50, 42, 40, 60]
    assert not {net for _, net in published.PAIRS} - set(nets.NETS)


def test_the_rows_for_a_device_run_on_a_cpu(tmp_path, capsys):
    import argparse
    parser = argparse.ArgumentParser()
    gpu.add_arguments(parser)
    args = parser.parse_args(["--device", "cpu", "--tiny", "--steps", "1", "--only",
                              "gpt2 b8 eager", "-o", str(tmp_path / "page.md")])
    assert gpu.main(args) == 0
    printed = capsys.readouterr().out
    assert "memonger 60%" in printed and "memonger, host 60%" in printed
    assert "Error" not in printed
    text = (tmp_path / "page.md").read_text()
    assert "no device has run it" in text and "| gpt2, batch 8 | eager | memonger 60% |" in text


def test_published_rows_stand_beside_measured_ones():
    theirs = published.least("OGC", "densenet121")
    unplanned = {"peak_bytes": 1000, "before_bytes": 500, "step_s": 1.0}
    asked = published.budget_bytes(theirs, unplanned)
    assert asked == int(1000 * 898 / 4027) + 500
    row = {"net": "densenet121", "batch": 32, "published": theirs, "peak_bytes": asked - 500,
           "before_bytes": 500, "step_s": 1.25}
    refused = {"net": "vgg16", "batch": 8, "published": published.least("MONeT", "vgg16"),
               "error": "InfeasibleBudget: no | plan"}
    lines = published.table([(row, unplanned), (refused, unplanned)]).splitlines()[2:]
    assert lines == [
        "| densenet121, batch 32 | OGC | 22.3 % | +34.0 % | 22.2 % | +25.0 % |",
        "| vgg16, batch 8 | MONeT | 39.0 % | +9.1 % | InfeasibleBudget: no / plan | |"]
    asked = [row for row in gpu.ROWS if row[4] in published.SYSTEMS]
    assert {row[4] for row in asked} == {"MONeT", "OGC"}
    for net, batch, mode, _, system, _ in asked:
        assert published.least(system, net).batch == batch
        assert (net, batch, gpu.base_mode(mode), "unplanned") in [row[:4] for row in gpu.ROWS]


def test_models_of_other_packages_are_trained_once(tmp_path, monkeypatch, capsys):
    """What is in the file of results is not run again; one without an answer is a row, too."""
    asked = []

    def ask(module, request, environment, timeout_s):
        asked.append(request["model"])
        if request["model"] == "detr":
            raise MemongerError("it took more than 1 s")
        return {"apart": 0.0, "kept": 1.0, "of_unplanned": 0.7, "extra": 0.05, "compile_s": 2.0,
                "planning_s": 1.0, "plain_compile_s": 1.0}
    monkeypatch.setattr(table, "ask_module", ask)
    for names in (["gpt2"], ["gpt2", "detr"]):
        parser = argparse.ArgumentParser()
        table.add_arguments(parser)
        code = table.main(parser.parse_args([*names, "--results", str(tmp_path / "r.jsonl")]))
    assert asked == ["gpt2", "detr"] and code == 1
    text = capsys.readouterr().out
    assert "| gpt2 | yes | the same bits | 1.000 | 70.0 % | +5.0 % | 1.0 s | 2.0 s |" in text
    assert "no: it took more than 1 s" in text and "1 of 2 train; 1 keep the budget" in text


def test_a_model_of_another_package_trains_in_its_budget():
    pytest.importorskip("transformers")
    found = training.train({"model": "gpt2", "mode": "eager", "share": 0.8, "time_limit": 1.0})
    assert found["apart"] == 0 and found["kept"] <= 1 and "infeasible" not in found


def test_seconds_of_planning_are_beside_another_build():
    rows = planning.words("a step of 40 ops", {"auto": 1.0, "milp": 2.0}, {"auto": 4.0})
    assert rows[0].endswith("2.0 beside, 0.50 of it, at most 1: met") and "beside" not in rows[1]
    [row] = planning.words("the largest batch of an encoder", {"all": 4.0}, {"all": 10.0})
    assert row.endswith("0.40 of it, at most 0.1: NOT MET")
    found = planning.methods()
    assert set(found) == {"auto", "milp"} and min(found.values()) > 0
