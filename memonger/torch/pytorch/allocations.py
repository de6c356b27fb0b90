"""What PyTorch's allocators hand out while something runs."""
from __future__ import annotations

import contextlib
import gc
from typing import Any, Callable, Iterator, List, Tuple

import torch

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
    """Nanoseconds of the clock and bytes of what CPU's allocator hands out and, below 0, gets back.

    The list is filled when the block is over.
    """
    from torch.profiler import ProfilerActivity, profile
    events: List[Tuple[int, int]] = []
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as record:
        yield events
    events += sorted(((event.start_ns(), event.nbytes())
                      for event in record.profiler.kineto_results.events()
                      if event.name() == "[memory]"), key=lambda event: event[0])
