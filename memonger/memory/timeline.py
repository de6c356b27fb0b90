"""The timeline of a planned training step: what is in memory at each step.

The timeline is computed from the same blocks and buffers as the pool
(:mod:`memonger.memory.storage`), so its largest value is ``peak_live_bytes`` and its buffers add up
to ``pool_bytes``.
"""
from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field
from functools import cached_property
from typing import Callable, Dict, Iterable, List, Mapping, Optional, Tuple

from ..graph.clock import Times
from ..graph.in_use import effective_ops
from ..graph.schedule import Schedule
from ..graph.types import Graph
from .host import host_timeline
from .storage import StoragePlan, plan_storage

#: What the bytes of the pool hold: values of forward ops, network outputs, values made again,
#: and gradients that only exist during backward.
CATEGORIES = ("activations", "outputs", "recomputed", "gradients")


@dataclass(frozen=True)
class Alive:
    """A block of memory in use at some step."""

    #: The tensor in it: the last one made, where several share the memory in place.
    tensor: str
    #: Name of the step that made that tensor.
    op: str
    bytes: int
    #: One of ``CATEGORIES``.
    category: str
    #: Steps through which the memory is in use, both included.
    start: int
    end: int


@dataclass(frozen=True)
class Timeline:
    """Bytes at each step of one training step, as columns of equal length.

    Examples
    --------
    ``timeline.live_bytes[timeline.peak_step] == timeline.peak_live_bytes``
    """

    #: Name of each step; the k-th clone of an op is ``"<op>#k"``.
    names: Tuple[str, ...]
    #: Op id of each step, in the graph.
    ops: Tuple[int, ...]
    is_backward: Tuple[bool, ...]
    #: Bytes that later steps need, or that the step itself works on.
    live_bytes: Tuple[int, ...]
    #: Bytes of the buffers in which these live: what fragmentation and rounding add is seen here.
    buffer_bytes: Tuple[int, ...]
    #: Bytes alive at each step for each of ``CATEGORIES``.
    by_category: Mapping[str, Tuple[int, ...]]
    #: Temporary memory of the op that runs; outside the pool.
    workspace_bytes: Tuple[int, ...]
    #: When each step runs, in seconds from the start of the first; see
    #: :mod:`memonger.graph.clock`.
    times: Times
    #: Bytes on the host at each step, outside all others; empty where nothing may go there.
    host_bytes: Tuple[int, ...]
    #: All buffers together: what the executor allocates.
    pool_bytes: int
    peak_live_bytes: int
    #: First step at which ``peak_live_bytes`` are alive; -1 when nothing ever is.
    peak_step: int
    graph: Graph = field(repr=False, compare=False)
    storage: StoragePlan = field(repr=False, compare=False)

    def __len__(self) -> int:
        return len(self.names)

    def alive_at(self, step: int) -> Tuple[Alive, ...]:
        """Everything in memory at a step, largest first, then the earliest made."""
        if not 0 <= step < len(self.names):
            raise IndexError("step %d of %d" % (step, len(self.names)))
        return _alive(self.graph, self.names, self.storage, step)

    @cached_property
    def everything(self) -> Tuple[Alive, ...]:
        """All blocks of memory that are ever in use, each by the first value in it."""
        return _alive(self.graph, self.names, self.storage)

    @property
    def at_peak(self) -> Tuple[Alive, ...]:
        """Everything in memory at the first worst step, largest first."""
        return self.alive_at(self.peak_step) if self.peak_step >= 0 else ()


def step_names(graph: Graph, schedule: Schedule) -> Tuple[str, ...]:
    """Name of each step: the op's, with ``#k`` from the second run on."""
    runs: Dict[int, int] = {}
    names = []
    for step in schedule.steps:
        clone = runs.get(step.op, 0)
        runs[step.op] = clone + 1
        name = graph.ops[step.op].name
        names.append("%s#%d" % (name, clone) if clone else name)
    return tuple(names)


