"""The commands that run networks, from end to end on a pretended GPU under mxnet-cu112."""
from __future__ import annotations

import json

import pytest

from gpu import networks
from gpu.test_cu112 import pytestmark, python  # noqa: F401

SHAPES = [word for name, shape in (("data", "64,3,32,32"), ("softmax_label", "64"))
          for word in ("--shape", name + "=" + shape)]


@pytest.fixture(scope="module")
def run(cuda_folder, tmp_path_factory):
    """Runs a command in a folder with ``net.json``; returns what it says."""
    folder = tmp_path_factory.mktemp("commands")
    networks.network().save(str(folder / "net.json"))

    def answer(*words):
        done = python(cuda_folder, "-c", "import os, sys; os.chdir(%r)\n"
                      "from memonger.cli import main; sys.exit(main(sys.argv[1:]))" % str(folder),
                      *words, MEMONGER_CACHE_DIR=str(folder / "cache"),
                      MXNET_CUDNN_AUTOTUNE_DEFAULT="0", MXNET_GPU_CUDNN_DROPOUT_STATE_COPY="1")
        assert done.returncode == 0, done.stdout[-3000:]
        return done.stdout

    def as_json(*words):
        text = answer(*words)
        return json.JSONDecoder().raw_decode(text, text.index("{\n"))[0]
    answer.json, answer.folder = as_json, folder
    return answer


def test_profile_plan_and_measure(run):
    said = run("profile", "net.json", *SHAPES, "--ctx", "gpu", "-o", "times.json")
    assert "op times of pretended GPU (9.0, cuDNN 8101)" in said
    times = json.loads((run.folder / "times.json").read_text())
    # Each op of the network was met, fused with others as MXNet would have it or not.
    for kind in ("Convolution", "BatchNorm", "Activation", "elemwise_add", "Dropout"):
        assert [key for key in times["times_s"] if kind in key], kind
    said = run("plan", "net.json", *SHAPES, "--ctx", "gpu", "--budget", "80%", "--costs",
               "times.json", "-o", "plan.json")
    assert "pretended GPU (9.0, cuDNN 8101)" in said
    plan = json.loads((run.folder / "plan.json").read_text())
    found = run.json("measure", "plan.json", "--ctx", "gpu", "--steps", "1", "--json")
    total = plan["pool_bytes"] + sum(plan["fixed_bytes"].values())
    unplanned = plan["baseline_pool_bytes"] + sum(plan["baseline_fixed_bytes"].values())
    assert found["device"] == "gpu(0)"
    assert found["allocated_bytes"] == pytest.approx(total, rel=0.05)
    assert found["original"]["allocated_bytes"] == pytest.approx(unplanned, rel=0.05)


def test_bench_trains_on_the_device(run):
    rows = run.json("bench", "resnet18", "--set", "image=64", "--batch", "32", "--methods",
                    "auto:exact", "--budgets", "90", "--measure", "--steps", "1",
                    "--time-limit", "1", "--ctx", "gpu", "--json")
    measured = rows["rows"][0]["measured"]
    assert measured["device"] == "gpu(0)" and measured["bytes"] < measured["unplanned_bytes"]
    assert measured["unplanned_bytes"] == pytest.approx(measured["predicted_unplanned_bytes"],
                                                        rel=0.1)
