"""How much memory a schedule takes, tensor by tensor and buffer by buffer.

Four storage models, all exact for what they describe, with MXNet's environment variables at their
defaults:

``"arena"``
    The plugin's assignment for planned executors: MXNet's blocks at offsets of one buffer, or
    ``"best"`` where that is no larger.
``"best"``
    The plugin's assignment to whole buffers: MXNet's blocks, shared better.
``"stock"``
    MXNet 1.9.1 without the plugin, byte for byte.
``"live"``
    The peak of the bytes alive: no assignment can take less. Without in-place options it is the
    model of Checkmate and Moccasin: all inputs and outputs of a step are alive while it runs.

:mod:`memonger.memory.liveness` numbers the values of a schedule;
``plugins/core/memory/storage.cc`` counts references as MXNet does, shares buffers and finds
offsets. ``tests/reference/liveness.py`` is the readable reference, which shares no code with it.
"""
from __future__ import annotations

import ctypes
from dataclasses import dataclass, replace
from typing import Dict, List, NamedTuple, Sequence, Tuple

from ..graph.cache import Cache
from ..graph.schedule import Schedule
from ..graph.types import Graph
from ..util.native_libraries import array, core
from .liveness import Block, Blocks, Program, build_program

#: The storage models, in the order of ``Kind`` in ``plugins/core/memory/storage.h``.
STORAGES = ("arena", "best", "stock", "live")


@dataclass(frozen=True)
class StoragePlan:
    """The memory of one schedule under one storage model."""

    model: str
    program: Program
    #: The blocks, each with its first and last step.
    blocks: Blocks
    #: Buffer of each block; () for "live", which assigns none.
    buffer_of: Tuple[int, ...]
    #: Real bytes of each buffer; () for "live".
    buffer_bytes: Tuple[int, ...]
    pool_bytes: int
    peak_live_bytes: int
    #: First step at which ``peak_live_bytes`` are alive; -1 when nothing ever is.
    step_of_peak: int
    #: What MXNet prints as "Total ... allocated" (4 bytes an element); for "live" 0.
    printed_bytes: int
    #: No assignment of these blocks to whole buffers takes less.
    lower_bound_bytes: int
    #: Where in its buffer each block begins; () when all begin at the first byte.
    offset_of: Tuple[int, ...] = ()
    #: How many times a search for the least bytes laid a block down: what it took.
    placed: int = 0

    @property
    def block_of(self) -> Dict[Tuple[int, int], int]:
        """Block of each (step, output position); values without a block are left out."""
        return {(value.step, value.position): block
                for value, block in zip(self.program.values, self.blocks.block_of) if block >= 0}


def plan_storage(graph: Graph, schedule: Schedule, model: str = "best") -> StoragePlan:
    """Plan the storage of a schedule.

    ``model``: one of ``STORAGES``.
    Raises ValueError if the schedule reads values that were not made, or the model is unknown.
    Raises PluginMissing if ``libmemonger_core.so`` was not built.
    """
    if model not in STORAGES:
        raise ValueError("unknown storage model %r; one of %s" % (model, ", ".join(STORAGES)))
    return plan_program(build_program(graph, schedule), model)


class Pool(NamedTuple):
    """Of a :class:`StoragePlan` what searches ask for."""

    size_bytes: int
    placed: int


#: Pools by storage model and schedule: a solver asks for one several times.
_POOLS: Cache[Pool] = Cache(most=16)


def pool_of(graph: Graph, schedule: Schedule, model: str = "best") -> Pool:
    """The pool of :func:`plan_storage`, remembered with the graph."""
    def compute() -> Pool:
        storage = plan_storage(graph, schedule, model)
        return Pool(storage.pool_bytes, storage.placed)
    return _POOLS.of(graph, (model, schedule), compute)


def pool_bytes(graph: Graph, schedule: Schedule, model: str = "best") -> int:
    """The bytes of :func:`pool_of`."""
    return pool_of(graph, schedule, model).size_bytes


def plan_program(program: Program, model: str) -> StoragePlan:
    """Plan the storage of a numbered program; see :func:`plan_storage`."""
    running = [i for i, step in enumerate(program.steps) if step.inputs or step.outputs]
    if len(running) == len(program.steps):
        return _plan_running(program, model)
    # What became part of another op is not there when MXNet counts steps.
    steps = tuple(program.steps[i] for i in running)
    return _at_steps(_plan_running(replace(program, steps=steps), model), program, running)


