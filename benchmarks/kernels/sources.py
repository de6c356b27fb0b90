"""The kernels' sources, and what ``layout.cuh`` and their signatures say about launching them."""
from __future__ import annotations

import ctypes
import re
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Dict, List, Tuple

from memonger.util.errors import PluginMissing
from memonger.util.native_libraries import folder

#: Headers that every source may include.
HEADERS = ("real.cuh", "layout.cuh")
#: Number types by the ``REAL_BITS`` that a source is compiled with.
BITS = {"float16": 16, "float32": 32, "float64": 64}
_SCALARS: Dict[str, Any] = {"int": ctypes.c_int, "unsigned": ctypes.c_uint,
                            "float": ctypes.c_float, "Index": ctypes.c_longlong}
_KERNEL = re.compile(r'extern\s+"C"\s+__global__\s+void\s+(\w+)\s*\(([^)]*)\)')


@dataclass(frozen=True)
class Kernel:
    """One kernel: its file in ``cuda/``, and name and type of each parameter."""

    file: str
    name: str
    parameters: Tuple[Tuple[str, Any], ...]


def source_folder() -> Path:
    """The checkout's sources, else those beside the plugin.

    Raises PluginMissing if there are none.
    """
    for place in (Path(__file__).parents[2] / "plugins" / "ops" / "cuda", folder() / "cuda"):
        if (place / HEADERS[1]).is_file():
            return place
    raise PluginMissing("no kernel sources in %s; reinstall memonger, or run in a checkout" % place)


def _layout() -> str:
    """The text of ``layout.cuh`` without comments."""
    text = (source_folder() / "layout.cuh").read_text()
    return re.sub(r"//[^\n]*|/\*.*?\*/", "", text, flags=re.DOTALL)


@lru_cache(maxsize=None)
def constants() -> Dict[str, int]:
    """Launch shapes: ``kThreads``, ``kElements``, ..."""
    return {name: int(value) for name, value in re.findall(r"\b(k[A-Z]\w*)\s*=\s*(\d+)", _layout())}


@lru_cache(maxsize=None)
def structs() -> Dict[str, Any]:
    """A ctypes structure for each struct that is an argument."""
    found: Dict[str, Any] = {}
    for name, body in re.findall(r"struct\s+(\w+)\s*\{(.*?)\}\s*;", _layout(), re.DOTALL):
        fields: List[Tuple[str, Any]] = []
        for kind, declared in re.findall(r"(\w+)\s+([^;]+);", body):
            base = found.get(kind) or _SCALARS[kind]
            for field, count in re.findall(r"(\w+)\s*(?:\[(\d+)\])?\s*(?:,|$)", declared):
                fields.append((field, base * int(count) if count else base))
        found[name] = type(name, (ctypes.Structure,), {"_fields_": fields})
    return found


@lru_cache(maxsize=None)
def kernels() -> Dict[str, Kernel]:
    """Every kernel by name."""
    types = {**_SCALARS, **structs()}
    found = {}
    for path in sorted(source_folder().glob("*.cu")):
        for name, text in _KERNEL.findall(path.read_text()):
            parameters = []
            for parameter in " ".join(text.split()).split(", "):
                kind, _, called = parameter.rpartition(" ")
                parameters.append((called, ctypes.c_void_p if "*" in kind else types[kind]))
            found[name] = Kernel(path.name, name, tuple(parameters))
    return found


def blocks(things: int, of_thread: int) -> int:
    """As ``gpu::Blocks`` of ``plugins/ops/gpu/launch.h``."""
    return -(-things // (of_thread * constants()["kThreads"]))


def divider(by: int) -> Any:
    """As ``DividerOf`` of ``plugins/ops/gpu/max_pool.cc``."""
    make = structs()["Divider"]
    bits = (by - 1).bit_length()
    return make(by, (1 << (31 + bits)) // by + 1, bits - 1) if by > 1 else make(1, 0, 0)
