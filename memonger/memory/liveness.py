"""From a schedule to the blocks of memory that it needs, exactly as MXNet counts them.

A *block* is a set of tensors that share memory through in-place options. MXNet's ``MXPlanMemory``
walks the ops in order, counts how often each value is still to be read, and lets an output take
the memory of an input when the op allows it and no later op reads that input.
``plugins/core/memory/storage.cc`` repeats that walk (nnvm, ``plan_memory.cc`` of 1.9.1, and
``inplace_addto_detect_pass.cc``) over the numbered values that this module makes, so the blocks are
those of a bound executor.
"""
from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Dict, FrozenSet, List, Mapping, NamedTuple, Sequence, Set, Tuple, Union

from ..graph.in_use import effective_ops
from ..graph.schedule import Schedule
from ..graph.types import DTYPES, Graph, Implementation, Inplace, Op


class Value(NamedTuple):
    """One output of one step."""

    tensor: int
    step: int
    position: int


class ProgramStep(NamedTuple):
    """One step with its values by number; inputs of -1 exist before the training step."""

    op: int
    #: 0 for the first run of the op, k for the k-th time that it runs again.
    clone: int
    inputs: Tuple[int, ...]
    outputs: Tuple[int, ...]
    ignored: Tuple[int, ...]
    inplace: Tuple[Inplace, ...]
    device: int
    #: Values of another pool are external to a step (a CachedOp's forward and backward).
    pool: int
    adds_into_first: bool


@dataclass(frozen=True)
class Program:
    """A schedule as numbered values: what storage planning needs and nothing else."""

    steps: Tuple[ProgramStep, ...]
    values: Tuple[Value, ...]
    elements: Tuple[int, ...]
    bytes: Tuple[int, ...]
    #: Equal where two dtypes are; see :func:`dtype_number`.
    dtype: Tuple[int, ...]
    item_bytes: Tuple[int, ...]
    #: The memory is the caller's (arrays for gradients and a CachedOp's outputs): no block.
    external: Tuple[bool, ...]
    #: How often the value is an output of the whole graph.
    held: Tuple[int, ...]
    #: The value must not lie in an arena.
    own_buffer: Tuple[bool, ...]
    #: MXNet's rules differ by who runs the step: an executor or a CachedOp.
    count_ignored: bool = False
    rounding: int = 4


class Block(NamedTuple):
    """Memory that is in use from step ``start`` through step ``end``, both included."""

    start: int
    #: The number of steps when it is never released.
    end: int
    bytes: int
    elements: int
    device: int = 0
    pool: int = 0
    #: It must not lie in an arena.
    own_buffer: bool = False


@dataclass(frozen=True)
class Blocks:
    """The blocks of a program, in the order in which MXNet requests memory for them."""

    num_steps: int
    blocks: Tuple[Block, ...]
    #: Block ids in the order of their release.
    released: Tuple[int, ...]
    #: Block of each value; -1 without one.
    block_of: Tuple[int, ...]
    #: MXNet's ``storage_inplace_index`` of each value: position of the input whose memory it
    #: takes, -1 when it has its own, -2 when no op reads it.
    inplace_index: Tuple[int, ...]


def number_of_elements(size_bytes: int, shape: Sequence[int], item_bytes: int) -> int:
    """Elements of a tensor; from its size when the shape is not known."""
    if not shape:
        return size_bytes // item_bytes
    return math.prod(shape)


#: The library's number of each dtype.
_NUMBERS = {name: number for number, name in enumerate(DTYPES)}


def dtype_number(name: str) -> int:
    """A number that no other dtype has."""
    return _NUMBERS[name]


