"""No clone runs too early or too late, whatever the engine."""
from __future__ import annotations

import re
from pathlib import Path

import pytest
from forked import python

#: MXNet's default first.
ENGINES = ["ThreadedEnginePerDevice", pytest.param("NaiveEngine", marks=pytest.mark.slow),
           pytest.param("ThreadedEngine", marks=pytest.mark.slow)]
#: Runs programs beside this file one after the other: their names and arguments.
PROGRAMS = """
import runpy, sys
for program, *arguments in %r:
    sys.argv[:] = [program, *arguments]
    runpy.run_path(program, run_name="__main__")
"""


def run(*programs, **environment):
    """What programs beside this file print, in a process of their own."""
    named = [[str(Path(__file__).with_name(name)), *map(str, arguments)]
             for name, *arguments in programs]
    done = python("-c", PROGRAMS % (named,), **environment)
    assert done.returncode == 0, done.stdout[-2000:]
    return done.stdout


@pytest.mark.parametrize("engine", ENGINES)
def test_whoever_reads_internal_arrays_sees_computed_values_and_training_is_the_same(engine):
    printed = run(["monitored_training.py"], ["random_training.py", 5000, 5010],
                  MXNET_ENGINE_TYPE=engine, MXNET_CPU_WORKER_NTHREADS="4")
    assert int(re.search(r"^the same: (\d+)$", printed, re.MULTILINE).group(1)) > 300
    assert "identical: 10" in printed


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["NaiveEngine", "ThreadedEnginePerDevice"])
@pytest.mark.parametrize("first", range(6000, 7000, 250))
def test_a_thousand_random_networks(engine, first):
    printed = run(["random_training.py", first, first + 250], MXNET_ENGINE_TYPE=engine)
    assert "identical: 250" in printed


def test_loops_wait_for_what_they_read():
    """MXNet's own executors read the layouts of arrays that other threads still compute."""
    printed = run(["loop_training.py", 20], MXNET_MKLDNN_ENABLED="1", OMP_NUM_THREADS="1",
                  MXNET_CPU_WORKER_NTHREADS="4")
    assert "wrong steps: 0 of 60" in printed
