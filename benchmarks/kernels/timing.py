"""Times kernels on a GPU and compares with a copy of the same bytes."""
from __future__ import annotations

import ctypes
import statistics
from dataclasses import dataclass
from functools import partial
from typing import Any, Callable, Dict, Iterator, List, Tuple

import numpy as np

from .cases import WRITE, Pooling, states
from .devices import Gpu
from .sources import BITS, blocks, constants, kernels

_WARM, _SETS = 5, 3
#: Launches between two events, so that the device does not wait for the host between them.
_QUEUED = 6
MEGABYTE = 1 << 20
#: Bytes of the largest array of a launch.
SIZES = (MEGABYTE, 64 * MEGABYTE, 1024 * MEGABYTE)
#: The share of a copy's speed that is enough.
FLOOR = 0.85


@dataclass(frozen=True)
class Row:
    """One measurement; ``moved_bytes`` is what must be read and written."""

    kernel: str
    dtype: str
    size_bytes: int
    moved_bytes: int
    time_s: float
    #: Bytes per second of a copy device to device of this size.
    copy_bytes_per_s: float

    @property
    def share(self) -> float:
        """Of the copy's speed."""
        return self.moved_bytes / self.time_s / self.copy_bytes_per_s

    @property
    def slow(self) -> bool:
        """Whether an element-wise kernel is too slow at a size that counts."""
        return self.share < FLOOR and self.size_bytes >= SIZES[1] and "pool" not in self.kernel


class Clock:
    """Times of launches by CUDA events."""

    def __init__(self, gpu: Gpu, runs: int) -> None:
        self._gpu, self._runs = gpu, runs
        self._events = [ctypes.c_void_p(), ctypes.c_void_p()]
        for event in self._events:
            gpu.call("cuEventCreate", ctypes.byref(event), 0)

    def time_s(self, start: Callable[[int], None]) -> float:
        """Median time of a ``start(i)`` among queued ones, after some runs that do not count."""
        gpu, times, elapsed_ms = self._gpu, [], ctypes.c_float()
        for _ in range(_WARM + self._runs):
            gpu.call("cuEventRecord", self._events[0], None)
            for i in range(_QUEUED):
                start(i % _SETS)
            gpu.call("cuEventRecord", self._events[1], None)
            gpu.call("cuEventSynchronize", self._events[1])
            gpu.call("cuEventElapsedTime", ctypes.byref(elapsed_ms), *self._events)
            times.append(elapsed_ms.value / 1000 / _QUEUED)
        return statistics.median(times[_WARM:])


#: Of each pooling: name, window and stride.
_POOLS = (("2x2/2", 2, 2), ("3x3/2", 3, 2))
_SCALARS = {"slope": 0.25, "dropped_factor": 0.0, "low": -0.5, "high": 1.0, "keep": 0.7,
            "kept_factor": 1 / 0.7, "request": WRITE}


def _launches(count: int, item: int) -> Iterator[Tuple[str, str, int, int, Dict[str, Any]]]:
    """Name, kernel, blocks, bytes to move and arguments of each kernel over ``count`` elements."""
    elements, mask = blocks(count, constants()["kElements"]), count // 8
    for name in ("relu_forward", "leaky_relu_forward", "clip_forward", "leaky_relu_backward",
                 "clip_backward", "dropout_backward", "dropout_pass"):
        bits = 0 if name == "dropout_pass" else mask
        yield name, name, elements, 2 * count * item + bits, {"count": count}
    used = min(-(-count // 64), 32768)
    yield ("dropout_forward", "dropout_forward", -(-used // constants()["kStatesOfBlock"]),
           2 * count * item + mask, {"count": count, "step": -(-count // used)})
    yield ("gelu_forward", "gelu_forward", elements, count * (2 * item + 1), {"count": count})
    yield ("gelu_backward", "gelu_backward", elements, count * (3 * item + 1), {"count": count})
    for label, window, stride in _POOLS:
        pooling = Pooling(count // (56 * 56), (1, 56, 56), (1, window, window),
                          (1, stride, stride), (0, (window - 1) // 2, (window - 1) // 2))
        if pooling.rows == 0:
            continue
        struct, outputs = pooling.struct(), pooling.rows * pooling.row_size
        moved = pooling.rows * 56 * 56 * item + outputs * item + outputs // 2
        common = {"row_size": pooling.row_size, "s": struct}
        yield ("max_pool_forward " + label, "max_pool_forward",
               blocks(pooling.rows * struct.groups.by, 1), moved, {**common, "rows": pooling.rows})
        yield ("max_pool_backward " + label, "max_pool_backward",
               blocks(pooling.rows * 56 * struct.segments.by, 1), moved,
               {**common, "lines": pooling.rows * 56})


def rows(gpu: Gpu, runs: int, sizes: Tuple[int, ...] = SIZES) -> Iterator[Row]:
    """Every kernel at every size, as they are measured; what does not fit is left out."""
    clock = Clock(gpu, runs)
    for size in sizes:
        if 4 * _SETS * size > 0.8 * gpu.memory_bytes:
            continue
        memory = [[gpu.allocate(size + 256) for _ in range(4)] for _ in range(_SETS)]
        seeds = [gpu.put(states(32768, 1, 0).view(np.uint8)) for _ in range(_SETS)]
        for own in memory:
            for address in own:
                gpu.call("cuMemsetD8_v2", ctypes.c_uint64(address), 0x2B, ctypes.c_size_t(size))

        copied = 2 * size / clock.time_s(partial(_copy, gpu, memory, size))
        yield Row("copy", "", size, 2 * size, 2 * size / copied, copied)
        for dtype in ("float32", "float16"):
            item = BITS[dtype] // 8
            for name, kernel, grid, moved, arguments in _launches(size // item, item):
                calls = [_arguments(kernel, arguments, own, seed)
                         for own, seed in zip(memory, seeds)]
                time_s = clock.time_s(partial(_start, gpu, kernel, 8 * item, grid, calls))
                yield Row(name, dtype, size, moved, time_s, copied)
        for address in [*seeds, *(address for own in memory for address in own)]:
            gpu.free(address)


def _copy(gpu: Gpu, memory: List[List[int]], size: int, i: int) -> None:
    gpu.call("cuMemcpyDtoDAsync_v2", ctypes.c_uint64(memory[i][1]),
             ctypes.c_uint64(memory[i][0]), ctypes.c_size_t(size), None)


def _start(gpu: Gpu, kernel: str, bits: int, grid: int, calls: List[List[Any]], i: int) -> None:
    gpu.launch(kernels()[kernel], bits, grid, calls[i])


def _arguments(kernel: str, known: Dict[str, Any], memory: List[int], seed: int) -> List[Any]:
    free = list(memory)
    values: List[Any] = []
    for name, kind in kernels()[kernel].parameters:
        if kind is ctypes.c_void_p:
            values.append(seed if name == "states" else free.pop(0))
        else:
            values.append(known[name] if name in known else _SCALARS[name])
    return values
