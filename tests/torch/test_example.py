"""The examples: planned and unplanned training are equal."""
from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from argparse import Namespace
from pathlib import Path

import pytest

import memonger

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "torch_train.py"


@pytest.fixture
def example():
    spec = importlib.util.spec_from_file_location("torch_train", EXAMPLE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_gpt_learns_text_the_same(example, capsys):
    characters, texts = example.text_batches(8, 32)
    args = Namespace(steps=3, budget="70%", mode="eager")
    assert example.compare("gpt", example.GPT(characters, 32, 32, 2), texts, args)
    assert "curves equal" in capsys.readouterr().out


def test_a_resnet_learns_digits_the_same(example, capsys):
    pytest.importorskip("sklearn")
    args = Namespace(steps=3, budget="75%", mode="eager")
    assert example.compare("resnet", example.ResNet(8, 2), example.digit_batches(32), args)
    assert "curves equal" in capsys.readouterr().out


@pytest.mark.parametrize("form", [[], ["--shard"], ["--pipeline", "--budget", "80%"]],
                         ids=["DDP", "FSDP2", "1F1B"])
def test_two_processes_train_the_same_and_end(form):
    folder = str(Path(memonger.__file__).resolve().parents[1])
    done = subprocess.run(
        [sys.executable, str(EXAMPLE.with_name("torch_distributed.py")), "--steps", "2",
         "--limit", "150", *form], capture_output=True, text=True, timeout=200,
        env={**os.environ, "PYTHONPATH": folder})
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.count("planned equals unplanned") == 2


def test_processes_that_do_not_end_are_ended():
    folder = str(Path(memonger.__file__).resolve().parents[1])
    done = subprocess.run(
        [sys.executable, str(EXAMPLE.with_name("torch_distributed.py")), "--limit", "0.1"],
        capture_output=True, text=True, timeout=60, env={**os.environ, "PYTHONPATH": folder})
    assert done.returncode == 1 and "did not end within 0.1 seconds" in done.stderr