def build_program(graph: Graph, schedule: Schedule) -> Program:
    """Number the values that the steps of a schedule make.

    ``schedule``: each step names the steps that made its inputs; see
        :class:`memonger.graph.schedule.Step`.
    Linear time and size.
    Raises ValueError if a step reads from a step that does not make the tensor, or a dtype is
    unknown.
    """
    ops = effective_ops(graph, schedule.variants)
    numbers: List[Dict[int, int]] = []
    values: List[Value] = []
    steps: List[ProgramStep] = []
    first = [-1] * len(ops)
    runs = [0] * len(ops)
    cached = graph.pools == "cached_op"
    own_buffer: Set[int] = set()
    for index, step in enumerate(schedule.steps):
        op = ops[step.op]
        inputs = []
        for tensor, source in zip(op.inputs, step.sources):
            if 0 <= source < index:
                tensor = graph.read_as(tensor, schedule.steps[source].op)
            if source >= 0 and (source >= index or tensor not in numbers[source]):
                raise ValueError("step %d (%s) reads %r from step %d, which does not make it"
                                 % (index, op.name, graph.tensors[tensor].name, source))
            inputs.append(numbers[source][tensor] if source >= 0 else -1)
        made = {}
        for position, tensor in enumerate(op.outputs):
            made[tensor] = len(values)
            values.append(Value(tensor, index, position))
        numbers.append(made)
        values_here = (*inputs, *made.values())
        own_buffer.update(values_here[position] for position in op.own_buffers)
        if not runs[step.op]:
            first[step.op] = index
        steps.append(ProgramStep(
            step.op, runs[step.op], tuple(inputs), tuple(made.values()),
            tuple(op.ignored_inputs), op.inplace, op.device,
            int(cached and (op.is_backward or runs[step.op] > 0)),
            op.adds_into_first))
        runs[step.op] += 1
    held = [0] * len(values)
    producer = {tensor: op for op, item in enumerate(ops) for tensor in item.outputs}
    for tensor in graph.outputs:
        maker = first[producer[tensor]] if tensor in producer else -1
        if maker >= 0:
            held[numbers[maker][tensor]] += 1
    for tensor in _held_for_gradients(graph, ops, producer, runs):
        held[numbers[first[producer[tensor]]][tensor]] += 1
    tensors = [graph.tensors[graph.owner(value.tensor)] for value in values]
    for item in tensors:
        if item.dtype not in DTYPES:
            raise ValueError("tensor %r has the unknown dtype %r" % (item.name, item.dtype))
    item_bytes = tuple(DTYPES[tensor.dtype] for tensor in tensors)
    read = {value for step in steps for position, value in enumerate(step.inputs)
            if position not in step.ignored}
    return Program(
        tuple(steps), tuple(values),
        tuple(number_of_elements(t.size_bytes, t.shape, b) for t, b in zip(tensors, item_bytes)),
        tuple(t.size_bytes for t in tensors), tuple(dtype_number(t.dtype) for t in tensors),
        item_bytes, tuple(_needs_no_memory(graph, value.tensor, steps[value.step].clone,
                                           number in read or held[number] > 0)
                          for number, value in enumerate(values)), tuple(held),
        tuple(value in own_buffer for value in range(len(values))),
        count_ignored=cached, rounding=1 if graph.pools in ("cached_op", "units") else 4)


def _needs_no_memory(graph: Graph, tensor: int, clone: int, needed: bool) -> bool:
    """Whether a value's memory is the caller's or the host's, or it is a view that nobody reads.

    The caller has the array of an output; what a second run of its op makes lies in the pool. Ops
    of another device are not recomputable, and neither run of theirs counts.
    """
    made = graph.tensors[tensor]
    again = clone > 0 and graph.ops[made.producer].recomputable
    return made.space == "host" or not (made.pooled or again) \
        or (not needed and made.storage_of >= 0)


def own_buffer_tensors(implementation: Union[Op, Implementation]) -> FrozenSet[int]:
    """Tensors whose values must not lie in an arena where the op reads or makes them."""
    values = implementation.inputs + implementation.outputs
    return frozenset(values[position] for position in implementation.own_buffers)


def _held_for_gradients(graph: Graph, ops: Sequence[Op], producer: Mapping[int, int],
                        runs: Sequence[int]) -> List[int]:
    # A gradient that nobody asked for would read the clone, if there is one. The clone's inputs
    # stay instead, and so on down.
    held: List[int] = []
    seen: Set[int] = set()
    stack = list(reversed(graph.held_for_gradients))
    while stack:
        tensor = stack.pop()
        if tensor in seen or tensor not in producer or not runs[producer[tensor]]:
            continue
        seen.add(tensor)
        op = ops[producer[tensor]]
        if runs[producer[tensor]] > 1 and op.outputs.index(tensor) not in op.kept_outputs:
            stack.extend(reversed(op.inputs))
        else:
            held.append(tensor)
    return held
