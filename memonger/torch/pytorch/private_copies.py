"""Copies of values to the host's memory and back, as operators of a graph that runs them.

On a GPU they are PyTorch's own (``ao::offload``, ``ao::reload``, ``ao::wait_tensor``, of PyTorch
2.13 and later): copies run on a stream of their own through pinned memory. A CPU has no second
memory: there values go to memory of NumPy's, which PyTorch's allocator does not count.
"""
from __future__ import annotations

from typing import Any

import numpy as np
import torch


def store(value: torch.Tensor) -> torch.Tensor:
    """Begin a copy on the host."""
    if value.device.type != "cpu":
        return _operators().offload.default(value)
    host = torch.from_numpy(np.empty(value.untyped_storage().nbytes(), np.uint8)) \
        .view(value.dtype).as_strided(value.shape, value.stride())
    return host.copy_(value)


def wait(host: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """The copy, ended; until then the device keeps the value."""
    return host if value.device.type == "cpu" else _operators().wait_tensor.default(host, value)


def fetch(host: torch.Tensor, like: str) -> torch.Tensor:
    """Begin a copy on the device ``like``."""
    device = torch.device(like)
    if device.type == "cpu":
        return torch.empty_strided(host.shape, host.stride(), dtype=host.dtype).copy_(host)
    return _operators().reload.default(host, device)


def arrived(value: torch.Tensor) -> torch.Tensor:
    """What was fetched, ended."""
    return value if value.device.type == "cpu" else _operators().wait_tensor.default(value)


def can_move(value: Any) -> bool:
    """Whether a value is one tensor that fills its memory."""
    return isinstance(value, torch.Tensor) and value.layout is torch.strided \
        and type(value.numel()) is int \
        and value.numel() * value.element_size() == value.untyped_storage().nbytes() \
        and list(torch.empty_like(value, device="meta").stride()) == list(value.stride())


def _operators() -> Any:
    import torch._functorch._activation_offloading.offload_ops  # defines them
    return torch.ops.ao


