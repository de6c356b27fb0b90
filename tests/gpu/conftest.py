"""Where GPU code runs in tests: on the CPU, under mxnet-cu112 on a pretended GPU, on a device."""
from __future__ import annotations

import os
import sys
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Callable, Dict, List

import pytest
from ops.runner import _quiet

from gpu import pretend
from memonger import native


class Place:
    """A process in which our operators run their GPU code."""

    def __init__(self, device: str, variables: Dict[str, str], paths: List[str],
                 runs_mxnet: bool = True) -> None:
        self.device = device
        #: Whether MXNet's own operators compute there, too.
        self.runs_mxnet = runs_mxnet
        #: One line for each launch: kernel, blocks, threads, bytes of shared memory.
        self.launches = Path(variables.get("PRETEND_LAUNCHES", "nowhere/launches"))
        before = dict(os.environ)
        os.environ.update(variables)  # what a process finds when it starts
        try:
            self._pool = ProcessPoolExecutor(1, mp_context=get_context("spawn"),
                                             initializer=_start, initargs=(paths,))
            self._pool.submit(os.getpid).result()
        finally:
            os.environ.clear()
            os.environ.update(before)

    def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """``function(*arguments)`` there."""
        return self._pool.submit(function, *arguments).result()

    def launched(self) -> List[List[str]]:
        """The launches since the last call."""
        lines = self.launches.read_text().splitlines() if self.launches.exists() else []
        self.launches.write_text("")
        return [line.split() for line in lines]

    def close(self) -> None:
        self._pool.shutdown()


def _start(paths: List[str]) -> None:
    sys.path[:0] = paths
    _quiet()


@pytest.fixture(scope="session")
def driver_folder(tmp_path_factory):
    """The pretended driver and NVRTC."""
    if not pretend.have_compilers():
        pytest.skip("no gcc and g++")
    return pretend.make_driver(tmp_path_factory.mktemp("driver"))


@pytest.fixture(scope="session")
def cuda_folder(tmp_path_factory):
    """All CUDA libraries of mxnet-cu112, pretended."""
    wheel = pretend.find_cu112()
    if wheel is None:
        pytest.skip("no mxnet-cu112: pip install --no-deps --target FOLDER mxnet-cu112==1.9.1, "
                    "and MEMONGER_TEST_CU112=FOLDER")
    if not pretend.have_compilers():
        pytest.skip("no gcc and g++")
    return pretend.make_cuda(tmp_path_factory.mktemp("cuda"), wheel / "mxnet" / "libmxnet.so")


def _emulated(request) -> Place:
    folder = request.getfixturevalue("driver_folder")
    return Place("cpu", pretend.environment(folder, MEMONGER_TEST_GPU_CODE="1",
                                            PRETEND_LAUNCHES=str(folder / "launches")), [])


def _cu112(request) -> Place:
    folder = request.getfixturevalue("cuda_folder")
    return Place("gpu", pretend.environment(folder, PRETEND_LAUNCHES=str(folder / "launches")),
                 [str(pretend.find_cu112())], runs_mxnet=False)


def _device(request) -> Place:
    place = Place("gpu", {}, [])
    reason = place.call(_why_no_device)
    if reason:
        place.close()
        pytest.skip(reason)
    return place


def _why_no_device() -> str:
    """"" or why MXNet's kernels do not run here."""
    import mxnet as mx
    try:
        mx.nd.ones((1,), ctx=mx.gpu(0)).asnumpy()
    except mx.base.MXNetError as error:
        return "no device that MXNet can use: " + str(error).strip().splitlines()[-1]
    return ""


@pytest.fixture(scope="session", params=[
    pytest.param(_emulated, id="emulated"),
    pytest.param(_cu112, id="cu112", marks=[pytest.mark.slow, pytest.mark.cu112]),
    pytest.param(_device, id="device", marks=pytest.mark.gpu)])
def place(request):
    """Each of the three, where it can be had."""
    if not (native.folder() / "libmemonger_mxnet.so").exists():
        pytest.skip("the plugin is not built")
    result = request.param(request)
    yield result
    result.close()


@pytest.fixture(scope="session")
def gpu(cuda_folder):
    """mxnet-cu112 with memory straight from the pretended runtime, whose log has all sizes.

    Temporary space comes once a process: there is one of each kind.
    """
    logs = {name: str(cuda_folder / name.lower()) for name in
            ("PRETEND_ALLOCATIONS", "PRETEND_LAUNCHES", "PRETEND_NORMS")}
    place = Place("gpu", pretend.environment(cuda_folder, MXNET_GPU_MEM_POOL_TYPE="Unpooled",
                                             MXNET_CUDNN_AUTOTUNE_DEFAULT="0",
                                             MXNET_GPU_CUDNN_DROPOUT_STATE_COPY="1", **logs),
                  [str(pretend.find_cu112())])
    yield place
    place.close()
