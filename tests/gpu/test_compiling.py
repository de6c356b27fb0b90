"""From kernel sources to machine code: the cache, and what is said when something is missing."""
from __future__ import annotations

import os
import shutil
import subprocess

import pytest
from forked import forks
from needed import needs_plugin

from benchmarks.kernels import nvrtc, sources
from gpu import pretend
from memonger.mx.plugin import loading as native
from memonger.util import gpu_kernels
from memonger.util.errors import PluginError

pytestmark = needs_plugin

TRAIN = """
import mxnet as mx, numpy as np
from memonger.mx.plugin import loading as native
native.load()
native._plugin.memonger_gpu_stand_in()
try:
    x = mx.nd.array(np.arange(-3.0, 3.0))
    print(mx.nd.memonger_mask_relu(x).asnumpy().tolist())
except mx.MXNetError as error:
    print("MXNetError:", error)
"""
ANSWER = "[0.0, 0.0, 0.0, 0.0, 1.0, 2.0]"


@pytest.fixture(scope="module")
def run(driver_folder):
    """``run(code, **variables)``: what the code prints in a process with a pretended GPU."""
    environment = pretend.environment(driver_folder)
    with forks(environment) as server:
        def run_forked(code, **variables):
            if "LD_LIBRARY_PATH" in variables:  # read when a process starts
                with forks({**environment, **variables}) as other:
                    done = other.run(code)
            else:
                variables.setdefault("MEMONGER_NATIVE_DIR", str(native.folder()))
                done = server.run(code, **variables)
            assert done.returncode == 0, done.stderr
            return done.stdout.strip()
        yield run_forked


@pytest.fixture
def cache(tmp_path):
    return tmp_path / "somewhere" / "cache"


def test_what_was_compiled_once_is_found_again(run, cache):
    assert run(TRAIN, MEMONGER_CACHE_DIR=str(cache)) == ANSWER
    files = list(cache.iterdir())
    assert len(files) == 1 and files[0].name.startswith("activations.cu-32-sm90-")
    # A compiler that is not there is not missed.
    assert run(TRAIN, MEMONGER_CACHE_DIR=str(cache),
               MEMONGER_NVRTC="/nowhere/libnvrtc.so") == ANSWER
    # Not if others could have written the code.
    files[0].chmod(0o666)
    assert "there is none" in run(TRAIN, MEMONGER_CACHE_DIR=str(cache),
                                  MEMONGER_NVRTC="/nowhere/libnvrtc.so")


def test_a_damaged_cache_is_compiled_again(run, cache):
    run(TRAIN, MEMONGER_CACHE_DIR=str(cache))
    file, = cache.iterdir()
    whole = file.read_bytes()
    for damaged in (whole[:-3], b"", whole[:40] + b"?" + whole[41:]):
        file.write_bytes(damaged)
        assert run(TRAIN, MEMONGER_CACHE_DIR=str(cache)) == ANSWER
    assert len(list(cache.iterdir())) == 1


def test_a_cache_that_cannot_be_written_is_no_error(run, tmp_path):
    (tmp_path / "file").write_text("")
    assert run(TRAIN, MEMONGER_CACHE_DIR=str(tmp_path / "file" / "x")) == ANSWER


def test_another_device_gets_other_code(run, cache):
    for capability in ("70", "80"):
        assert run(TRAIN, MEMONGER_CACHE_DIR=str(cache),
                   PRETEND_CAPABILITY=capability) == ANSWER
    assert sorted(path.name.split("-")[2] for path in cache.iterdir()) == ["sm70", "sm80"]
    # Newer than the compiler: code that the driver finishes.
    assert run(TRAIN, MEMONGER_CACHE_DIR=str(cache),
               PRETEND_CAPABILITY="120") == ANSWER


@pytest.mark.parametrize("variables, words", [
    ({"MEMONGER_NVRTC": "/nowhere/libnvrtc.so"},
     ["there is none", "nvidia-cuda-nvrtc-cu11==11.8.89", "/nowhere/libnvrtc.so"]),
    ({"LD_LIBRARY_PATH": ""}, ["need the CUDA driver", "libcuda.so.1"]),
    ({"PRETEND_CAPABILITY": "35"}, ["does not compile for this device, sm_35"]),
    ({"PRETEND_LAUNCH_CODE": "719"},
     ["launch of relu_forward with 1 blocks of 256 threads", "CUDA driver error 719"]),
    ({"PRETEND_DEVICES": "0"}, ["no GPU 0", "CUDA driver error 101"]),
])
def test_what_is_missing_is_said(run, cache, variables, words):
    if "LD_LIBRARY_PATH" in variables and has_driver():
        pytest.skip("this machine has a driver")
    text = run(TRAIN, MEMONGER_CACHE_DIR=str(cache), **variables)
    assert text.startswith("MXNetError:")
    for word in words:
        assert word in text


def has_driver():
    listing = subprocess.run(["ldconfig", "-p"], stdout=subprocess.PIPE, universal_newlines=True,
                             env={**os.environ, "PATH": os.environ["PATH"] + ":/sbin"})
    return "libcuda.so.1" in listing.stdout


@pytest.fixture
def other_sources(tmp_path, monkeypatch):
    """A copy of the plugin whose kernels may be changed."""
    folder = tmp_path / "native"
    shutil.copytree(str(native.folder()), str(folder))
    monkeypatch.setenv("MEMONGER_NATIVE_DIR", str(folder))
    return folder / "cuda"


def test_an_error_in_a_kernel_comes_with_the_compilers_log(run, cache, other_sources):
    with (other_sources / "activations.cu").open("a") as file:
        file.write("int x = undeclared;\n")
    text = run(TRAIN, MEMONGER_CACHE_DIR=str(cache))
    for word in ("do not compile", "activations.cu", "sm_90", "undeclared", "error:"):
        assert word in text


def test_a_missing_source_is_named(run, cache, other_sources):
    (other_sources / "activations.cu").unlink()
    text = run(TRAIN, MEMONGER_CACHE_DIR=str(cache))
    assert "activations.cu cannot be read; reinstall memonger" in text


# ---------------------------------------------------------------------- the real compiler
def test_the_core_compiles_with_nvrtc(tmp_path, monkeypatch):
    monkeypatch.setenv("MEMONGER_NVRTC", os.environ.get("MEMONGER_NVRTC", ""))
    nvrtc.choose()
    try:
        compiler = gpu_kernels.compiler()
    except PluginError:
        pytest.skip("no NVRTC; pip install nvidia-cuda-nvrtc-cu11")
    assert compiler.startswith("NVRTC ")
    newest = max(gpu_kernels.architectures())
    for path in sources.source_folder().glob("*.cu"):
        for bits in sources.BITS.values():
            assert len(gpu_kernels.compiled(path.parent, path.name, bits, newest)) > 2000
    shutil.copytree(str(sources.source_folder()), str(tmp_path / "cuda"))
    (tmp_path / "cuda" / "broken.cu").write_text('#include "real.cuh"\nint x = undeclared;\n')
    with pytest.raises(PluginError, match='broken.cu(.|\n)*identifier "undeclared" is undefined'):
        gpu_kernels.compiled(tmp_path / "cuda", "broken.cu", 32, newest)
