"""examples/dist_train.py: KVStore's workers as processes, planned and unplanned."""
from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from forked import paths
from needed import needs_plugin

SCRIPT = Path(__file__).resolve().parents[2] / "examples" / "dist_train.py"
#: A killed worker ends the job within so many seconds, and the processes that start it take more.
STOPPED_S, START_S = 10.0, 60.0

pytestmark = needs_plugin


def run(folder, *words):
    began_s = time.monotonic()
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "--out", str(folder), "--limit", "120", *words],
        env={**os.environ, "PYTHONPATH": paths(os.environ)}, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, universal_newlines=True, timeout=300)
    return done, time.monotonic() - began_s


def parameters(folder):
    return {path.name: {name: values.tobytes() for name, values in np.load(str(path)).items()}
            for path in folder.glob("*.npz")}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A job that nothing happened to."""
    folder = tmp_path_factory.mktemp("whole")
    done, _ = run(folder)
    assert done.returncode == 0, done.stderr
    assert "parameters of all workers: the same bit for bit" in done.stdout
    return folder


def test_each_worker_ends_with_the_parameters_of_the_unplanned_job(whole):
    found = parameters(whole)
    assert sorted(found) == ["plain-0.npz", "plain-1.npz", "planned-0.npz", "planned-1.npz"]
    assert all(found["plain-0.npz"] == other for other in found.values())


def test_a_killed_worker_ends_the_job_and_the_last_checkpoint_goes_on(whole, tmp_path):
    done, took_s = run(tmp_path, "--kill-rank", "1", "--kill-epoch", "1")
    assert done.returncode == 1 and took_s < START_S + STOPPED_S
    assert done.stderr.splitlines()[-1] == (
        "error: a worker ended early, by signal 9, and the job was stopped; go on with --resume 1")
    done, _ = run(tmp_path, "--resume", "1")
    assert done.returncode == 0, done.stderr
    assert parameters(tmp_path) == parameters(whole)


@pytest.mark.slow
def test_asynchronous_workers_train_too(tmp_path):
    done, _ = run(tmp_path, "--kvstore", "dist_async")
    assert done.returncode == 0 and len(parameters(tmp_path)) == 4
