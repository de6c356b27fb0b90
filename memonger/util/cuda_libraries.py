"""The CUDA libraries that mxnet-cu112 1.9.1 needs, and where they come from.

Importing memonger opens them for an ``import mxnet`` that comes later.
"""
from __future__ import annotations

import contextlib
import ctypes
import importlib.util
import os
import sys
from importlib import metadata
from pathlib import Path
from typing import Dict

#: Library to the package on PyPI that supplies it, in a release that completes the wheel.
PACKAGES = {
    "libcudnn": "nvidia-cudnn-cu11==8.9.6.50",
    "libcublas": "nvidia-cublas-cu11==11.11.3.6",
    "libcudart": "nvidia-cuda-runtime-cu11==11.8.89",
    "libnvrtc": "nvidia-cuda-nvrtc-cu11==11.8.89",
    "libcurand": "nvidia-curand-cu11==10.3.0.86",
    "libcufft": "nvidia-cufft-cu11==10.9.0.58",
    "libcusolver": "nvidia-cusolver-cu11==11.4.1.48",
    "libcusparse": "nvidia-cusparse-cu11==11.7.5.86",
    "libnccl": "nvidia-nccl-cu11==2.21.5",
    "libnvToolsExt": "nvidia-nvtx-cu11==11.8.86",
}


def advice(message: str) -> str:
    """What to do when the loader misses a library; "" when it is none of these."""
    library = message.partition(".so")[0].rpartition(" ")[2]
    if library == "libcuda":
        return ("mxnet-cu112 needs the NVIDIA driver, which supplies libcuda.so.1; without a GPU: "
                "pip install mxnet==1.9.1")
    if library not in PACKAGES:
        return ""
    return "pip install %s; docs/gpu.md tells how MXNet finds it" % PACKAGES[library]


def preload() -> None:
    """Open the CUDA libraries that pip installed, for an ``import mxnet`` that comes later.

    MXNet's library looks for them in its own folder only, but takes those that are open already.
    What the loader finds by itself (LD_LIBRARY_PATH) goes first. Nothing happens without
    mxnet-cu112, or where MXNet was imported before.
    """
    found = None if "mxnet" in sys.modules else importlib.util.find_spec("nvidia")
    if found is None:
        return
    with contextlib.suppress(metadata.PackageNotFoundError):
        metadata.version("mxnet-cu112")
        os.environ.setdefault("CUDA_MODULE_LOADING", "LAZY")
        # Libraries behind those that they need.
        names = dict.fromkeys(("libcudart", "libcublas", "libcusparse", *reversed(list(PACKAGES))))
        for folder in found.submodule_search_locations or ():
            for name in names:
                for path in sorted(Path(folder).glob("*/lib/%s.so.*" % name)):
                    _open(path)


def _open(path: Path) -> None:
    for name in (path.name, str(path)):
        with contextlib.suppress(OSError):
            ctypes.CDLL(name, ctypes.RTLD_GLOBAL)
            return


#: cudaDevAttrMultiProcessorCount.
_MULTIPROCESSORS = 16
#: cudaDevAttrComputeCapabilityMajor and Minor.
_CAPABILITY = (75, 76)


def reported_facts(device_id: int) -> Dict[str, int]:
    """Facts of a GPU that the CUDA libraries of this process report."""
    facts: Dict[str, int] = {}
    count, size, handle = ctypes.c_int(), ctypes.c_size_t(), ctypes.c_void_p()
    with contextlib.suppress(OSError):
        runtime = ctypes.CDLL("libcudart.so.11.0")
        if not runtime.cudaDeviceGetAttribute(ctypes.byref(count), _MULTIPROCESSORS, device_id):
            facts["multiprocessors"] = count.value
        library = ctypes.CDLL("libcudnn.so.8")
        if not library.cudnnCreate(ctypes.byref(handle)):
            if not library.cudnnDropoutGetStatesSize(handle, ctypes.byref(size)):
                facts["dropout_state_bytes"] = size.value
            library.cudnnDestroy(handle)
    return facts


def reported_name(device_id: int) -> str:
    """A GPU's name, its compute capability and cuDNN's version, on which op times depend."""
    name, major, minor = ctypes.create_string_buffer(4096), ctypes.c_int(), ctypes.c_int()
    version = "unknown"
    with contextlib.suppress(OSError):
        runtime = ctypes.CDLL("libcudart.so.11.0")
        runtime.cudaGetDeviceProperties(name, device_id)  # its name comes first
        for number, attribute in zip((major, minor), _CAPABILITY):
            runtime.cudaDeviceGetAttribute(ctypes.byref(number), attribute, device_id)
        library = ctypes.CDLL("libcudnn.so.8")
        library.cudnnGetVersion.restype = ctypes.c_size_t
        version = str(library.cudnnGetVersion())
    return "%s (%d.%d, cuDNN %s)" % (name.value.decode(errors="replace") or "unknown GPU",
                                     major.value, minor.value, version)
