"""No clone runs too early or too late, whatever the engine."""
from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import memonger

PROGRAM = Path(__file__).with_name("random_training.py")
FOLDER = Path(memonger.__file__).resolve().parents[1]


def train(engine, first, last):
    path = os.pathsep.join(filter(None, [str(FOLDER), os.environ.get("PYTHONPATH")]))
    done = subprocess.run([sys.executable, str(PROGRAM), str(first), str(last)],
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          universal_newlines=True,
                          env=dict(os.environ, PYTHONPATH=path, MXNET_ENGINE_TYPE=engine))
    assert done.returncode == 0, done.stdout[-2000:]
    assert "identical: %d" % (last - first) in done.stdout


@pytest.mark.parametrize("engine", ["NaiveEngine", "ThreadedEnginePerDevice", "ThreadedEngine"])
def test_random_networks(engine):
    train(engine, 5000, 5015)


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["NaiveEngine", "ThreadedEnginePerDevice"])
@pytest.mark.parametrize("first", range(6000, 7000, 250))
def test_a_thousand_random_networks(engine, first):
    train(engine, first, first + 250)
