"""The far end of arrays that have more elements than 32 bits count, without the memory for them."""
from __future__ import annotations

import ctypes
import mmap
from typing import Any, Dict, Sequence

import numpy as np

from memonger.bench.kernels import devices, sources

#: Elements before those that are there.
BEFORE = 2 ** 32 + 2 ** 20
_FRONT = 2 * BEFORE + 2 ** 30  # bytes, of float16
_STATE = 64  # bytes of a random state


class FarEnd(devices.Emulated):
    """Kernels get pointers to the beginning of arrays whose end alone is what was put.

    Pages in front of it take no memory until somebody errs. Blocks for them are left out.
    """

    def put(self, data: np.ndarray) -> int:
        pages = mmap.mmap(-1, _FRONT + data.nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
                          | 0x4000)  # MAP_NORESERVE, which mmap does not name
        whole = np.frombuffer(pages, np.uint8)
        whole[_FRONT:] = data.view(np.uint8)
        address = whole.ctypes.data + _FRONT
        self._memory[address] = whole
        return address

    def get(self, address: int, size_bytes: int) -> np.ndarray:
        return self._memory[address][_FRONT:_FRONT + size_bytes].copy()

    def launch(self, kernel: sources.Kernel, bits: int, blocks: int,
               arguments: Sequence[Any]) -> None:
        assert bits == 16
        given = dict(zip((name for name, _ in kernel.parameters), arguments))
        moved = _pooling(given) if "s" in given else _elements(given)
        self._first_block = moved.pop("blocks")
        flag = {"dropout_forward": b"\1", "dropout_pass": b"\0"}.get(kernel.name)
        if flag:  # the first block would write it
            ctypes.memmove(given["mask"], flag, 1)
        elif kernel.name == "dropout_backward":
            ctypes.memmove(given["mask"] - moved["mask"], given["mask"], 1)
        super().launch(kernel, bits, blocks + self._first_block, [
            value + moved[name] if name in ("count", "rows", "lines")
            else value - moved[name] if name in moved else value for name, value in given.items()])


def _elements(given: Dict[str, Any]) -> Dict[str, int]:
    """Bytes that arrays move, elements and blocks that are more, of element-wise kernels."""
    of_block = sources.constants()["kThreads"] * sources.constants()["kElements"]
    if "states" in given:
        of_block = sources.constants()["kStatesOfBlock"] * given["step"]
    blocks = -(-BEFORE // of_block)
    count = blocks * of_block
    return {"blocks": blocks, "count": count, "mask": count // 8, "bytes": count,
            "states": blocks * sources.constants()["kStatesOfBlock"] * _STATE,
            **dict.fromkeys(("x", "y", "dx", "dy"), 2 * count)}


def _pooling(given: Dict[str, Any]) -> Dict[str, int]:
    """The same of poolings, whose rows are more."""
    s, row_size = given["s"], given["row_size"]
    inputs = int(np.prod(list(s.size))) * s.channels.by
    threads = sources.constants()["kThreads"]
    rows = -(-BEFORE // inputs // threads) * threads
    lines = rows * s.size[0] * s.size[1]
    items = (row_size + 1) // 2 if s.paired else row_size
    forward = "x" in given
    return {"blocks": (rows * s.groups.by if forward else lines * s.segments.by) // threads,
            "rows": rows, "lines": lines, "kept": rows * items * (4 if s.words else 1),
            **dict.fromkeys(("x", "dx"), 2 * rows * inputs),
            **dict.fromkeys(("y", "dy"), 2 * rows * row_size)}
