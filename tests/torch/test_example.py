"""examples/torch_train.py: the curves of planned and unplanned training are equal."""
from __future__ import annotations

import importlib.util
from argparse import Namespace
from pathlib import Path

import pytest

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