def _at_steps(plan: StoragePlan, program: Program, running: Sequence[int]) -> StoragePlan:
    """The plan of some steps of a program, renumbered to the whole program."""
    number = [*running, len(program.steps)]
    blocks = tuple(block._replace(start=number[block.start], end=number[block.end])
                   for block in plan.blocks.blocks)
    peak = number[plan.step_of_peak] if plan.step_of_peak >= 0 else -1
    return replace(plan, program=program, step_of_peak=peak, blocks=replace(
        plan.blocks, num_steps=len(program.steps), blocks=blocks))


def _block(start: int, end: int, size_bytes: int, elements: int, device: int, pool: int,
           own_buffer: int) -> Block:
    return Block(start, end, size_bytes, elements, device, pool, bool(own_buffer))


def _flat(rows: Sequence[Sequence[int]]) -> Tuple[List[int], List[int]]:
    begin: List[int] = [0]
    flat: List[int] = []
    for row in rows:
        flat.extend(row)
        begin.append(len(flat))
    return begin, flat


def _plan_running(program: Program, model: str) -> StoragePlan:
    """Plan the storage of a program all of whose steps have values."""
    int32, int64, uint8 = ctypes.c_int32, ctypes.c_int64, ctypes.c_uint8
    steps, entries = len(program.steps), len(program.values)
    output_begin, outputs = _flat([step.outputs for step in program.steps])
    input_begin, inputs = _flat([step.inputs for step in program.steps])
    _, ignored = _flat([[position in step.ignored for position in range(len(step.inputs))]
                        for step in program.steps])
    inplace_begin, inplace = _flat([[number for option in step.inplace for number in
                                     (option.input, option.output, option.identity)]
                                    for step in program.steps])
    options = (program.count_ignored, program.rounding, STORAGES.index(model))
    blocks = (int64 * max(1, 7 * entries))()
    offset_of = (int64 * max(1, entries))()
    buffer_bytes = (int64 * max(1, entries))()
    released, block_of, inplace_index, buffer_of = ((int32 * max(1, entries))() for _ in range(4))
    num_released = int32(0)
    totals = (int64 * 8)()
    count = core().memonger_storage_plan(
        int32(steps), int32(entries), array(int32, output_begin), array(int32, outputs),
        array(int32, input_begin), array(int32, inputs), array(uint8, ignored),
        array(int32, [number // 3 for number in inplace_begin]), array(int32, inplace),
        array(int32, [step.device for step in program.steps]),
        array(int32, [step.pool for step in program.steps]),
        array(uint8, [step.adds_into_first for step in program.steps]),
        array(int64, program.elements), array(int64, program.bytes),
        array(int32, program.dtype), array(int32, program.item_bytes),
        array(uint8, program.external),
        array(int32, program.held), array(uint8, program.own_buffer), array(int32, options),
        blocks, released, ctypes.byref(num_released), block_of, inplace_index, buffer_of,
        offset_of, buffer_bytes, totals)
    made = Blocks(steps, tuple(_block(*blocks[7 * i:7 * i + 7]) for i in range(count)),
                  tuple(released[:num_released.value]), tuple(block_of[:entries]),
                  tuple(inplace_index[:entries]))
    pool_bytes, printed_bytes, peak_bytes, peak_step, bound_bytes, buffers, has_offsets, placed = \
        totals
    if model == "live":
        return StoragePlan(model, program, made, (), (), peak_bytes, peak_bytes, peak_step, 0,
                           bound_bytes)
    return StoragePlan(model, program, made, tuple(buffer_of[:count]),
                       tuple(buffer_bytes[:buffers]), pool_bytes, peak_bytes, peak_step,
                       printed_bytes, bound_bytes,
                       tuple(offset_of[:count]) if has_offsets else (), placed)


def never_written_bytes(graph: Graph, plan: StoragePlan) -> int:
    """Bytes of whole buffers that no op writes: no page of them is resident."""
    written = set()
    for value, block in zip(plan.program.values, plan.blocks.block_of):
        op = graph.ops[plan.program.steps[value.step].op]
        if block >= 0 and value.position not in op.unwritten_outputs:
            written.add(plan.buffer_of[block])
    return sum(size for buffer, size in enumerate(plan.buffer_bytes) if buffer not in written)
