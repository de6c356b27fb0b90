"""Copies of values to the host's memory and back, as operators of a graph that runs them.

On a GPU PyTorch's own make the copies (``ao::offload``, ``ao::reload``, ``ao::wait_tensor``, of
PyTorch 2.13 and later), on a stream of their own through pinned memory. A CPU has no second memory:
there values go to memory of NumPy's, which PyTorch's allocator does not count.

On the host a value has one dimension. So Inductor, which may lay values otherwise than they were
traced, has nothing to arrange there: kernels of the host would not wait for the copy.
"""
from __future__ import annotations

from typing import Any, Sequence

import numpy as np
import torch

_library = torch.library.Library("memonger", "FRAGMENT")
for schema in ("store(Tensor value, int[] strides) -> Tensor",
               "wait(Tensor(a) host, Tensor value) -> Tensor(a)",
               "fetch(Tensor host, int[] sizes, int[] strides, Device device) -> Tensor",
               "arrived(Tensor(a) value) -> Tensor(a)"):
    _library.define(schema, tags=(torch.Tag.flexible_layout,))


def store(value: torch.Tensor, strides: Sequence[int]) -> torch.Tensor:
    """Begin a copy on the host, where the elements are in the order that the strides give."""
    order = sorted(range(value.dim()), key=strides.__getitem__, reverse=True)
    laid = value.permute(order)
    if value.device.type != "cpu":
        return _operators().offload.default(laid).view(-1)
    host = torch.from_numpy(np.empty(laid.numel() * laid.element_size(), np.uint8))
    host.view(laid.dtype).view(laid.shape).copy_(laid)
    return host.view(laid.dtype)


def wait(host: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """The copy, ended; until then the device keeps the value."""
    return host if value.device.type == "cpu" else \
        _operators().wait_tensor.default(host, None, value)


def fetch(host: torch.Tensor, sizes: Sequence[int], strides: Sequence[int],
          device: torch.device) -> torch.Tensor:
    """Begin a copy on the device."""
    laid = host.as_strided(sizes, strides)
    return torch.empty_like(laid).copy_(laid) if device.type == "cpu" else \
        _operators().reload.default(laid, device)


def arrived(value: torch.Tensor) -> torch.Tensor:
    """What was fetched, ended."""
    return value if value.device.type == "cpu" else _operators().wait_tensor.default(value)


def _host_of(value: torch.Tensor, strides: Sequence[int]) -> torch.Tensor:
    return value.new_empty(value.numel(), device="cpu")


def _fetched(host: torch.Tensor, sizes: Sequence[int], strides: Sequence[int],
             device: torch.device) -> torch.Tensor:
    return torch.empty_strided(sizes, strides, dtype=host.dtype, device=device)


#: Each operator, and what it makes of fake tensors.
for function, shown in ((store, _host_of), (wait, lambda host, value: host), (fetch, _fetched),
                        (arrived, lambda value: value)):
    _library.impl(function.__name__, function, "CompositeExplicitAutograd")
    torch.library.register_fake("memonger::" + function.__name__, shown, lib=_library)


def can_move(value: Any) -> bool:
    """Whether a value is one tensor that fills its memory."""
    return isinstance(value, torch.Tensor) and value.layout is torch.strided \
        and type(value.numel()) is int \
        and value.numel() * value.element_size() == value.untyped_storage().nbytes() \
        and torch.empty_like(value, device="meta").stride() == value.stride()


def _operators() -> Any:
    import torch._functorch._activation_offloading.offload_ops  # defines them
    return torch.ops.ao
