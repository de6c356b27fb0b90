"""mxnet-cu112 on a machine without a GPU: the same plugin, and planned networks on a pretended one.

Needs the wheel: ``pip install --no-deps --target FOLDER mxnet-cu112==1.9.1``, and
``MEMONGER_TEST_CU112=FOLDER``.
"""
from __future__ import annotations

import os
import re
import subprocess
import sys
from itertools import groupby
from pathlib import Path

import pytest
from needed import needs_plugin

import memonger
from gpu import networks, pretend, zoo
from gpu.conftest import Place
from memonger.mx.symbol.catalogue import catalogue
from memonger.zoo import nets

pytestmark = [pytest.mark.slow, pytest.mark.cu112, needs_plugin]
TESTS = Path(__file__).resolve().parents[1]

#: What each of our operators launches.
KERNELS = {
    "memonger_mask_relu": ["relu_forward"],
    "_backward_memonger_mask_relu": ["leaky_relu_backward"],
    "memonger_mask_dropout": ["dropout_forward"],
    "_backward_memonger_mask_dropout": ["dropout_backward"],
    "memonger_max_pool": ["max_pool_forward"],
    "_backward_memonger_max_pool": ["max_pool_backward"],
    "memonger_mask_clip": ["clip_forward"],
    "_backward_memonger_mask_clip": ["clip_backward"],
    "memonger_mask_leaky_relu": ["leaky_relu_forward"],
    "_backward_memonger_mask_leaky_relu": ["leaky_relu_backward"],
    "memonger_gelu": ["gelu_forward"],
    "_backward_memonger_gelu": ["gelu_backward"],
}


def python(folder, *arguments, **variables):
    """Run Python with mxnet-cu112 and the pretended libraries, away from the source tree."""
    environment = pretend.environment(folder, **variables)
    paths = [str(pretend.find_cu112()), str(Path(memonger.__file__).resolve().parents[1])]
    environment["PYTHONPATH"] = os.pathsep.join(paths)
    return subprocess.run([sys.executable, *arguments], env=environment, cwd=str(TESTS),
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          universal_newlines=True)


def test_the_binary_built_for_one_wheel_serves_the_other(cuda_folder):
    """The tests of recomputation and arenas, and of the operators, on ``mx.cpu()``."""
    done = python(cuda_folder, "-m", "pytest", "-q", "-p", "no:cacheprovider",
                  "native/test_recompute.py", "native/test_arena.py", "ops/test_exact.py")
    assert done.returncode == 0, done.stdout[-3000:]


def test_doctor_says_what_is_loaded(cuda_folder):
    done = python(cuda_folder, "-m", "memonger", "doctor")
    lines = dict(re.split(" {2,}", line, maxsplit=1) for line in done.stdout.splitlines()
                 if re.match(r"\S.* {2,}\S", line))
    assert str(pretend.find_cu112()) in lines["mxnet"]
    assert lines["plugin"] == lines["core library"] == "loaded"
    assert lines["gpu kernels"].startswith("compiled by NVRTC")
    assert re.match(r"CUDA \d+\.\d+$", lines["driver"]) and lines["cudnn"] == "8.1.1"


def test_doctor_names_settings_and_wheels_that_matter(cuda_folder, tmp_path):
    for name in ("mxnet", "mxnet_cu112"):
        folder = tmp_path / (name + "-1.9.1.dist-info")
        folder.mkdir()
        (folder / "METADATA").write_text("Name: %s\nVersion: 1.9.1\n" % name.replace("_", "-"))
    done = python(cuda_folder, "-c", "import sys; sys.path.append(%r)\n"
                  "from memonger.cli import main; sys.exit(main(['doctor']))" % str(tmp_path),
                  MXNET_GPU_TEMP_COPY="3", MXNET_ENABLE_CUDA_GRAPHS="1",
                  MXNET_GPU_MEM_POOL_TYPE="Round")
    for line in ("gpu +warning: Pretended GPU, 9.0, ", "distribution +warning: 2 of MXNet",
                 "MXNET_GPU_TEMP_COPY +warning: 3",
                 "MXNET_ENABLE_CUDA_GRAPHS +warning: 1", "MXNET_GPU_MEM_POOL_TYPE +Round"):
        assert re.search(line, done.stdout), done.stdout


