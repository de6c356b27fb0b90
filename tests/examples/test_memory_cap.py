"""examples/memory_cap.py: README's first screen is what it does."""
from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from forked import paths
from needed import needs_plugin

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "examples" / "memory_cap.py"

pytestmark = needs_plugin


def run(code_or_path, *arguments, folder):
    """The example in a process with MKLDNN, as users have it."""
    environment = {n: v for n, v in os.environ.items() if "MKLDNN" not in n}
    environment["PYTHONPATH"] = os.pathsep.join([str(SCRIPT.parent), paths(environment)])
    done = subprocess.run([sys.executable, *code_or_path, *arguments], cwd=str(folder),
                          env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          universal_newlines=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def first_screen() -> str:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    return text[text.index("the process may take"):].partition("```")[0]


def test_readme_tells_the_totals_that_the_demo_predicts(tmp_path):
    code = ("import memory_cap, memonger\nfrom memonger.util.units import format_bytes as f\n"
            "p = memory_cap.planned(270 << 20)\n"
            "print('predicted: %s without a plan, %s with one (%+.1f %% time)' % ("
            "f(p.baseline_total_bytes), f(p.total_bytes), 100 * p.overhead))")
    assert run(["-c", code], folder=tmp_path).strip() in first_screen()


@pytest.mark.slow
def test_the_unplanned_process_runs_out_of_memory_and_the_planned_one_learns(tmp_path):
    printed = run([str(SCRIPT)], "--out", str(tmp_path), folder=tmp_path)
    told, found = ([re.sub(r"\d+ % of|\d+ MiB taken", "", line) for line in text.splitlines()
                    if line.startswith(("the process", "predicted", "trained", "largest"))]
                   for text in (first_screen(), printed))
    assert found == told
    accuracy, = re.findall(r"(\d+) % of the digits", printed)
    assert int(accuracy) > 80
    assert (tmp_path / "memory_cap.png").stat().st_size > 10000
