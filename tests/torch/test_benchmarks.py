"""The benchmarks' count agrees with the plans', on small networks."""
from __future__ import annotations

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from benchmarks.torch import count, gpu, nets, plans  # noqa: E402
from memonger.torch.apply import split  # noqa: E402
from memonger.torch.request import Request  # noqa: E402
from memonger.torch.tracing import traced  # noqa: E402


@pytest.mark.parametrize("name", ["densenet121", "gpt2", "unet3d"])
def test_peak_and_extra_time_of_a_plan_are_those_that_are_counted(name):
    module, inputs = nets.build(name, 2, tiny=True)
    request = Request("85%", "eager", time_limit=1.0, costs="reference")
    planned = traced(module, inputs, request)
    plan, captured = planned.plan, planned.captured
    peak, _ = count.both(*split(captured, plan.schedule), captured.num_forward_outputs)
    assert peak == plan.pool_bytes <= plan.baseline_pool_bytes


def test_the_page_has_a_row_for_each_network():
    rows = [{"net": "resnet50", "batch": 2, "ops": 9, "fixed_bytes": 0, "method": method,
             "peak_bytes": peak, "time_s": seconds, "planning_s": 1.0}
            for method, peak, seconds in (
                ("unplanned", 100, 1.0), ("memonger 50%", 50, 1.1),
                ("PyTorch's budget 0.5, dp", 70, 1.2), ("PyTorch's budget 0.4, dp", 80, 1.3),
                ("each block", 60, 1.4))]
    rows[1]["bound"] = 0.08
    [line] = plans.page([rows]).splitlines()[2:]
    assert "50 +10.0 (8.0)" in line and "70 +20.0 |" in line and "60 +40.0" in line


def test_the_rows_for_a_device_run_on_a_cpu(tmp_path, capsys):
    import argparse
    parser = argparse.ArgumentParser()
    gpu.add_arguments(parser)
    args = parser.parse_args(["--device", "cpu", "--tiny", "--steps", "1", "--only",
                              "gpt2 b8 eager", "-o", str(tmp_path / "page.md")])
    assert gpu.main(args) == 0
    assert "memonger 60%" in capsys.readouterr().out
    text = (tmp_path / "page.md").read_text()
    assert "no device has run it" in text and "| gpt2, batch 8 | eager | memonger 60% |" in text
