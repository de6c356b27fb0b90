"""Rows that Inductor makes longer on a GPU, so that they begin at aligned addresses.

A matrix product whose sizes are not aligned runs on padded operands. Where such an operand is a
kernel's result, its rows have room for the padding, which is filled in place.
"""
from __future__ import annotations

import torch
import torch.fx as fx

from ..pytorch.sizes import hint, tensor_bytes

#: Rows of more elements than this begin at multiples of so many bytes: Inductor's
#: ``padding_stride_threshold`` and ``padding_alignment_bytes``.
_LEAST_ELEMENTS, _ALIGNMENT_BYTES = 1024, 128
_PRODUCTS = (torch.ops.aten.mm.default, torch.ops.aten.addmm.default)


def room_bytes(value: torch.Tensor) -> int:
    """Bytes of a value under Inductor, with the room for padding behind its rows on a GPU."""
    exact_bytes = tensor_bytes(value)
    row = hint(value.shape[-1]) if value.dim() > 1 else 0
    if value.device.type == "cpu" or row <= _LEAST_ELEMENTS or not value.is_contiguous():
        return exact_bytes
    row_bytes = row * value.element_size()
    return exact_bytes // row_bytes * (-(-row_bytes // _ALIGNMENT_BYTES) * _ALIGNMENT_BYTES)


def is_padded_in_place(node: fx.Node) -> bool:
    """Whether a value is another one, with more at the end of its rows, for one matrix product."""
    if node.target is not torch.ops.aten.constant_pad_nd.default:
        return False
    source, padding = node.args[:2]
    assert isinstance(source, fx.Node) and isinstance(padding, (list, tuple))
    made, value = node.meta["val"], source.meta["val"]
    return made.device.type != "cpu" and source.op == "call_function" and value.dim() == 2 \
        and value.is_contiguous() and len(node.users) == 1 \
        and next(iter(node.users)).target in _PRODUCTS and not any(padding[2:]) \
        and not padding[0] and tensor_bytes(made) <= room_bytes(value)
