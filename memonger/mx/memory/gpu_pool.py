"""GPU memory of a training step: MXNet's allocations as its pool rounds them.

MXNet gives each array, each buffer and each temporary space a piece of device memory of its own,
whose size its pool rounds up. In the first step convolutions are tuned: before each, MXNet reserves
memory for its data, weight and output beside all that is allocated by then.
"""
from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Dict, Iterable, List, Mapping, Sequence, Set, Tuple

from ...graph.types import DTYPES, Graph, Op
from ...memory.arena import outlives
from ...memory.storage import StoragePlan
from ...memory.workspace import workspace_bytes
from ...util.errors import InputError
from .convolutions import IN_PARTS, WEIGHT

#: Kinds of ``FResourceRequest`` in MXNet.
_RANDOM_STATES, _DROPOUT_STATE = 2, 3
#: One set of MXNet's random states: 32768 of 64 bytes.
_RANDOM_STATES_BYTES = 32768 * 64
#: What ``cudaMalloc`` hands out are multiples of this.
_GRANULE_BYTES = 512
#: Forward operators that run cuDNN's convolutions; their first input is the data.
_CONVOLUTIONS = ("Convolution", "Deconvolution", "memonger_split_convolution", IN_PARTS)
#: What a convolution is tuned for, once a process; besides its shapes.
_TUNED_BY = ("kernel", "stride", "dilate", "pad", "num_group", "no_bias", "layout")


@dataclass(frozen=True)
class Device:
    """How memory is handed out on a GPU; the defaults are MXNet's.

    Raises InputError if MXNet has no such pool.
    """

    #: MXNET_GPU_MEM_POOL_TYPE: "Naive", "Round" or "Unpooled".
    pool_type: str = "Naive"
    #: MXNET_GPU_MEM_POOL_PAGE_SIZE.
    page_bytes: int = 4096
    #: MXNET_GPU_MEM_LARGE_ALLOC_ROUND_SIZE, for Naive.
    large_bytes: int = 2 << 20
    #: MXNET_GPU_MEM_POOL_ROUND_LINEAR_CUTOFF, for Round.
    linear_cutoff: int = 24
    #: MXNET_CUDNN_AUTOTUNE_DEFAULT.
    autotunes: bool = True
    #: MXNET_USE_FUSION: whether point-wise ops are fused where nothing is planned.
    fuses: bool = True
    #: MXNET_GPU_PARALLEL_RAND_COPY and MXNET_GPU_CUDNN_DROPOUT_STATE_COPY.
    random_copies: int = 4
    dropout_copies: int = 4
    #: One state of cuDNN's dropout, which depends on the GPU.
    dropout_state_bytes: int = 1 << 20
    multiprocessors: int = 80

    def __post_init__(self) -> None:
        if self.pool_type not in ("Naive", "Round", "Unpooled"):
            raise InputError("MXNET_GPU_MEM_POOL_TYPE=%s is no pool of MXNet's; it has Naive, "
                             "Round and Unpooled" % self.pool_type)

    def rounded(self, size_bytes: int) -> int:
        """What an array of this size takes."""
        if size_bytes <= 0:
            return 0
        if self.pool_type == "Naive":
            size_bytes = _up(size_bytes, self.page_bytes)
            if size_bytes > self.large_bytes:
                size_bytes = _up(size_bytes, self.large_bytes)
        elif self.pool_type == "Round":
            least = max(size_bytes, self.page_bytes)
            size_bytes = 1 << (least - 1).bit_length()
            if size_bytes > 1 << self.linear_cutoff:
                size_bytes = _up(least, 1 << self.linear_cutoff)
        return _up(size_bytes, _GRANULE_BYTES)

    def all_rounded(self, sizes: Iterable[int]) -> int:
        """What arrays of these sizes take together."""
        return sum(map(self.rounded, sizes))

    def largest_within(self, size_bytes: int) -> int:
        """The largest array that takes no more than this; 0 when none does."""
        low, high = 0, max(size_bytes, 0) + 1
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self.rounded(middle) <= size_bytes else (low, middle)
        return low

    def random_states_bytes(self, requests: Iterable[Sequence[int]]) -> int:
        """MXNet's own, if any op asks for them."""
        asks = any(_RANDOM_STATES in request for request in requests)
        return self.random_copies * _up(_RANDOM_STATES_BYTES, _GRANULE_BYTES) * asks

    def dropout_states_bytes(self, requests: Iterable[Sequence[int]]) -> int:
        """Those of cuDNN's dropout, as many as ops ask for."""
        asked = sum(list(request).count(_DROPOUT_STATE) for request in requests)
        return min(asked, self.dropout_copies) * self.rounded(self.dropout_state_bytes)


