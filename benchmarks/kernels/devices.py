"""Where kernels run: a GPU through its driver (tests have the CPU, too)."""
from __future__ import annotations

import ctypes
from typing import Any, Dict, Sequence, Tuple

import numpy as np

from memonger.util import gpu_kernels
from memonger.util.errors import PluginError

from . import nvrtc
from .sources import Kernel, constants, source_folder

_MAJOR, _MINOR = 75, 76  # attributes of a device: its compute capability


class Device:
    """Memory, and launches with the argument types of a kernel."""

    #: One line: what it is.
    name = ""

    def put(self, data: np.ndarray) -> int:
        """A copy in device memory, aligned to 256 bytes; its address."""
        raise NotImplementedError

    def get(self, address: int, size_bytes: int) -> np.ndarray:
        """Bytes of device memory, when all launches are done."""
        raise NotImplementedError

    def free(self, address: int) -> None:
        raise NotImplementedError

    def launch(self, kernel: Kernel, bits: int, blocks: int, arguments: Sequence[Any]) -> None:
        """Start a kernel; pointers are addresses."""
        values = [value if isinstance(value, ctypes.Structure) else kind(value)
                  for (_, kind), value in zip(kernel.parameters, arguments)]
        assert len(values) == len(kernel.parameters) == len(arguments), kernel.name
        self._launch(kernel, bits, blocks, (ctypes.c_void_p * len(values))(
            *(ctypes.cast(ctypes.byref(value), ctypes.c_void_p) for value in values)))

    def _launch(self, kernel: Kernel, bits: int, blocks: int, pointers: Any) -> None:
        raise NotImplementedError


class Gpu(Device):
    """The first GPU of this machine.

    Raises PluginError if there is no driver, no device or no compiler.
    """

    def __init__(self) -> None:
        try:
            self.cuda = ctypes.CDLL("libcuda.so.1")
        except OSError as error:
            raise PluginError("no CUDA driver: %s" % error) from error
        self.call("cuInit", 0)
        device, version, size = ctypes.c_int(), ctypes.c_int(), ctypes.c_size_t()
        major, minor = ctypes.c_int(), ctypes.c_int()
        self.call("cuDeviceGet", ctypes.byref(device), 0)
        for value, attribute in ((major, _MAJOR), (minor, _MINOR)):
            self.call("cuDeviceGetAttribute", ctypes.byref(value), attribute, device)
        self.architecture = 10 * major.value + minor.value
        text = ctypes.create_string_buffer(200)
        self.call("cuDeviceGetName", text, len(text), device)
        self.call("cuDriverGetVersion", ctypes.byref(version))
        self.call("cuDeviceTotalMem_v2", ctypes.byref(size), device)
        self.memory_bytes = size.value
        context = ctypes.c_void_p()
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self.call("cuCtxSetCurrent", context)
        nvrtc.choose()
        self._functions: Dict[Tuple[str, int], ctypes.c_void_p] = {}
        self.name = "%s (sm_%d), driver for CUDA %d.%d, %s" % (
            text.value.decode(), self.architecture, version.value // 1000,
            version.value % 1000 // 10, gpu_kernels.compiler())

    def call(self, function: str, *arguments: Any) -> None:
        """Call the driver; PluginError if it fails."""
        code = getattr(self.cuda, function)(*arguments)
        if code:
            raise PluginError("%s: CUDA driver error %d" % (function, code))

    def allocate(self, size_bytes: int) -> int:
        """Memory with nothing in it."""
        address = ctypes.c_uint64()
        self.call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(max(size_bytes, 1)))
        return address.value

    def put(self, data: np.ndarray) -> int:
        data = np.ascontiguousarray(data)
        address = self.allocate(data.nbytes)
        self.call("cuMemcpyHtoD_v2", ctypes.c_uint64(address),
                  data.ctypes.data_as(ctypes.c_void_p), ctypes.c_size_t(data.nbytes))
        return address

    def get(self, address: int, size_bytes: int) -> np.ndarray:
        data = np.empty(size_bytes, np.uint8)
        self.call("cuCtxSynchronize")
        self.call("cuMemcpyDtoH_v2", data.ctypes.data_as(ctypes.c_void_p),
                  ctypes.c_uint64(address), ctypes.c_size_t(size_bytes))
        return data

    def free(self, address: int) -> None:
        self.call("cuMemFree_v2", ctypes.c_uint64(address))

    def _launch(self, kernel: Kernel, bits: int, blocks: int, pointers: Any) -> None:
        if (kernel.name, bits) not in self._functions:
            module, found = ctypes.c_void_p(), ctypes.c_void_p()
            code = gpu_kernels.compiled(source_folder(), kernel.file, bits, self.architecture)
            self.call("cuModuleLoadData", ctypes.byref(module), code)
            self.call("cuModuleGetFunction", ctypes.byref(found), module, kernel.name.encode())
            self._functions[kernel.name, bits] = found
        self.call("cuLaunchKernel", self._functions[kernel.name, bits], blocks, 1, 1,
                  constants()["kThreads"], 1, 1, 0, None, pointers, None)
