"""A planned step in the form in which PyTorch records its allocator's events.

https://pytorch.org/memory_viz shows it, and so do the functions of ``torch.cuda._memory_viz``.
"""
from __future__ import annotations

from bisect import insort
from typing import Any, Dict, List, Tuple

from ..plans.categories import CATEGORIES
from ..plans.plan import Plan

#: CUDA's allocator rounds sizes up to it.
_GRANULE_BYTES = 512
#: Categories of ``Plan.fixed_bytes`` whose tensors are in the graph.
_IN_GRAPH = {"parameters": "parameter", "aux": "aux", "inputs": "input",
             "head_gradients": "head_gradient"}


def memory_snapshot(plan: Plan) -> Dict[str, Any]:
    """The step by a plan, as ``torch.cuda.memory._snapshot()`` records one."""
    line = plan.timeline()
    room, trace = _Room(), []  # type: _Room, List[Dict[str, Any]]

    def event(action: str, address: int, size_bytes: int, step: int, name: str) -> None:
        path, _, word = name.rpartition("/")
        trace.append({"action": action, "addr": address, "size": size_bytes, "stream": 0,
                      "time_us": step, "frames": [{"name": word, "filename": path, "line": 0}]})
    held: List[Dict[str, Any]] = []

    def hold(name: str, size_bytes: int) -> None:
        address = room.take(size_bytes)
        event("alloc", address, size_bytes, 0, name)
        held.append({"address": address, "size": size_bytes, "frames": trace[-1]["frames"]})
    for tensor in plan.graph.tensors:
        if tensor.producer < 0 and tensor.size_bytes:
            hold("%s/%s" % (tensor.category, tensor.name), tensor.size_bytes)
    for category, size_bytes in plan.fixed_bytes.items():
        if category not in _IN_GRAPH and size_bytes > 0:
            hold(CATEGORIES.get(category, category), size_bytes)
    begins: List[List[Any]] = [[] for _ in line.names]
    ends: List[List[Tuple[int, Any]]] = [[] for _ in line.names]
    for alive in line.everything:
        begins[alive.start].append(alive)
    for step, blocks in enumerate(begins):
        for alive in blocks:
            address = room.take(alive.bytes)
            event("alloc", address, alive.bytes, step + 1, alive.op)
            if alive.end < len(line):
                ends[alive.end].append((address, alive))
            else:
                held.append({"address": address, "size": alive.bytes,
                             "frames": trace[-1]["frames"]})
        for address, alive in ends[step]:
            for action in ("free_requested", "free_completed"):
                event(action, address, alive.bytes, step + 1, alive.op)
            room.give(address, alive.bytes)
    return {"segments": [_segment(held, room.size_bytes)], "device_traces": [trace],
            "allocator_settings": {}, "external_annotations": []}


def _segment(held: List[Dict[str, Any]], size_bytes: int) -> Dict[str, Any]:
    """All memory, with what is in it when the step is over."""
    blocks: List[Dict[str, Any]] = []
    end = 0

    def free_until(address: int) -> None:
        if address > end:
            blocks.append({"address": end, "size": address - end, "requested_size": 0,
                           "state": "inactive", "frames": []})
    for block in sorted(held, key=lambda b: b["address"]):
        free_until(block["address"])
        blocks.append({**block, "requested_size": block["size"], "state": "active_allocated"})
        end = block["address"] + block["size"]
    free_until(size_bytes)
    taken = sum(block["size"] for block in held)
    return {"device": 0, "address": 0, "total_size": size_bytes, "allocated_size": taken,
            "active_size": taken, "requested_size": taken, "stream": 0, "segment_type": "large",
            "segment_pool_id": (0, 0), "is_expandable": False, "frames": [], "blocks": blocks}


class _Room:
    """Addresses: each request gets the first gap that it fits in."""

    def __init__(self) -> None:
        self.size_bytes = 0
        #: Gaps as beginning and end, in order.
        self._gaps: List[Tuple[int, int]] = []

    def take(self, size_bytes: int) -> int:
        whole = max(-(-size_bytes // _GRANULE_BYTES), 1) * _GRANULE_BYTES
        for place, (begin, end) in enumerate(self._gaps):
            if end - begin >= whole:
                self._gaps[place:place + 1] = [(begin + whole, end)] if end - begin > whole else []
                return begin
        self.size_bytes += whole
        return self.size_bytes - whole

    def give(self, address: int, size_bytes: int) -> None:
        end = address + max(-(-size_bytes // _GRANULE_BYTES), 1) * _GRANULE_BYTES
        for gap in [g for g in self._gaps if g[1] == address or g[0] == end]:
            self._gaps.remove(gap)
            address, end = min(address, gap[0]), max(end, gap[1])
        insort(self._gaps, (address, end))
