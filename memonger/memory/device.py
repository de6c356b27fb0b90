"""GPU memory of a training step: MXNet's allocations as its pool rounds them.

MXNet gives each array, each buffer and each temporary space a piece of device memory of its own,
in sizes that its pool likes. In the first step convolutions are tuned: before each, MXNet reserves
room for its data, weight and output beside all that is there by then.
"""
from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Dict, Iterable, List, Mapping, Sequence, Set, Tuple

from ..graph.types import DTYPES, Graph, Op
from ..util.errors import InputError
from .arena import outlives
from .storage import StoragePlan

#: Kinds of ``FResourceRequest`` in MXNet.
_RANDOM_STATES, _DROPOUT_STATE = 2, 3
#: One set of MXNet's random states: 32768 of 64 bytes.
_RANDOM_STATES_BYTES = 32768 * 64
#: What ``cudaMalloc`` hands out are multiples of this.
_GRANULE_BYTES = 512
#: Of states of cuDNN's dropout that MXNet makes in turn, more than anybody asks for.
_MOST_COPIES = 64
#: Convolutions by kind, and where their weight is among the inputs; the data come first.
_WEIGHT = {"Convolution": 1, "Deconvolution": 1, "memonger_convolution": 1,
           "memonger_split_convolution": 1, "memonger_bn_relu_convolution": 5}
#: What a convolution is tuned for, once a process; besides its shapes.
_TUNED_BY = ("kernel", "stride", "dilate", "pad", "num_group", "no_bias", "layout")
_IN_PARTS = "memonger_bn_relu_convolution"


@dataclass(frozen=True)
class Device:
    """How memory is handed out on a GPU; the defaults are MXNet's.

    Raises
    ------
    InputError
        If MXNet has no such pool.
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
    #: What the process takes before the first array; 0 where budgets are for what comes after.
    context_bytes: int = 0

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

    def states_bytes(self, requests: Iterable[Sequence[int]]) -> int:
        """Random states, and those of cuDNN's dropout, for the resources that ops ask for."""
        requests = list(requests)
        asks = any(_RANDOM_STATES in request for request in requests)
        return self.random_copies * _up(_RANDOM_STATES_BYTES, _GRANULE_BYTES) * asks + \
            self.dropout_states_bytes(requests)

    def dropout_states_bytes(self, requests: Iterable[Sequence[int]]) -> int:
        """Only those of cuDNN's dropout."""
        asked = sum(list(request).count(_DROPOUT_STATE) for request in requests)
        return min(asked, self.dropout_copies) * self.rounded(self.dropout_state_bytes)


