"""NVRTC through ctypes, from wherever it is installed."""
from __future__ import annotations

import ctypes
import ctypes.util
import glob
import os
import sys
from pathlib import Path
from typing import List, Sequence, Tuple

from memonger.util.errors import PluginError

from .sources import HEADERS, source_folder


def places() -> List[str]:
    """Where a libnvrtc may be: MEMONGER_NVRTC, pip's packages, PyTorch's, a toolkit, the system."""
    found = [os.environ.get("MEMONGER_NVRTC", "")]
    for folder in sys.path:
        for inside in ("nvidia/*/lib", "torch/lib"):
            found += sorted(glob.glob(os.path.join(folder, inside, "libnvrtc[.-]*so*")))
    found += sorted(glob.glob("/usr/local/cuda*/lib64/libnvrtc.so*"))
    found.append(ctypes.util.find_library("nvrtc") or "")
    return [place for place in found if place and "builtins" not in place]


class Nvrtc:
    """A compiler for our kernels.

    Raises PluginError if no library is found.
    """

    def __init__(self) -> None:
        self._library = self._find()
        major, minor = ctypes.c_int(), ctypes.c_int()
        self._library.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor))
        self.version = "NVRTC %d.%d" % (major.value, minor.value)

    @staticmethod
    def _find() -> ctypes.CDLL:
        for place in places():
            try:
                for beside in glob.glob(str(Path(place).parent / "libnvrtc-builtins.so*")):
                    ctypes.CDLL(beside, mode=ctypes.RTLD_GLOBAL)
                return ctypes.CDLL(place)
            except OSError:
                continue
        raise PluginError("no NVRTC; pip install nvidia-cuda-nvrtc-cu11, or set MEMONGER_NVRTC to "
                          "the path of a libnvrtc.so")

    def architectures(self) -> Sequence[int]:
        """Those that it compiles for, such as 80 for sm_80."""
        count = ctypes.c_int()
        self._library.nvrtcGetNumSupportedArchs(ctypes.byref(count))
        found = (ctypes.c_int * count.value)()
        self._library.nvrtcGetSupportedArchs(found)
        return list(found)

    def compile(self, file: str, bits: int, architecture: int) -> bytes:
        """Machine code of a source, or PTX for a device newer than the compiler.

        Raises PluginError if it compiles for newer devices only, or with the compiler's log.
        """
        best = max((a for a in self.architectures() if a <= architecture), default=0)
        if not best:
            raise PluginError("%s does not compile for this device, sm_%d"
                              % (self.version, architecture))
        folder = source_folder()
        program, size = ctypes.c_void_p(), ctypes.c_size_t()
        self._library.nvrtcCreateProgram(
            ctypes.byref(program), (folder / file).read_bytes(), file.encode(), len(HEADERS),
            _strings([(folder / name).read_bytes() for name in HEADERS]),
            _strings([name.encode() for name in HEADERS]))
        options = [b"--gpu-architecture=%s_%d" % (b"sm" if best == architecture else b"compute",
                                                  best),
                   b"-DREAL_BITS=%d" % bits, b"--std=c++14", b"--fmad=false"]
        failed = self._library.nvrtcCompileProgram(program, len(options), _strings(options))
        kind = "PTX" if best != architecture else "CUBIN"
        names: Tuple[str, str] = ("nvrtcGetProgramLogSize", "nvrtcGetProgramLog") if failed else \
            ("nvrtcGet%sSize" % kind, "nvrtcGet%s" % kind)
        getattr(self._library, names[0])(program, ctypes.byref(size))
        text = ctypes.create_string_buffer(size.value)
        getattr(self._library, names[1])(program, text)
        self._library.nvrtcDestroyProgram(ctypes.byref(program))
        if failed:
            raise PluginError("%s does not compile with %s for sm_%d:\n%s"
                              % (file, self.version, architecture,
                                 text.value.decode(errors="replace")))
        return text.raw


def _strings(texts: Sequence[bytes]) -> ctypes.Array:
    return (ctypes.c_char_p * len(texts))(*texts)
