"""Storage planning by ``libmemonger_core.so``: same numbers as the Python reference, faster."""
from __future__ import annotations

import ctypes
from typing import Any, List, Optional, Sequence, Tuple

from .blocks import Block, Blocks, Program, StorageModel
from .storage import StoragePlan

_ASSIGNMENTS = {"stock": 0, "quick": 1, "best": 2, "live": 3, "arena": 4}


def library(required: bool = False) -> Optional[Any]:
    """The loaded C++ library, or None when it was not built.

    Raises
    ------
    PluginMissing
        If it is required and not there.
    """
    from .errors import PluginMissing
    try:
        from .native import core
    except ImportError:
        if required:
            raise PluginMissing("libmemonger_core.so is not built; run python plugins/build.py")
        return None
    try:
        return core()
    except PluginMissing:
        if required:
            raise
        return None


def _block(start: int, end: int, size_bytes: int, elements: int, device: int, pool: int,
           apart: int) -> Block:
    return Block(start, end, size_bytes, elements, device, pool, bool(apart))


def _array(kind: Any, values: Sequence[int]) -> Any:
    return (kind * max(1, len(values)))(*values)


def _flat(rows: Sequence[Sequence[int]]) -> Tuple[List[int], List[int]]:
    begin: List[int] = [0]
    flat: List[int] = []
    for row in rows:
        flat.extend(row)
        begin.append(len(flat))
    return begin, flat


def plan(core: Any, program: Program, model: StorageModel) -> StoragePlan:
    """Plan the storage of a program with the library ``core``."""
    int32, int64, uint8 = ctypes.c_int32, ctypes.c_int64, ctypes.c_uint8
    steps, entries = len(program.steps), len(program.values)
    output_begin, outputs = _flat([step.outputs for step in program.steps])
    input_begin, inputs = _flat([step.inputs for step in program.steps])
    _, ignored = _flat([[position in step.ignored for position in range(len(step.inputs))]
                        for step in program.steps])
    inplace_begin, inplace = _flat([[number for option in step.inplace for number in
                                     (option.input, option.output, option.identity)]
                                    for step in program.steps])
    options = (program.inplace, program.count_ignored, program.inplace, model.match_range,
               model.search_match_range, program.rounding, model.effort,
               _ASSIGNMENTS[model.assignment])
    blocks = (int64 * max(1, 7 * entries))()
    offset_of = (int64 * max(1, entries))()
    buffer_bytes = (int64 * max(1, entries))()
    released, block_of, inplace_index, buffer_of = ((int32 * max(1, entries))() for _ in range(4))
    num_released = int32(0)
    totals = (int64 * 7)()
    count = core.memonger_storage_plan(
        int32(steps), int32(entries), _array(int32, output_begin), _array(int32, outputs),
        _array(int32, input_begin), _array(int32, inputs), _array(uint8, ignored),
        _array(int32, [number // 3 for number in inplace_begin]), _array(int32, inplace),
        _array(int32, [step.device for step in program.steps]),
        _array(int32, [step.pool for step in program.steps]),
        _array(uint8, [step.grad_add for step in program.steps]),
        _array(int64, program.elements), _array(int64, program.bytes),
        _array(int32, program.dtype), _array(uint8, program.external),
        _array(int32, program.held), _array(uint8, program.apart), _array(int32, options), blocks,
        released, ctypes.byref(num_released), block_of, inplace_index, buffer_of, offset_of,
        buffer_bytes, totals)
    made = Blocks(steps, tuple(_block(*blocks[7 * i:7 * i + 7]) for i in range(count)),
                  tuple(released[:num_released.value]), tuple(block_of[:entries]),
                  tuple(inplace_index[:entries]))
    pool_bytes, printed_bytes, peak_bytes, peak_step, bound_bytes, buffers, has_offsets = totals
    if model.assignment == "live":
        return StoragePlan(model, program, made, (), (), peak_bytes, peak_bytes, peak_step, 0,
                           bound_bytes)
    return StoragePlan(model, program, made, tuple(buffer_of[:count]),
                       tuple(buffer_bytes[:buffers]), pool_bytes, peak_bytes, peak_step,
                       printed_bytes, bound_bytes,
                       tuple(offset_of[:count]) if has_offsets else ())
