"""``memonger plan model.py:build`` and what follows it."""
from __future__ import annotations

import json

import pytest

from memonger.cli import main

MODEL = '''
import torch.nn as nn

def build():
    return nn.Sequential(*[nn.Sequential(nn.Linear(32, 32), nn.LayerNorm(32), nn.GELU())
                           for _ in range(5)])
'''


@pytest.fixture
def model(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.py").write_text(MODEL)
    return ["net.py:build", "--input", "256,32", "--mode", "eager"]


def test_plan_verify_measure_report(model, capsys):
    assert main(["plan", *model, "--budget", "70%", "-o", "plan.json"]) == 0
    text = capsys.readouterr().out
    assert "with this plan" in text and "net   " in text
    assert main(["verify", "plan.json"]) == 0
    assert "identical, bit for bit" in capsys.readouterr().out
    assert main(["measure", "plan.json", "--steps", "1", "-o", "plan.json", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["planned"]["peak_bytes"] < found["original"]["peak_bytes"]
    assert main(["report", "plan.json", "-o", "plan.html"]) == 0
    assert main(["estimate", *model, "--budget", "1KB"]) == 3


def test_errors_in_one_line(model, capsys):
    for arguments, words in (
            (["plan", "net.py:build", "--mode", "eager"], "--input 32,3,224,224"),
            (["plan", "net.py:wrong", "--input", "4,32"], "no function wrong"),
            (["plan", "other.py:build", "--input", "4,32"], "no file other.py"),
            (["plan", *model, "--budget", "3%"], "the smallest total found is"),
            (["plan", *model, "--shape", "data=1,2"], "takes no --shape"),
            (["verify", "net.py:build"], "needs a plan file")):
        assert main(arguments) != 0
        assert words in capsys.readouterr().err
