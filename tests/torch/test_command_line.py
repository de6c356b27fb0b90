"""``memonger plan model.py:build`` and what follows it."""
from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import memonger.torch as mt
from memonger.cli import main
from memonger.plans.measurement import Measurement
from memonger.plans.plan_file import load_plan
from memonger.report.html import command_line
from memonger.report.measured import measurement_table
from memonger.torch.step import inductor
from memonger.util.units import format_bytes

ROOT = Path(__file__).parents[2]
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
    assert "workspace of operators" not in text  # a note tells what operators take, or not
    assert main(["verify", "plan.json"]) == 0
    assert "identical, bit for bit" in capsys.readouterr().out
    assert main(["measure", "plan.json", "--steps", "1", "-o", "plan.json", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["planned"]["peak_bytes"] < found["original"]["peak_bytes"]
    assert main(["measure", "plan.json", "--steps", "1"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split()[:2] == ["measured", "total"]
    assert lines[1].startswith("unplanned") and lines[2].startswith("with this plan")
    assert any(line.startswith("the step keeps the budget of ") for line in lines)
    assert main(["explain", "plan.json", "3"]) == 0
    told = capsys.readouterr().out
    assert "3.0/addmm_3 (" in told and "3.2/gelu_3 (" in told and "2.2/gelu_2 (" not in told
    assert main(["explain", "plan.json"]) == 0
    listed = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in listed[1:]] == list(load_plan("plan.json").decisions)
    assert main(["explain", "plan.json", "33"]) == 1
    assert main(["report", "plan.json", "-o", "plan.html"]) == 0
    assert main(["estimate", *model, "--budget", "1KB"]) == 3


def test_a_plan_is_verified_from_another_folder(model, capsys, tmp_path, monkeypatch):
    assert main(["plan", *model, "--budget", "70%", "-o", "plan.json"]) == 0
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert main(["verify", "../plan.json"]) == 0
    assert "identical, bit for bit" in capsys.readouterr().out


def test_a_plan_made_in_python_names_the_calls_that_run_it(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    mt.plan(torch.nn.Linear(3, 3), (torch.ones(2, 3),), "100%", "eager").save("plan.json")
    assert main(["verify", "plan.json"]) == 1
    assert "memonger.torch.verify(compiled, module, inputs)" in capsys.readouterr().err


def test_functions_of_one_file_have_names_of_their_own(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "nets.py").write_text(MODEL.replace("build", "narrow"))
    assert main(["plan", "nets.py:narrow", "--input", "8,32", "--mode", "eager"]) == 0
    assert capsys.readouterr().out.startswith("narrow   ")


def test_values_go_to_the_host(model, capsys):
    asked = ["--budget", "70%", "--costs", "reference", "--host", "1GB", "--link", "25TB/s"]
    assert main(["plan", *model, *asked, "-o", "plan.json"]) == 0
    assert "values on the host take " in capsys.readouterr().out
    plan = load_plan("plan.json")
    assert "offload" in plan.decisions.values()
    assert main(shlex.split(command_line(plan))[1:]) == 0
    assert load_plan("plan.json").schedule == plan.schedule
    assert main(["verify", "plan.json"]) == 0
    assert "identical, bit for bit" in capsys.readouterr().out


def test_the_reports_command_makes_the_same_plan(model, capsys):
    assert main(["plan", *model, "--budget", "70%", "--time-limit", "2", "-o", "plan.json"]) == 0
    plan = load_plan("plan.json")
    command = command_line(plan)
    assert command == ("memonger plan net.py:build --input 256,32 --mode eager --budget 70% "
                       "--variants exact --time-limit 2 -o plan.json")
    assert main(shlex.split(command)[1:]) == 0
    assert load_plan("plan.json").schedule == plan.schedule
    made = mt.plan(torch.nn.Linear(3, 3), (torch.ones(2, 3),), "100%", "eager")
    assert command_line(made) == \
        "memonger.torch.plan(module, inputs, budget='100%', mode='eager')"


def test_estimate_and_plan_count_the_optimizer(model, capsys):
    def total(*words):
        assert main(["estimate", *model, "--json", *words]) == 0
        return json.loads(capsys.readouterr().out)
    plain, adam = total(), total("--optimizer", "adam,amsgrad=1")
    state = adam["bytes"]["optimizer"]
    assert state == 3 * plain["bytes"]["parameters"] + 4 * 20
    assert adam["total_bytes"] == plain["total_bytes"] + state
    assert main(["estimate", *model, "--optimizer", "adam"]) == 0
    assert "optimizer state" in capsys.readouterr().out
    assert main(["plan", *model, "--budget", "80%", "--optimizer", "sgd,momentum=0.9", "-o",
                 "plan.json"]) == 0
    plan = load_plan("plan.json")
    assert " --optimizer sgd,momentum=0.9 " in command_line(plan)
    capsys.readouterr()
    assert main(["measure", "plan.json", "--steps", "1"]) == 0  # steps without an optimizer
    assert "the step keeps the budget of %s with the optimizer's state, %s" % (
        format_bytes(plan.budget_bytes), format_bytes(plan.fixed_bytes["optimizer"])) \
        in capsys.readouterr().out
    above = Measurement(plan.budget_bytes, 1.0, (1.0,), "cpu")
    assert "that is above the budget of" in measurement_table(above, None, plan, "allocator")


def test_a_plan_whose_code_takes_more_is_made_again_for_its_budget(model, capsys, monkeypatch):
    """``memonger plan`` runs nothing, so under Inductor it only predicts."""
    model[-1] = "inductor"
    assert main(["plan", *model, "--budget", "80%", "-o", "plan.json"]) == 0
    plan, trial, takes = load_plan("plan.json"), inductor.trial_bytes, []
    monkeypatch.setattr(inductor, "trial_bytes",
                        lambda *given: takes.pop() if takes else trial(*given))

    def told(*command):
        torch._dynamo.reset()
        takes.append(plan.pool_bytes * 11 // 10)
        assert main([*command]) == 0
        return capsys.readouterr().out
    writes = "memonger measure plan.json -o plan.json writes the one that ran"
    words = told("verify", "plan.json")
    assert writes in words and "\nthe step takes " in words
    assert ", within the budget of %s\n" % format_bytes(plan.budget_bytes) in words
    assert writes in told("measure", "plan.json")
    words = told("measure", "plan.json", "-o", "plan.json")
    assert "this ran by another plan for the same budget" in words and writes not in words
    ran = load_plan("plan.json")
    assert ran.total_bytes <= ran.budget_bytes == plan.budget_bytes
    assert ran.decisions != plan.decisions and ran.measured
    assert main(["measure", "plan.json", "-o", "plan.json"]) == 0
    assert main(["verify", "plan.json"]) == 0
    assert "another plan" not in capsys.readouterr().out
    assert load_plan("plan.json").predicted_pool_bytes == ran.predicted_pool_bytes


def test_a_plan_that_no_code_keeps_is_refused_with_the_least(model, capsys, monkeypatch):
    model[-1] = "inductor"
    assert main(["plan", *model, "--budget", "80%", "-o", "plan.json"]) == 0
    monkeypatch.setattr(inductor, "trial_bytes", lambda *_: 10 ** 9)
    assert main(["verify", "plan.json"]) == 3
    least_bytes = 10 ** 9 + sum(load_plan("plan.json").fixed_bytes.values())
    assert "try: plan again with --budget %d" % least_bytes in capsys.readouterr().err


def test_profile_sweep_and_max_batch(model, capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert main(["profile", *model]) == 0
    assert "op times of" in capsys.readouterr().out
    assert main(["plan", *model, "--sweep", "--json"]) == 0
    plans = json.loads(capsys.readouterr().out)["results"]
    assert len(plans) > 2 and plans[0]["total_bytes"] > plans[-1]["total_bytes"]
    assert main(["max-batch", *model, "--budget", "4MB", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["planned"] > found["unplanned"] > 256


def test_errors_in_one_line(model, capsys, tmp_path):
    with open(tmp_path / "net.py", "a") as source:
        source.write("\ndef sized(width):\n    return nn.Linear(width, width)\n"
                     "\nclass Scored(nn.Linear):\n    def forward(self, x, target):\n"
                     "        return (super().forward(x) - target).square().mean()\n"
                     "\ndef scored():\n    return Scored(32, 32)\n")
    for arguments, words in (
            (["plan", "net.py:build", "--mode", "eager"], "--input 32,3,224,224"),
            (["plan", "net.py:wrong", "--input", "4,32"], "no function wrong"),
            (["plan", "other.py:build", "--input", "4,32"], "no file other.py"),
            (["plan", "net.py", "--input", "4,32"], "as in net.py:build;"),
            (["plan", "net.py:sized", "--input", "4,32"],
             "net.py:sized is called without arguments, and is missing a required argument: "
             "'width'"),
            (["plan", "net.py:scored", "--input", "4,32"], "cannot be called with 1 input: missing "
             "a required argument: 'target'; give an --input for each argument"),
            (["plan", *model, "--budget", "3%"], "the smallest total found is"),
            (["plan", *model, "--shape", "data=1,2"], "takes no --shape"),
            (["profile", *model, "--repeats", "2"], "takes no --repeats"),
            (["max-batch", *model, "--budget", "4MB", "--method", "chen"], "takes no --method"),
            (["verify", "net.py:build"], "needs a plan file")):
        assert main(arguments) != 0
        assert words in capsys.readouterr().err


def test_a_refusal_has_the_words_of_users(model, capsys):
    assert main(["plan", *model, "--budget", "3%"]) == 3
    error = capsys.readouterr().err
    assert "are the same in every plan (gradients of outputs 32.0 KiB, inputs 32.0 KiB)" in error
    assert "a smaller batch (memonger max-batch tells which fits)" in error


@pytest.mark.parametrize("mode", ["eager", "inductor"])
def test_inputs_that_do_not_fit_are_one_line_of_memonger(model, mode):
    """PyTorch's log goes past what pytest captures of this process."""
    done = subprocess.run([sys.executable, "-m", "memonger", "plan", "net.py:build", "--input",
                           "4,31", "--mode", mode], stderr=subprocess.PIPE, text=True,
                          env={**os.environ, "PYTHONPATH": str(ROOT)})
    # PyTorch for CUDA says at its import that there is no GPU.
    [line] = [line for line in done.stderr.splitlines() if "No CUDA runtime is found" not in line]
    assert done.returncode == 1
    assert line.startswith("error: the module fails while PyTorch traces it: ")
