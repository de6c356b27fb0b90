"""Dropout of a joint graph in two operators: a mask that is drawn once, and values that it drops.

ATen's operator gives both, so it cannot run again without another draw, and a plan would have to
keep its values. Apart, the mask stays, a byte for each element, and values may be computed again
from it. On a CPU both take the same kernels as ATen's operator (``native_dropout_cpu``): the same
draws, bits and bytes. On a GPU one kernel does both, with draws of its own; there it stays.
"""
from __future__ import annotations

import functools
import operator
from typing import Any, Callable, Dict

import torch
import torch.fx as fx

from ..pytorch import private_joint

_DROPOUT = torch.ops.aten.native_dropout.default
_library = torch.library.Library("memonger", "FRAGMENT")
_library.define("dropout_mask(Tensor data, float p) -> Tensor",
                tags=(torch.Tag.nondeterministic_seeded,))
_library.define("dropped(Tensor data, Tensor mask, float p) -> Tensor")


def _mask(data: torch.Tensor, p: float) -> torch.Tensor:
    return torch.empty_like(data, dtype=torch.bool).bernoulli_(1.0 - p)


def _dropped(data: torch.Tensor, mask: torch.Tensor, p: float) -> torch.Tensor:
    return data.mul(mask).mul_(_scale(p, data.dtype))


@functools.lru_cache(maxsize=None)
def _scale(p: float, dtype: torch.dtype) -> float:
    """ATen rounds it to the data's type."""
    return torch.tensor(0.0 if p == 1.0 else 1.0 / (1.0 - p), dtype=dtype, device="cpu").item()


_library.impl("dropout_mask", _mask, "CPU")
_library.impl("dropped", _dropped, "CPU")
#: What runs the operators, without PyTorch's dispatcher.
KERNELS: Dict[Any, Callable[..., torch.Tensor]] = {
    torch.ops.memonger.dropout_mask.default: _mask, torch.ops.memonger.dropped.default: _dropped}
torch.library.register_fake("memonger::dropout_mask", lambda data, p: torch.empty_like(
    data, dtype=torch.bool), lib=_library)
torch.library.register_fake("memonger::dropped", lambda data, mask, p: data.mul(mask),
                            lib=_library)


def divide_dropout(joint: fx.GraphModule) -> None:
    """Write each dropout of a forward pass on a CPU as two operators. Linear in the graph."""
    for node in list(joint.graph.nodes):
        if node.target is not _DROPOUT or private_joint.is_backward(node):
            continue
        data, p, train = (*node.args, None)[:3]
        value, mask_value = node.meta["val"]
        if train is False or value.device.type != "cpu" or not value.numel():
            continue
        with joint.graph.inserting_before(node):
            mask = joint.graph.call_function(torch.ops.memonger.dropout_mask.default, (data, p))
            dropped = joint.graph.call_function(
                torch.ops.memonger.dropped.default, (data, mask, p))
        mask.meta, dropped.meta = {**node.meta, "val": mask_value}, {**node.meta, "val": value}
        for taken in list(node.users):
            assert taken.target is operator.getitem
            taken.replace_all_uses_with(mask if taken.args[1] else dropped)
            joint.graph.erase_node(taken)
        joint.graph.erase_node(node)
    joint.recompile()
