"""examples/torch_memory_cap.py: a module trains where it runs out of memory without a plan."""
from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "examples" / "torch_memory_cap.py"
PREDICTED = "predicted: 470 MiB without a plan, 258 MiB with one (+8.2 % time)"


def test_the_plan_is_for_the_cap(monkeypatch):
    monkeypatch.syspath_prepend(str(SCRIPT.parent))
    import torch_memory_cap
    plan = torch_memory_cap.planned(420 << 20)
    assert plan.baseline_total_bytes > 420 << 20
    assert plan.total_bytes <= (420 << 20) - torch_memory_cap.ROOM_BYTES
    assert "%.0f MiB without a plan, %.0f MiB with one (%+.1f %% time)" % (
        plan.baseline_total_bytes / 2**20, plan.total_bytes / 2**20,
        100 * plan.overhead) in PREDICTED


@pytest.mark.slow
def test_the_cap_stops_the_module_and_not_the_plan(tmp_path):
    done = subprocess.run([sys.executable, str(SCRIPT), "--out", str(tmp_path), "--steps", "3"],
                          stdout=subprocess.PIPE, text=True, timeout=600, check=True)
    said = done.stdout.splitlines()
    assert said[:2] == ["the process may take 420 MiB for training", PREDICTED]
    assert said[2].startswith("trained without a plan: out of memory")
    assert said[3].startswith("trained with the plan:  loss ")
    assert (tmp_path / "gpt.html").stat().st_size > 10000
    if importlib.util.find_spec("matplotlib"):
        assert (tmp_path / "torch_memory_cap.png").stat().st_size > 10000
