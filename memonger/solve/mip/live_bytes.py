"""Bytes that are alive at each op: of the unplanned step, of every plan, of the worst case."""
from __future__ import annotations

from typing import Dict, Set

import numpy as np

from .problem import Reduced


def unplanned_live(reduced: Reduced) -> np.ndarray:
    """(ops,) float64: live bytes when everything is kept."""
    change = np.zeros(reduced.num_ops + 1)
    ends = [max([op for op, _ in readers], default=int(birth))
            for readers, birth in zip(reduced.readers, reduced.birth)]
    for group, size in enumerate(reduced.size_bytes):
        change[reduced.birth[group]] += size
        change[ends[group] + 1] -= size
    live = reduced.profile_bytes + np.cumsum(change)[:-1]
    for reuse in reduced.inplace_reuses:
        live[reuse.op] += reuse.unsaved_bytes(
            saved for group, saved in reuse.sources if ends[group] <= reuse.op)
    return live


def needed_live(reduced: Reduced) -> np.ndarray:
    """(ops,) float64: bytes alive at each op in every plan, its operands and the profile."""
    needed = reduced.profile_bytes.copy()
    lives = np.zeros(reduced.num_ops + 1)
    for group, size in enumerate(reduced.size_bytes):
        count: Dict[int, Set[int]] = {}
        for op, number in reduced.readers[group] + reduced.makers[group]:
            count.setdefault(op, set()).add(number)
        sure = [op for op, numbers in count.items()
                if len(numbers) == len(reduced.implementations[op])]
        needed[sure] += size
        # First lives in forward are no decision.
        plain = [op for op, _ in reduced.readers[group]
                 if op < reduced.first_backward and len(reduced.implementations[op]) == 1]
        begin = end = -1
        for op in plain if reduced.scattered_group[group] else plain[-1:]:
            begin, end = max(reduced.first_life(group, op) + 1, end), op
            if begin < end:
                lives[begin] += size
                lives[end] -= size
                needed[[k for k in sure if begin <= k < end]] -= size
    return needed + np.cumsum(lives)[:-1]


def most_operands(reduced: Reduced) -> np.ndarray:
    """(ops,) float64: bytes of the profile and of the operands of each op in its worst case."""
    operands = [np.zeros(len(of_op)) for of_op in reduced.implementations]
    for group, size in enumerate(reduced.size_bytes):
        for op, number in {*reduced.readers[group], *reduced.makers[group]}:
            operands[op][number] += size
    return reduced.profile_bytes + [bytes_of.max() for bytes_of in operands]