def test_a_missing_library_is_named_with_its_package(cuda_folder, tmp_path):
    for path in cuda_folder.iterdir():
        if path.is_file() and path.name != "libcudnn.so.8":
            (tmp_path / path.name).symlink_to(path)
    done = python(cuda_folder, "-m", "memonger", "doctor", LD_LIBRARY_PATH=str(tmp_path))
    assert done.returncode == 1
    assert "libcudnn.so.8: cannot open" in done.stdout
    assert "pip install nvidia-cudnn-cu11==8.9.6.50" in done.stdout


def test_every_operator_that_plans_for_a_gpu_offer_runs_there():
    code = "from ops.runner import gpu_gaps; print(gpu_gaps())"
    done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, cwd=str(TESTS),
                          universal_newlines=True, check=True, env={
                              **os.environ, "PYTHONPATH": str(Path(memonger.__file__).parents[1])})
    gaps = ["memonger_inplace_batch_norm", "memonger_layer_norm"]
    assert sorted(eval(done.stdout)) == sorted(gaps + ["_backward_" + name for name in gaps])
    assert not {kind.op for kind in catalogue() if kind.on_gpu} & set(gaps)


# ---------------------------------------------------------------------- planned networks
OUTPUT = 64 * 10 * 4  # bytes of the network's output, which MXNet allocates by itself


@pytest.mark.parametrize("budget, variants", [(None, "exact"), (None, "all"), ("60%", "exact"),
                                              ("60%", "none")])
def test_the_pool_is_what_was_predicted(gpu, budget, variants):
    found = gpu.call(networks.train, budget, variants)
    assert ("+", found["pool_bytes"] - OUTPUT) in found["bind"]
    # In the step: the output, the gradient given for it, temporary space.
    assert found["step"].count(("+", OUTPUT)) == 2


def check_launches(found):
    expected = [kernel for kind, _ in found["ops"] for kernel in KERNELS.get(kind, ())]
    assert len(expected) >= 4
    # An op that works on a few samples at a time launches its kernel as often.
    launched = [name for name, _ in groupby(found["launches"], key=lambda launch: launch[0])]
    assert launched == [name for name, _ in groupby(expected)]


def test_a_network_of_the_other_operators(gpu):
    found = gpu.call(networks.train, None, "all", True, (), networks.activations)
    for name in ("mask_clip", "mask_leaky_relu", "gelu"):
        assert {"memonger_" + name, "_backward_memonger_" + name} <= {op[0] for op in found["ops"]}
    check_launches(found)
    assert ("+", found["pool_bytes"] - OUTPUT) in found["bind"]


@pytest.mark.parametrize("variants", ["exact", "all"])
def test_our_kernels_are_launched_in_the_order_of_the_ops(gpu, variants):
    found = gpu.call(networks.train, None, variants)
    check_launches(found)
    blocks = {launch[0]: int(launch[1]) for launch in found["launches"]}
    assert blocks["max_pool_forward"] == 64 * 16 * 16 * 16 // (256 * 4)  # four outputs a thread


def test_clones_of_batch_norm_do_not_move_the_averages(gpu):
    found = gpu.call(networks.train, None, "none", True, ["norm*", "relu*"])
    clones = [name for kind, name in found["ops"] if kind == "BatchNorm" and "_recompute" in name]
    assert len(clones) >= 2
    assert sorted(found["norms"]) == ["0.0000"] * len(clones) + ["0.1250"] * 3


@pytest.mark.parametrize("budget, variants", [("60%", "none"), ("60%", "exact"), (None, "all")])
def test_no_clone_is_useless(gpu, budget, variants):
    found = gpu.call(networks.clones, budget, variants)
    assert len(found["readers"]) == found["planned"] > 0
    assert min(found["readers"].values()) >= 1


