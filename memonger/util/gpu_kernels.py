"""NVRTC, as the native core finds it and calls it: machine code of GPU kernels."""
from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any, List

from .errors import PluginError
from .native_libraries import core

_MOST_BYTES = 1 << 24


def compiler() -> str:
    """Version and library of NVRTC, which ``MEMONGER_NVRTC`` may name.

    Raises PluginError where there is none.
    """
    return _answer("memonger_gpu_compiler", 1 << 14).decode()


def architectures() -> List[int]:
    """Those that NVRTC compiles for, such as 80 for sm_80."""
    return list(map(int, _answer("memonger_gpu_architectures", 1 << 14).split()))


def compiled(folder: Path, file: str, bits: int, architecture: int) -> bytes:
    """Machine code of a source, or PTX for a device newer than NVRTC.

    Raises PluginError if it compiles for newer devices only, or with its log.
    """
    return _answer("memonger_gpu_compile", _MOST_BYTES, str(folder).encode(), file.encode(),
                   ctypes.c_int32(bits), ctypes.c_int32(architecture))


def _answer(name: str, most_bytes: int, *arguments: Any) -> bytes:
    function = getattr(core(), name)
    function.restype = ctypes.c_int64
    buffer = ctypes.create_string_buffer(most_bytes)
    size = function(*arguments, buffer, ctypes.c_int64(most_bytes))
    if size < 0:
        raise PluginError(buffer.raw[:-size].decode(errors="replace"))
    return buffer.raw[:size]