def _up(size_bytes: int, multiple: int) -> int:
    return -(-size_bytes // multiple) * multiple


class Pool:
    """MXNet's pool: what is given back serves the next array that takes as much."""

    def __init__(self, keeps: bool) -> None:
        self.taken_bytes = 0
        self._keeps = keeps
        self._free: Dict[int, int] = {}

    def take(self, size_bytes: int) -> None:
        """Memory for an array of this size, rounded."""
        if self._free.get(size_bytes, 0):
            self._free[size_bytes] -= 1
        else:
            self.taken_bytes += size_bytes

    def give(self, size_bytes: int) -> None:
        """The array is gone."""
        if self._keeps:
            self._free[size_bytes] = self._free.get(size_bytes, 0) + 1
        else:
            self.taken_bytes -= size_bytes

    def reserve(self, sizes: Sequence[int]) -> int:
        """What is taken while there are these arrays, whose memory then leaves the pool."""
        for size_bytes in sizes:
            self.take(size_bytes)
        most = self.taken_bytes
        self.taken_bytes -= sum(sizes)
        return most


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

        Parameters
        ----------
        device : Device
        arrays : sequence of int
            Sizes of the arrays outside the step, in bytes: the optimizer's, too, for MXNet makes
            them while the first step still runs.

        Returns
        -------
        dict
            "rounding" (of the buffers, too, less what a CachedOp's backward takes over of the
            memory that forward gave back), "random_states", "autotuning" and, where a device's is
            stated, "context".
        """
        space = max([op.workspace_bytes for op in self.graph.ops] or [0])
        made = sum(arrays) + sum(self.storage.buffer_bytes) + space + \
            2 * sum(size for _, size in callers_outputs(self.graph))
        states = device.states_bytes(self._requests)
        most, tuning = self._most_bytes(device)
        rounding = device.all_rounded(arrays) + most - made
        result = {"rounding": max(0, rounding), "random_states": states,
                  "autotuning": max(0, tuning - most)}
        return {**result, "context": device.context_bytes} if device.context_bytes else result

    @property
    def _requests(self) -> List[Sequence[int]]:
        """What ops ask for until nothing new is made: a CachedOp asks again in each step."""
        requests = list(self.resources.values())
        return requests * (_MOST_COPIES if self.graph.pools == "cached_op" else 1)

    def _most_bytes(self, device: Device) -> Tuple[int, int]:
        """The most that buffers and workspace take, and with what is there during tuning.

        The latter without the states of dropout that come later.
        """
        storage, cached = self.storage, self.graph.pools == "cached_op"
        sizes = [*map(device.rounded, storage.buffer_bytes)]
        pool = Pool(device.pool_type != "Unpooled")
        # An arena is there when the executor is; other buffers come with their first use. A
        # CachedOp gives back what is not used any more, an executor nothing.
        seen = self._arenas()
        for buffer in seen:
            pool.take(sizes[buffer])
        ends: Dict[int, int] = {}
        for buffer, whole in zip(storage.buffer_of, storage.blocks.blocks):
            ends[buffer] = max(ends.get(buffer, 0), whole.end)
        outputs = {t: device.rounded(size) for t, size in callers_outputs(self.graph)}
        tuned: Set[Tuple[object, ...]] = set()
        most = tuning = space = dropouts = 0
        state_bytes = device.rounded(device.dropout_state_bytes)
        in_backward = False
        for index, step in enumerate(storage.program.steps):
            op = self.graph.ops[step.op]
            attributes = self.attributes[op.name]
            if op.is_backward and not in_backward:
                in_backward = True
                for size_bytes in outputs.values():  # their gradients
                    pool.take(size_bytes)
            for value in (*step.inputs, *step.outputs):
                block = storage.blocks.block_of[value] if value >= 0 else -1
                if block >= 0 and storage.buffer_of[block] not in seen:
                    seen.add(storage.buffer_of[block])
                    pool.take(sizes[storage.buffer_of[block]])
            for tensor in op.outputs:
                pool.take(outputs.get(tensor, 0))
            for wanted in reservations(self.graph, op):
                key = (wanted, "Deconvolution" in op.kind, *(
                    attributes.get(name, "").replace(" ", "") for name in _TUNED_BY))
                if key not in tuned and _tunes(device, attributes):
                    tuning = max(tuning, space + dropouts * state_bytes + pool.reserve(
                        [*map(device.rounded, wanted)]))
                tuned.add(key)
            space = max(space, device.rounded(op.workspace_bytes))
            if _DROPOUT_STATE in self.resources[op.name]:
                dropouts = min(dropouts + 1, device.dropout_copies)
            most = max(most, space + pool.taken_bytes)
            if cached:
                for buffer in [buffer for buffer, end in ends.items() if end == index]:
                    pool.give(sizes[buffer])
        return most, tuning - device.dropout_states_bytes(self._requests)

    def _arenas(self) -> Set[int]:
        """The buffers in which blocks lie side by side."""
        storage = self.storage
        return {buffer for buffer, block in zip(storage.buffer_of, storage.blocks.blocks)
                if storage.offset_of and not outlives(block, storage.blocks)}

    def pool_within(self, device: Device, left_bytes: int) -> int:
        """The largest pool of a plan for this network that takes no more when it is rounded.

        Exact for arenas; for whole buffers, whose sizes are not known yet, by those of this step.
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
    if op.kind not in _WEIGHT:
        return []
    data, weight, output = (graph.tensors[t] for t in (
        op.inputs[0], op.inputs[_WEIGHT[op.kind]], op.outputs[0]))
    if op.kind != _IN_PARTS:
        return [(data.size_bytes, weight.size_bytes, output.size_bytes)]
    batch, part = output.shape[0], graph.tensors[op.outputs[3]].shape[0]
    return [(data.size_bytes // batch * samples, weight.size_bytes,
             output.size_bytes // batch * samples) for samples in (part, batch % part) if samples]


def workspaces(device: Device, graph: Graph) -> Tuple[int, ...]:
    """Temporary space of each op in MXNet's own code on a GPU; cuDNN's is not known here."""
    return tuple(max(op.workspace_bytes, _workspace_bytes(device, graph, op)) for op in graph.ops)


def _workspace_bytes(device: Device, graph: Graph, op: Op) -> int:
    made = [graph.tensors[t] for t in op.outputs]
    if op.kind in _WEIGHT:  # one element, whatever cuDNN asks for
        return DTYPES[made[0].dtype][1]
    if op.kind == "_backward_FullyConnected" and len(made) == 3:  # sums of the bias by parts
        bias_bytes = made[2].size_bytes
        width = next(width for width in (8, 4, 2, 1) if bias_bytes % width == 0)
        columns = -(-bias_bytes // (32 * width))
        return bias_bytes * max(2 * device.multiprocessors // columns, 1)
    if op.kind == "_backward_Embedding":  # sorted indices, and where each row begins and ends
        rows, indices = made[-1].shape[0], graph.tensors[op.inputs[1]]
        return 8 * rows + 20 * math.prod(indices.shape)
    if op.kind == "_backward_" + _IN_PARTS:  # where the data's gradient is added to another
        added = {t for reader in graph.ops if reader.kind == "_grad_add" for t in reader.inputs[1:]}
        return made[0].size_bytes if op.outputs[0] in added else 0
    return 0
