"""NVRTC and the CUDA driver through ctypes: compile our kernels, launch them."""
from __future__ import annotations

import ctypes
import ctypes.util
import glob
import os
import site
import sys
from pathlib import Path
from typing import Any, Dict, List, Optional, Sequence

import numpy as np

SOURCES = Path(__file__).resolve().parents[2] / "plugins" / "ops" / "cuda"
TYPES = {"float16": 16, "float32": 32, "float64": 64}


def find_nvrtc() -> Optional[ctypes.CDLL]:
    """libnvrtc from MEMONGER_NVRTC, NVIDIA's wheels, a toolkit, or the system; None without."""
    for place in places():
        try:
            return ctypes.CDLL(place)
        except OSError:
            continue
    return None


def places() -> List[str]:
    """Where a libnvrtc may be."""
    found = [os.environ.get("MEMONGER_NVRTC", "")]
    for folder in site.getsitepackages() + sys.path:
        found += sorted(glob.glob(os.path.join(folder, "nvidia", "cuda_nvrtc", "lib",
                                                "libnvrtc.so.*")))
    found += sorted(glob.glob("/usr/local/cuda*/lib64/libnvrtc.so"))
    found.append(ctypes.util.find_library("nvrtc") or "")
    return [place for place in found if place]


def architectures(nvrtc: ctypes.CDLL) -> Sequence[int]:
    """Those of sm_50 to sm_90 that this NVRTC compiles for."""
    count = ctypes.c_int()
    assert nvrtc.nvrtcGetNumSupportedArchs(ctypes.byref(count)) == 0
    found = (ctypes.c_int * count.value)()
    assert nvrtc.nvrtcGetSupportedArchs(found) == 0
    return [arch for arch in found if 50 <= arch <= 90]


def compile_kernels(nvrtc: ctypes.CDLL, source: Path, bits: int, architecture: int) -> bytes:
    """Machine code; an AssertionError carries the compiler's log."""
    program = ctypes.c_void_p()
    header = (ctypes.c_char_p * 1)((SOURCES / "real.cuh").read_bytes())
    assert nvrtc.nvrtcCreateProgram(ctypes.byref(program), source.read_bytes(),
                                    source.name.encode(), 1, header,
                                    (ctypes.c_char_p * 1)(b"real.cuh")) == 0
    options = [b"--gpu-architecture=sm_%d" % architecture, b"-DREAL_BITS=%d" % bits,
               b"--std=c++14", b"--fmad=false"]
    result = nvrtc.nvrtcCompileProgram(program, len(options),
                                       (ctypes.c_char_p * len(options))(*options))
    size = ctypes.c_size_t()
    nvrtc.nvrtcGetProgramLogSize(program, ctypes.byref(size))
    log = ctypes.create_string_buffer(size.value)
    nvrtc.nvrtcGetProgramLog(program, log)
    assert result == 0, log.value.decode()
    assert nvrtc.nvrtcGetCUBINSize(program, ctypes.byref(size)) == 0
    code = ctypes.create_string_buffer(size.value)
    assert nvrtc.nvrtcGetCUBIN(program, code) == 0
    nvrtc.nvrtcDestroyProgram(ctypes.byref(program))
    return code.raw


class Device:
    """The first GPU: memory, modules, launches."""

    def __init__(self, driver: str = "libcuda.so.1", nvrtc: Optional[ctypes.CDLL] = None) -> None:
        self.cuda = ctypes.CDLL(driver)
        self.nvrtc = nvrtc or find_nvrtc()
        assert self.nvrtc is not None, "no NVRTC"
        self.check(self.cuda.cuInit(0))
        device = ctypes.c_int()
        self.check(self.cuda.cuDeviceGet(ctypes.byref(device), 0))
        major, minor = ctypes.c_int(), ctypes.c_int()
        self.check(self.cuda.cuDeviceGetAttribute(ctypes.byref(major), 75, device))
        self.check(self.cuda.cuDeviceGetAttribute(ctypes.byref(minor), 76, device))
        self.architecture = major.value * 10 + minor.value
        self.context = ctypes.c_void_p()
        self.check(self.cuda.cuDevicePrimaryCtxRetain(ctypes.byref(self.context), device))
        self.check(self.cuda.cuCtxSetCurrent(self.context))
        self.modules: Dict[Any, ctypes.c_void_p] = {}

    @staticmethod
    def check(code: int) -> None:
        assert code == 0, "CUDA driver error %d" % code

    def kernel(self, file: str, name: str, bits: int) -> ctypes.c_void_p:
        if (file, bits) not in self.modules:
            code = compile_kernels(self.nvrtc, SOURCES / file, bits, self.architecture)
            module = ctypes.c_void_p()
            self.check(self.cuda.cuModuleLoadData(ctypes.byref(module), code))
            self.modules[file, bits] = module
        function = ctypes.c_void_p()
        self.check(self.cuda.cuModuleGetFunction(ctypes.byref(function),
                                                 self.modules[file, bits], name.encode()))
        return function

    def put(self, array: np.ndarray) -> ctypes.c_uint64:
        pointer = ctypes.c_uint64()
        array = np.ascontiguousarray(array)
        self.check(self.cuda.cuMemAlloc_v2(ctypes.byref(pointer),
                                           ctypes.c_size_t(max(array.nbytes, 16))))
        self.check(self.cuda.cuMemcpyHtoD_v2(pointer, array.ctypes.data_as(ctypes.c_void_p),
                                             ctypes.c_size_t(array.nbytes)))
        return pointer

    def get(self, pointer: ctypes.c_uint64, shape: Sequence[int], dtype: str) -> np.ndarray:
        array = np.empty(shape, dtype)
        self.check(self.cuda.cuCtxSynchronize())
        self.check(self.cuda.cuMemcpyDtoH_v2(array.ctypes.data_as(ctypes.c_void_p), pointer,
                                             ctypes.c_size_t(array.nbytes)))
        return array

    def launch(self, function: ctypes.c_void_p, blocks: int, threads: int, *arguments: Any,
               shared_bytes: int = 0) -> None:
        pointers = (ctypes.c_void_p * len(arguments))(
            *(ctypes.cast(ctypes.byref(a), ctypes.c_void_p) for a in arguments))
        self.check(self.cuda.cuLaunchKernel(function, blocks, 1, 1, threads, 1, 1, shared_bytes,
                                            None, pointers, None))
