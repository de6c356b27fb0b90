"""Concatenations in Inductor's code for CPUs: parts are written where the whole will be.

All of its memory is there with the first part, so that this counts as large as the whole, and the
others as nothing. Of backward alone, where no op runs again: what forward concatenates is read by
others, too, and may be made again without it.
"""
from __future__ import annotations

from functools import partial
from typing import Dict, List, Sequence, Set

import torch
import torch.fx as fx

from ..pytorch import private_kernels
from .padding import room_bytes
from .storages import Held


def laid_in_wholes(nodes: Sequence[fx.Node], late: Set[fx.Node], views: Set[fx.Node],
                   held: Dict[fx.Node, Held]) -> Dict[fx.Node, fx.Node]:
    """The part that is made first by concatenation. Changes what storages take in ``held``.

    ``nodes``: in order; ``late``: those of backward; ``views``: those that only rename memory.
    """
    place = {node: number for number, node in enumerate(nodes)}
    first_of: Dict[fx.Node, fx.Node] = {}
    for whole in nodes:
        if whole.target is not torch.ops.aten.cat.default or whole not in late or \
                whole.meta["val"].device.type != "cpu":
            continue
        operands: List[fx.Node] = list(whole.args[0])
        parts = [part for part in operands
                 if part in late and part not in views and list(part.users) == [whole]
                 and operands.count(part) == 1 and private_kernels.is_fusible(part)
                 and isinstance(part.meta.get("val"), torch.Tensor)]
        for part in sorted(parts, key=place.__getitem__):
            [storage] = held[part]
            if storage is None:
                continue
            if whole not in first_of:
                first_of[whole] = part
                held[part] = [(storage[0], partial(room_bytes, whole.meta["val"]))]
            else:
                held[part] = [(storage[0], 0)]
    return first_of
