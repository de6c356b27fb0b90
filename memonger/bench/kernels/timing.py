"""Times kernels on a GPU and compares with a copy of the same bytes and PyTorch's operators."""
from __future__ import annotations

import ctypes
import statistics
from dataclasses import dataclass
from functools import partial
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple

import numpy as np

from .cases import WRITE, Pooling, states
from .devices import Gpu
from .sources import BITS, blocks, constants, kernels

_WARM, _SETS = 5, 3
MEGABYTE = 1 << 20
#: Bytes of the largest array of a launch.
SIZES = (MEGABYTE, 64 * MEGABYTE, 1024 * MEGABYTE)


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
    torch_s: Optional[float] = None

    @property
    def share(self) -> float:
        """Of the copy's speed."""
        return self.moved_bytes / self.time_s / self.copy_bytes_per_s

    def behind(self, floor: float) -> bool:
        """Whether an element-wise kernel is too slow at a size that counts."""
        slow = self.share < floor or (self.torch_s is not None and self.time_s > self.torch_s)
        return slow and self.size_bytes >= SIZES[1] and "pool" not in self.kernel


class Clock:
    """Times of launches by CUDA events."""

    def __init__(self, gpu: Gpu, runs: int) -> None:
        self._gpu, self._runs = gpu, runs
        self._events = [ctypes.c_void_p(), ctypes.c_void_p()]
        for event in self._events:
            gpu.call("cuEventCreate", ctypes.byref(event), 0)

    def time_s(self, start: Callable[[int], None]) -> float:
        """Median time of ``start(i)``, after some runs that do not count."""
        gpu, times, found = self._gpu, [], ctypes.c_float()
        for i in range(_WARM + self._runs):
            gpu.call("cuEventRecord", self._events[0], None)
            start(i % _SETS)
            gpu.call("cuEventRecord", self._events[1], None)
            gpu.call("cuEventSynchronize", self._events[1])
            gpu.call("cuEventElapsedTime", ctypes.byref(found), *self._events)
            times.append(found.value / 1000)
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
    clock, torch = Clock(gpu, runs), torch_operators(runs)
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
                theirs = torch.get(name)
                yield Row(name, dtype, size, moved, time_s, copied,
                          theirs(size // item, dtype) if theirs else None)
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


def torch_operators(runs: int) -> Dict[str, Callable[[int, str], float]]:
    """PyTorch's time (s) for what a kernel does, by element count and dtype; {} without it."""
    try:
        import torch
    except ImportError:
        return {}
    if not torch.cuda.is_available():
        return {}
    functional, aten = torch.nn.functional, torch.ops.aten

    def timed(make: Callable[[Any, Any], Callable[[], Any]], image: bool = False
              ) -> Callable[[int, str], float]:
        def time_s(count: int, dtype: str) -> float:
            shape = (1, count // 3136, 56, 56) if image else (count,)
            x = torch.randn(shape, device="cuda", dtype=getattr(torch, dtype))
            run, times = make(x, torch.randn_like(x)), []
            for _ in range(_WARM + runs):
                first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
                first.record()
                run()
                last.record()
                last.synchronize()
                times.append(first.elapsed_time(last) / 1000)
            return statistics.median(times[_WARM:])
        return time_s

    def pool(window: int, stride: int, backward: bool) -> Callable[[int, str], float]:
        def make(x: Any, _: Any) -> Callable[[], Any]:
            sizes = [window] * 2, [stride] * 2, [(window - 1) // 2] * 2, [1, 1], False
            y, places = aten.max_pool2d_with_indices(x, *sizes)
            return partial(aten.max_pool2d_with_indices_backward, y, x, *sizes, places) \
                if backward else partial(aten.max_pool2d_with_indices, x, *sizes)
        return timed(make, image=True)

    found = {
        "relu_forward": timed(lambda x, g: lambda: torch.relu(x)),
        "leaky_relu_backward": timed(lambda x, g: lambda: aten.threshold_backward(g, x, 0)),
        "leaky_relu_forward": timed(lambda x, g: lambda: functional.leaky_relu(x, 0.25)),
        "clip_forward": timed(lambda x, g: lambda: functional.hardtanh(x, -0.5, 1.0)),
        "clip_backward": timed(lambda x, g: lambda: aten.hardtanh_backward(g, x, -0.5, 1.0)),
        "dropout_forward": timed(lambda x, g: lambda: aten.native_dropout(x, 0.3, True)),
        "dropout_backward": timed(lambda x, g: (lambda mask: lambda: aten.native_dropout_backward(
            g, mask, 1 / 0.7))(x > 0)),
        "gelu_forward": timed(lambda x, g: lambda: functional.gelu(x)),
        "gelu_backward": timed(lambda x, g: lambda: aten.gelu_backward(g, x)),
    }
    for label, window, stride in _POOLS:
        found["max_pool_forward " + label] = pool(window, stride, backward=False)
        found["max_pool_backward " + label] = pool(window, stride, backward=True)
    return found