def _up(size_bytes: int, multiple: int) -> int:
    return -(-size_bytes // multiple) * multiple


@dataclass(frozen=True)
class BoundStep:
    """A training step as an executor or a CachedOp runs it."""

    graph: Graph
    #: Attributes of each op, and the kinds of resource that it asks for, by its name.
    attributes: Mapping[str, Mapping[str, str]]
    resources: Mapping[str, Sequence[int]]
    storage: StoragePlan

    def extra_bytes(self, device: Device, arrays: Sequence[int]) -> Dict[str, int]:
        """What the step takes of a GPU beyond the sizes of its arrays, buffers and workspace.

        ``arrays``: sizes of the arrays outside the step, in bytes: the optimizer's, too, for MXNet
            makes them while the first step still runs.
        Returns "rounding" (of the buffers, too), "random_states" and "autotuning".
        """
        space = workspace_bytes(self.graph)
        inside = [*self.storage.buffer_bytes, space]
        for _, size in callers_outputs(self.graph):  # with the gradients for them
            inside += [size, size]
        # A CachedOp asks for dropout's states again in each step.
        repeats = device.dropout_copies if self.graph.pools == "cached_op" else 1
        states = device.random_states_bytes(self.resources.values()) + \
            device.dropout_states_bytes([*self.resources.values()] * repeats)
        inside_bytes = device.all_rounded(inside)
        return {
            "rounding": device.all_rounded(arrays) + inside_bytes - sum(arrays) - sum(inside),
            "random_states": states,
            "autotuning": max(0, self._tuning_bytes(device) - inside_bytes - states)}

    def _tuning_bytes(self, device: Device) -> int:
        """The most that there is beside the arrays outside while a convolution is tuned."""
        storage = self.storage
        sizes = [*map(device.rounded, storage.buffer_bytes)]
        outputs = {t: device.rounded(size) for t, size in callers_outputs(self.graph)}
        # Arenas and random states are there when an executor is; all else comes with its first use.
        seen = self._arenas()
        taken = sum(sizes[buffer] for buffer in seen)
        states = 0 if self.graph.pools == "cached_op" else \
            device.random_states_bytes(self.resources.values())
        tuned: Set[Tuple[object, ...]] = set()
        most = space = dropouts = 0
        for step in storage.program.steps:
            op = self.graph.ops[step.op]
            attributes = self.attributes[op.name]
            for value in (*step.inputs, *step.outputs):
                block = storage.blocks.block_of[value] if value >= 0 else -1
                if block >= 0 and storage.buffer_of[block] not in seen:
                    seen.add(storage.buffer_of[block])
                    taken += sizes[storage.buffer_of[block]]
            taken += sum(outputs.get(tensor, 0) for tensor in op.outputs)
            for wanted in reservations(self.graph, op):
                key = (wanted, "Deconvolution" in op.kind, *(
                    attributes.get(name, "").replace(" ", "") for name in _TUNED_BY))
                if key not in tuned and _tunes(device, attributes):
                    most = max(most, taken + space + states + device.all_rounded(wanted) +
                               device.dropout_states_bytes([[_DROPOUT_STATE] * dropouts]))
                tuned.add(key)
            space = max(space, device.rounded(op.workspace_bytes))
            states = states or device.random_states_bytes([self.resources[op.name]])
            dropouts += _DROPOUT_STATE in self.resources[op.name]
        return most

    def _arenas(self) -> Set[int]:
        """The buffers in which blocks lie side by side."""
        storage = self.storage
        return {buffer for buffer, block in zip(storage.buffer_of, storage.blocks.blocks)
                if storage.offset_of and not outlives(block, storage.blocks)}

    def pool_within(self, device: Device, left_bytes: int) -> int:
        """The largest pool of a plan for this network that takes ``left_bytes`` when rounded up.

        Exact for arenas. The sizes of whole buffers are not known yet: those of this step stand in.
        """
        inside = self._arenas()
        own_buffers = [size for i, size in enumerate(self.storage.buffer_bytes) if i not in inside]
        if not inside:
            return left_bytes - device.all_rounded(own_buffers) + sum(own_buffers)
        return device.largest_within(left_bytes - device.all_rounded(own_buffers)) \
            + sum(own_buffers)


def callers_outputs(graph: Graph) -> List[Tuple[int, int]]:
    """Outputs of a CachedOp with their sizes: the caller's, new in each step."""
    if graph.pools != "cached_op":
        return []
    return [(t, graph.tensors[t].size_bytes) for t in dict.fromkeys(graph.outputs)
            if graph.tensors[t].category == "output"]


def _tunes(device: Device, attributes: Mapping[str, str]) -> bool:
    if attributes.get("cudnn_off", "False") in ("True", "1", "true"):
        return False
    asked = attributes.get("cudnn_tune", "None")
    return device.autotunes if asked == "None" else asked != "off"


def reservations(graph: Graph, op: Op) -> List[Tuple[int, int, int]]:
    """Sizes of data, weight and output of the convolutions that a forward op runs."""
    if op.kind not in _CONVOLUTIONS:
        return []
    position = WEIGHT[op.kind][0] if op.kind in WEIGHT else 1
    data, weight, output = (graph.tensors[t] for t in (
        op.inputs[0], op.inputs[position], op.outputs[0]))
    if op.kind != IN_PARTS:
        return [(data.size_bytes, weight.size_bytes, output.size_bytes)]
    batch, part = output.shape[0], graph.tensors[op.outputs[3]].shape[0]
    return [(data.size_bytes // batch * samples, weight.size_bytes,
             output.size_bytes // batch * samples) for samples in (part, batch % part) if samples]


def workspaces(device: Device, graph: Graph) -> Tuple[int, ...]:
    """Temporary space of each op in MXNet's own code on a GPU; cuDNN's is not known here."""
    return tuple(max(op.workspace_bytes, _workspace_bytes(device, graph, op)) for op in graph.ops)


def _workspace_bytes(device: Device, graph: Graph, op: Op) -> int:
    made = [graph.tensors[t] for t in op.outputs]
    if op.kind in _CONVOLUTIONS:  # one element, whatever cuDNN asks for
        return DTYPES[made[0].dtype]
    if op.kind == "_backward_FullyConnected" and len(made) == 3:  # sums of the bias by parts
        bias_bytes = made[2].size_bytes
        width = next(width for width in (8, 4, 2, 1) if bias_bytes % width == 0)
        columns = -(-bias_bytes // (32 * width))
        return bias_bytes * max(2 * device.multiprocessors // columns, 1)
    if op.kind == "_backward_Embedding":  # sorted indices, and where each row begins and ends
        rows, indices = made[-1].shape[0], graph.tensors[op.inputs[1]]
        return 8 * rows + 20 * math.prod(indices.shape)
    if op.kind == "_backward_" + IN_PARTS:  # where the data's gradient is added to another
        added = {t for reader in graph.ops if reader.adds_into_first for t in reader.inputs[1:]}
        return made[0].size_bytes if op.outputs[0] in added else 0
    return 0
