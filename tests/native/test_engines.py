"""No clone runs too early or too late, whatever the engine."""
from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import memonger

FOLDER = Path(memonger.__file__).resolve().parents[1]


ENGINES = ["NaiveEngine", "ThreadedEnginePerDevice", "ThreadedEngine"]


def run(program, *arguments, **environment):
    """What a program beside this file prints, in a process of its own."""
    path = os.pathsep.join(filter(None, [str(FOLDER), os.environ.get("PYTHONPATH")]))
    done = subprocess.run([sys.executable, str(Path(__file__).with_name(program)), *arguments],
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          universal_newlines=True,
                          env=dict(os.environ, PYTHONPATH=path, **environment))
    assert done.returncode == 0, done.stdout[-2000:]
    return done.stdout


def train(engine, first, last):
    printed = run("random_training.py", str(first), str(last), MXNET_ENGINE_TYPE=engine)
    assert "identical: %d" % (last - first) in printed


@pytest.mark.parametrize("engine", ENGINES)
def test_whoever_reads_internal_arrays_sees_computed_values(engine):
    printed = run("monitored_training.py", MXNET_ENGINE_TYPE=engine,
                  MXNET_CPU_WORKER_NTHREADS="4")
    assert int(printed.split()[-1]) > 300


@pytest.mark.parametrize("engine", ENGINES)
def test_random_networks(engine):
    train(engine, 5000, 5015)


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["NaiveEngine", "ThreadedEnginePerDevice"])
@pytest.mark.parametrize("first", range(6000, 7000, 250))
def test_a_thousand_random_networks(engine, first):
    train(engine, first, first + 250)
