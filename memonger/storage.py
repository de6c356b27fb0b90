"""How much memory a schedule takes, tensor by tensor and buffer by buffer.

Four storage models, all exact for what they describe:

``"arena"``
    The plugin's assignment for planned executors: MXNet's blocks at offsets of one buffer, or
    ``"best"`` where that is no larger.
``"best"``
    The plugin's assignment to whole buffers: MXNet's blocks, shared better.
``"stock"``
    MXNet 1.9.1 without the plugin, byte for byte.
``"live"``
    The peak of the bytes alive: no assignment can take less. For graphs that are not MXNet's
    (``graph.recompute_in_forward``) it is the model of Checkmate and Moccasin: all inputs and
    outputs of a step are alive while it runs, and nothing shares memory.

:mod:`memonger.blocks` counts references, :mod:`memonger.packing` shares buffers, and
:mod:`memonger.arena` finds offsets; the C++ library does all of it faster and gives the same
numbers.
"""
from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Dict, Optional, Sequence, Tuple, Union

from . import arena, packing
from .blocks import Block, Blocks, Program, StorageModel, build_program, effective_ops, replay
from .graph import Graph
from .packing import Assignment
from .schedule import Schedule

__all__ = ["Block", "Blocks", "Program", "StorageModel", "StoragePlan", "build_program",
           "effective_ops", "plan_program", "plan_storage", "replay"]


@dataclass(frozen=True)
class StoragePlan:
    """The memory of one schedule under one storage model."""

    model: StorageModel
    program: Program
    #: Memory in use, each with the steps through which it is; see :class:`memonger.blocks.Blocks`.
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

    @property
    def block_of(self) -> Dict[Tuple[int, int], int]:
        """Block of each (step, output position); values without a block are left out."""
        return {(value.step, value.position): block
                for value, block in zip(self.program.values, self.blocks.block_of) if block >= 0}

    @property
    def storage_ids(self) -> Tuple[int, ...]:
        """Buffer of each value, as MXNet's graph attribute ``storage_id``: -2 is the caller's."""
        return tuple(self.buffer_of[block] if block >= 0 else -2
                     for block in self.blocks.block_of)


def plan_storage(graph: Graph, schedule: Schedule,
                 model: Union[str, StorageModel] = "best",
                 native: Optional[bool] = None) -> StoragePlan:
    """Plan the storage of a schedule.

    Parameters
    ----------
    graph : Graph
    schedule : Schedule
    model : str or StorageModel
        ``"arena"``, ``"best"``, ``"stock"`` or ``"live"``.
    native : bool, optional
        True insists on the C++ library, False on Python; None takes what is there. The result
        is the same.

    Returns
    -------
    StoragePlan

    Raises
    ------
    ValueError
        If the schedule reads values that were not made, or the model is unknown.
    """
    if isinstance(model, str):
        model = StorageModel(assignment=model)
    if model.assignment not in ("arena", "best", "stock", "quick", "live"):
        raise ValueError("unknown storage model %r; one of arena, best, stock, live"
                         % model.assignment)
    return plan_program(build_program(graph, schedule), model, native)


def plan_program(program: Program, model: StorageModel,
                 native: Optional[bool] = None) -> StoragePlan:
    """Plan the storage of a numbered program; see :func:`plan_storage`."""
    running = [i for i, step in enumerate(program.steps) if step.inputs or step.outputs]
    if len(running) < len(program.steps):
        # What became part of another op is not there when MXNet counts steps.
        steps = tuple(program.steps[i] for i in running)
        return _at_steps(plan_program(replace(program, steps=steps), model, native), program,
                         running)
    if native is not False:
        from . import storage_native
        library = storage_native.library(required=bool(native))
        if library is not None:
            return storage_native.plan(library, program, model)
    blocks = replay(program)
    peak, step = packing.peak_live(blocks)
    bound = packing.lower_bound(blocks, program.rounding)
    if model.assignment == "live":
        return StoragePlan(model, program, blocks, (), (), peak, peak, step, 0, bound)
    if model.assignment == "stock":
        found: Assignment = packing.stock(blocks, model, program.rounding)
    elif model.assignment == "quick":
        found = packing.quick(blocks, program.rounding)
    elif model.assignment == "arena":
        found = arena.smallest(blocks, model, program.rounding)
    else:
        found = packing.best(blocks, model, program.rounding)
    return StoragePlan(model, program, blocks, found.buffer_of, found.buffer_bytes,
                       found.pool_bytes, peak, step, found.printed_bytes, bound, found.offset_of)


def _at_steps(plan: StoragePlan, program: Program, running: Sequence[int]) -> StoragePlan:
    """The plan of some steps of a program, told by the numbers that they have in it."""
    number = [*running, len(program.steps)]
    blocks = tuple(block._replace(start=number[block.start], end=number[block.end])
                   for block in plan.blocks.blocks)
    peak = number[plan.step_of_peak] if plan.step_of_peak >= 0 else -1
    return replace(plan, program=program, step_of_peak=peak, blocks=replace(
        plan.blocks, num_steps=len(program.steps), blocks=blocks))
