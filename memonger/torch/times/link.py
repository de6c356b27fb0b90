"""How fast values are copied between a device and the host."""
from __future__ import annotations

import functools
from typing import Optional

import torch
from torch.utils.benchmark import Timer

#: Of PCIe 4.0 x16 with pinned memory, one way, measured: where there is no device to measure.
USUAL_BYTES_PER_S = 25e9
#: Copied to measure: large enough that starting a copy takes no noticeable part of it.
_COPY_BYTES = 64 << 20
#: How often each way.
_RUNS = 5


def link_bytes_per_s(device: Optional[torch.device]) -> float:
    """Speed of a copy one way: the slower one of a GPU's, measured once; else the usual one."""
    if device is not None and device.type == "cuda":
        return measured_bytes_per_s(device)
    return USUAL_BYTES_PER_S


@functools.lru_cache(maxsize=None)
def measured_bytes_per_s(device: torch.device) -> float:
    """Speed of a copy between a device and the host, whose memory is pinned: the slower way."""
    here = torch.empty(_COPY_BYTES, dtype=torch.uint8, pin_memory=device.type != "cpu")
    there = torch.empty_like(here, device=device)
    copies = (Timer("to.copy_(source)", globals={"to": to, "source": source})
              for to, source in ((there, here), (here, there)))
    # The first run may still wait for memory.
    return _COPY_BYTES / max((copy.timeit(1), copy.timeit(_RUNS).mean)[1] for copy in copies)