def test_averages_move_once_in_norms_that_were_planned_for_a_cpu(gpu):
    found = gpu.call(networks.fused_norms)
    fused = [kind for kind in found["variants"] if kind.startswith("b")]
    assert fused  # batch_norm_relu or bn_relu_convolution
    assert found["norms"].count("0.1250") == 3
    assert found["norms"].count("0.0000") == len(found["norms"]) - 3 >= len(fused)


def test_two_devices_in_one_module(cuda_folder):
    logs = {name: str(cuda_folder / ("two_" + name.lower())) for name in
            ("PRETEND_ALLOCATIONS", "PRETEND_LAUNCHES")}
    place = Place("gpu", pretend.environment(
        cuda_folder, PRETEND_DEVICES="2", MXNET_GPU_MEM_POOL_TYPE="Unpooled",
        MXNET_CUDNN_AUTOTUNE_DEFAULT="0", MXNET_GPU_CUDNN_DROPOUT_STATE_COPY="1", **logs),
        [str(pretend.find_cu112())])
    try:
        found = place.call(networks.two_devices)
    finally:
        place.close()
    first, second = found["launches"]
    assert sorted(first) == sorted(second) and {"relu_forward", "max_pool_backward"} <= set(first)
    assert found["allocations"].count(("+", found["pool_bytes"] - OUTPUT)) == 2
    assert found["taken"][0] == found["taken"][1] > found["pool_bytes"]


def test_without_an_arena_every_buffer_is_one_allocation(gpu):
    found = gpu.call(networks.train, None, "exact", False)
    taken = sum(size if sign == "+" else -size for sign, size in found["step"])
    assert found["pool_bytes"] <= taken - OUTPUT <= found["pool_bytes"] + 4 * 64


def test_pointwise_fusion_leaves_planned_networks_alone(gpu):
    found = gpu.call(networks.fusion)
    assert found["stock"]["fused"] > 4 and found["stock"]["fused again"] > 4
    planned = found["planned"]
    assert planned["fused"] == planned["fused again"] == 0
    assert planned["pool_bytes"] == found["predicted"] < 0.65 * found["stock"]["pool_bytes"]
    # Fusion with clones, where the user asks for it: clones stay behind all of forward.
    names = found["insisted"]["names"]
    assert found["insisted"]["fused"] > 4
    clones = [place for place, name in enumerate(names) if "_recompute" in name]
    assert clones and min(clones) > names.index("sum0")


def test_what_mxnet_fails_to_fuse_is_bound_without_fusion(gpu):
    found = gpu.call(networks.default_activation)
    assert found["memonger"] == "bound"
    assert found["alone"] == found["insisted"] == (
        "MXNet cannot bind this network: fusion of point-wise ops misses an attribute of an op; "
        "set MXNET_USE_FUSION=0, or name act_type in each LeakyReLU")


@pytest.mark.parametrize("name", [name for name in nets.names() if name not in zoo.DEEPER])
def test_the_pool_of_each_network_of_the_zoo_is_what_was_predicted(gpu, name):
    for found in gpu.call(zoo.pools, name):
        assert found["predicted"] == found["bound"] == found["taken"]


@pytest.mark.parametrize("name", sorted(zoo.KINDS))
def test_the_pool_is_what_was_predicted_without_an_arena(gpu, name):
    stock, best, arena = gpu.call(zoo.pools, name, None, zoo.STORAGES)
    for found in (stock, best):
        assert found["predicted"] == found["bound"] == found["taken"]
    assert arena["taken"] <= stock["taken"]


def test_what_is_planned_is_what_must_be_bound(gpu):
    """With a gradient asked for the labels, too, that of the reshaped labels lives longer."""
    found = gpu.call(zoo.pools, "gru_attention", "write")[-1]
    assert found["predicted"] == found["bound"] > found["taken"]
