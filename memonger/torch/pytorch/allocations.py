"""What PyTorch's allocators hand out while something runs."""
from __future__ import annotations

import contextlib
import gc
from typing import Any, Callable, Iterator, List, Tuple

import torch

from . import private_ops

#: What CUDA's caching allocator rounds sizes up to.
CUDA_GRANULE_BYTES = 512


def device_name(device: torch.device) -> str:
    """"cpu", or the name of a GPU."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"


def peak_bytes(step: Callable[[], Any], device: torch.device) -> int:
    """The most that ``step`` allocates beside what exists, by the allocator's own events."""
    gc.collect()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        before = torch.cuda.memory_allocated(device)
        torch.cuda.reset_peak_memory_stats(device)
        step()
        torch.cuda.synchronize(device)
        return torch.cuda.max_memory_allocated(device) - before
    with allocations() as events:
        step()
    now = most = 0
    for _, size in events:
        now += size
        most = max(most, now)
    return most


@contextlib.contextmanager
def allocations() -> Iterator[List[Tuple[int, int]]]:
    """Nanoseconds of the clock and bytes of what allocators hand out and, below 0, get back.

    The list is filled when the block is over.
    """
    events: List[Tuple[int, int]] = []
    with private_ops.memory_events() as found:
        yield events
    events += sorted(found, key=lambda event: event[0])


class Window:
    """What is allocated between two moments, by the allocator's events.

    What the window opens with is held until it is over, so that what goes is of the window.
    """

    def __init__(self) -> None:
        self._opened = contextlib.ExitStack()
        self._events: List[Tuple[int, int]] = []
        self._held: Any = None

    def begin(self, held: Any = None) -> None:
        """Open it, unless something else is profiled."""
        self._events, self._held = [], held
        if not private_ops.is_profiled():
            self._events = self._opened.enter_context(allocations())

    def end(self) -> None:
        """Close it, where it is open."""
        self._opened.close()
        self._held = None

    def taken(self) -> Tuple[int, int, int]:
        """Bytes left at the end of the last window, the most at a time, and for one tensor."""
        now = most = largest = 0
        for _, size in self._events:
            now = max(0, now + size)
            most, largest = max(most, now), max(largest, size)
        self._events = []
        return now, most, largest
