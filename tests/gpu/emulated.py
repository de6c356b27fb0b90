"""Kernels compiled for the CPU, as a device of ``benchmarks.kernels``."""
from __future__ import annotations

import ctypes
import tempfile
from pathlib import Path
from typing import Any, Dict, Tuple

import numpy as np

from benchmarks.kernels.devices import Device
from benchmarks.kernels.sources import Kernel, constants, source_folder
from gpu import emulate
from memonger.util.errors import PluginError


class Emulated(Device):
    """Runs threads one after the other.

    Parameters
    ----------
    backwards : bool
        Blocks, and threads between barriers, run last to first.
    first_block : int
        Blocks before this one are left out: the far end of arrays that no memory holds.

    Raises
    ------
    PluginError
        If there is no g++.
    """

    name = "emulated on the CPU"

    def __init__(self, backwards: bool = False, first_block: int = 0) -> None:
        self._backwards, self._first_block = backwards, first_block
        self._libraries: Dict[Tuple[str, int], ctypes.CDLL] = {}
        self._memory: Dict[int, np.ndarray] = {}

    def put(self, data: np.ndarray) -> int:
        size = data.nbytes
        memory = np.empty(size + 256, np.uint8)
        address = -(-memory.ctypes.data // 256) * 256
        first = address - memory.ctypes.data
        memory[first:first + size] = np.frombuffer(np.ascontiguousarray(data).tobytes(), np.uint8)
        self._memory[address] = memory
        return address

    def get(self, address: int, size_bytes: int) -> np.ndarray:
        memory = self._memory[address]
        first = address - memory.ctypes.data
        return memory[first:first + size_bytes].copy()

    def free(self, address: int) -> None:
        del self._memory[address]

    def _launch(self, kernel: Kernel, bits: int, blocks: int, pointers: Any) -> None:
        library = self._libraries.get((kernel.file, bits))
        if library is None:
            folder = source_folder()
            with tempfile.TemporaryDirectory() as temporary:
                target = Path(temporary) / "kernels.so"
                try:
                    emulate.compile_source(folder / kernel.file, folder, bits, target)
                except (OSError, RuntimeError) as error:
                    raise PluginError("cannot emulate kernels (is g++ there?): %s"
                                      % error) from error
                library = self._libraries[kernel.file, bits] = ctypes.CDLL(str(target))
        ctypes.c_int.in_dll(library, "emulation_backwards").value = self._backwards
        ctypes.c_uint.in_dll(library, "emulation_first_block").value = self._first_block
        getattr(library, "launch_" + kernel.name)(pointers, blocks, constants()["kThreads"], 0)