def timeline(graph: Graph, schedule: Schedule, storage_model: str = "best") -> Timeline:
    """The timeline of a schedule.

    ``storage_model``: as in :func:`memonger.memory.storage.plan_storage`. Without whole buffers
        (``"live"``, an arena) ``buffer_bytes`` equals ``live_bytes``.

    Linear in the number of steps and values, besides the storage plan itself.
    """
    storage = plan_storage(graph, schedule, storage_model)
    program, blocks = storage.program, storage.blocks
    count = len(program.steps)
    by_category = live_by(storage, lambda value: _category(graph, storage, value), CATEGORIES)
    live = tuple(sum(column) for column in zip(*by_category.values())) if count else ()
    buffers = live
    if storage.buffer_of and not storage.offset_of:
        column = [0] * (count + 2)
        for block, whole in zip(storage.buffer_of, blocks.blocks):
            column[whole.start] += storage.buffer_bytes[block]
            column[whole.end + 1] -= storage.buffer_bytes[block]
        buffers = _running(column, count)
    ops = effective_ops(graph, schedule.variants)
    return Timeline(
        step_names(graph, schedule), tuple(s.op for s in program.steps),
        tuple(graph.ops[s.op].is_backward for s in program.steps), live, buffers, by_category,
        tuple(ops[s.op].workspace_bytes for s in program.steps), schedule.times(graph),
        tuple(host_timeline(graph, schedule)), storage.pool_bytes, storage.peak_live_bytes,
        storage.step_of_peak, graph, storage)


def live_by(storage: StoragePlan, label_of: Callable[[int], str],
            labels: Iterable[str] = ()) -> Dict[str, Tuple[int, ...]]:
    """Bytes alive at each step by the label of the value in them; ``labels`` come first."""
    program = storage.program
    count = len(program.steps)
    change: Dict[str, List[int]] = {label: [0] * (count + 2) for label in labels}
    for values, whole in zip(_values_of_blocks(storage), storage.blocks.blocks):
        # The memory belongs to the value made last.
        for position, value in enumerate(values):
            start = program.values[value].step
            end = whole.end + 1 if position + 1 == len(values) \
                else program.values[values[position + 1]].step
            column = change.setdefault(label_of(value), [0] * (count + 2))
            column[start] += whole.bytes
            column[end] -= whole.bytes
    return {label: _running(column, count) for label, column in change.items()}


def _running(change: List[int], count: int) -> Tuple[int, ...]:
    total, result = 0, []
    for step in range(count):
        total += change[step]
        result.append(total)
    return tuple(result)


def _values_of_blocks(storage: StoragePlan) -> List[List[int]]:
    """Values of each block in the order in which they are made."""
    values: List[List[int]] = [[] for _ in storage.blocks.blocks]
    for value, block in enumerate(storage.blocks.block_of):
        if block >= 0:
            values[block].append(value)
    return values


def _category(graph: Graph, storage: StoragePlan, value: int) -> str:
    made = storage.program.values[value]
    step = storage.program.steps[made.step]
    if graph.ops[step.op].is_backward:
        return "gradients"
    if step.clone:
        return "recomputed"
    return "outputs" if graph.tensors[made.tensor].category == "output" else "activations"


def _alive(graph: Graph, names: Tuple[str, ...], storage: StoragePlan,
           step: Optional[int] = None) -> Tuple[Alive, ...]:
    """What is in memory at a step; without one, all that ever is."""
    alive = []
    for values, block in zip(_values_of_blocks(storage), storage.blocks.blocks):
        if values and (step is None or block.start <= step <= block.end):
            steps = [storage.program.values[v].step for v in values]
            value = values[0 if step is None else bisect_right(steps, step) - 1]
            made = storage.program.values[value]
            alive.append(Alive(graph.tensors[made.tensor].name, names[made.step], block.bytes,
                               _category(graph, storage, value), block.start, block.end))
    return tuple(sorted(alive, key=lambda a: (-a.bytes, a.start, a.tensor)))
