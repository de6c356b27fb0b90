"""What a process with PyTorch alone loads."""
from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_a_process_that_plans_with_pytorch_loads_nothing_of_the_other_frontend(tmp_path):
    script = """
import sys, torch, memonger, memonger.torch as mt
module = torch.nn.Sequential(*[torch.nn.Linear(16, 16), torch.nn.GELU()] * 3)
plan = mt.plan(module, torch.randn(64, 16), "95%", mode="eager", method="chen")
plan.save("plan.json")
again = memonger.load_plan("plan.json")
again.report("plan.html")
assert str(again) and again._repr_html_() and all(map(again.explain, again.decisions))
assert again.symbol is None and again.symbol_json is None
print([name for name in sys.modules if name.startswith(("memonger.mx", "mxnet"))])
"""
    done = subprocess.run([sys.executable, "-c", script], check=True, stdout=subprocess.PIPE,
                          text=True, cwd=str(tmp_path), env={**os.environ, "PYTHONPATH": str(ROOT)})
    assert done.stdout == "[]\n"
