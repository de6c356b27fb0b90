"""Memory of a schedule by a slow, independent method; :mod:`reference.judge` compares.

It shares nothing with :mod:`memonger.memory.liveness` or the native library. Instead of counting
references down, it answers each question ("does anybody still read this?") by looking at all later
steps, so the time is quadratic.
"""
from __future__ import annotations

from dataclasses import dataclass, field
from typing import Dict, List, Sequence, Set, Tuple

import numpy as np

from memonger.graph.schedule import Schedule
from memonger.graph.types import Graph, Op
from memonger.plans.validate import chosen_ops

#: A value: the step that makes it, and the tensor.
Value = Tuple[int, int]

_ITEM_BYTES = {"float64": 8, "int64": 8, "uint64": 8, "float32": 4, "int32": 4, "uint32": 4,
               "float16": 2, "bfloat16": 2, "int16": 2, "uint16": 2, "int8": 1, "uint8": 1,
               "bool": 1}


@dataclass
class Life:
    """Values that share memory, and the steps through which it is in use."""

    values: List[Value]
    elements: int
    device: int
    pool: int
    start: int
    end: int = -1
    bytes: int = 0


@dataclass
class Memory:
    """All lives of a schedule, in the order in which they begin, and how they end."""

    steps: int
    lives: List[Life] = field(default_factory=list)
    #: Lives that end at each step, in order.
    ending: List[List[int]] = field(default_factory=list)
    rounding: int = 4

    def life_of(self) -> Dict[Value, int]:
        return {value: i for i, life in enumerate(self.lives) for value in life.values}

    def peak(self) -> int:
        """Most bytes alive at a step."""
        starts = np.array([life.start for life in self.lives], dtype=np.int64)
        ends = np.array([life.end for life in self.lives], dtype=np.int64)
        sizes = np.array([life.bytes for life in self.lives], dtype=np.int64)
        return max((int(sizes[(starts <= step) & (step <= ends)].sum())
                    for step in range(self.steps)), default=0)

    def rounded(self, life: int) -> int:
        size = self.lives[life].bytes
        return size + -size % self.rounding


class _Reads:
    """Who reads which value: answers by searching all steps."""

    def __init__(self, graph: Graph, schedule: Schedule, ops: Sequence[Op], pools: List[int],
                 cached: bool):
        self.steps: Dict[Value, List[int]] = {}
        #: Reads that MXNet never counts down again, and network outputs.
        self.forever: Dict[Value, int] = {}
        self.everything: Dict[Value, int] = {}
        first: Dict[int, int] = {}
        for index, step in enumerate(schedule.steps):
            first.setdefault(step.op, index)
            op = ops[index]
            for position, (tensor, source) in enumerate(zip(op.inputs, step.sources)):
                if source < 0:
                    continue
                value = (source, tensor)
                self.everything[value] = self.everything.get(value, 0) + 1
                ignored = position in op.ignored_inputs
                if cached and (ignored or pools[source] != pools[index]):
                    self.forever[value] = self.forever.get(value, 0) + 1
                elif not ignored:
                    self.steps.setdefault(value, []).append(index)
        for tensor in graph.outputs:
            for index, step in enumerate(schedule.steps):
                if first[step.op] == index and tensor in ops[index].outputs:
                    value = (index, tensor)
                    self.forever[value] = self.forever.get(value, 0) + 1
                    self.everything[value] = self.everything.get(value, 0) + 1
        for tensor in _unasked(graph, schedule, ops):
            maker = next(i for i, op in enumerate(ops) if tensor in op.outputs)
            self.forever[maker, tensor] = self.forever.get((maker, tensor), 0) + 1

    def pending(self, values: Sequence[Value], step: int) -> int:
        """Reads of these values from this step on."""
        return sum(self.forever.get(v, 0) + sum(s >= step for s in self.steps.get(v, ()))
                   for v in values)


def _unasked(graph: Graph, schedule: Schedule, ops: Sequence[Op]) -> List[int]:
    # Tensors whose first run stays for gradients that the user did not ask for: those read
    # clones where there are any, and then the inputs of the clones stay.
    queue = list(graph.held_for_gradients)
    for tensor in queue:
        made = [op for op in ops if tensor in op.outputs]
        if len(made) > 1 and made[0].outputs.index(tensor) not in made[0].kept_outputs:
            queue += [t for t in made[0].inputs if t not in queue]
    return [tensor for tensor in queue if any(tensor in op.outputs for op in ops) and (
        sum(tensor in op.outputs for op in ops) == 1
        or next(op.outputs.index(tensor) in op.kept_outputs
                for op in ops if tensor in op.outputs))]


def examine(graph: Graph, schedule: Schedule) -> Memory:
    """All lives of a schedule whose steps and sources are known to be right."""
    chosen = chosen_ops(graph, schedule.variants)
    ops = [op for op in (chosen[step.op] for step in schedule.steps) if op is not None]
    # Each reads what its sources made; what hands a value on makes nothing else.
    ops = [op.changed(inputs=tuple(
        ops[s].outputs[0] if s >= 0 and ops[s].hands_on == t else t
        for t, s in zip(op.inputs, step.sources))) for op, step in zip(ops, schedule.steps)]
    cached = graph.pools == "cached_op"
    pools: List[int] = []
    again: List[bool] = []
    seen: Set[int] = set()
    for step, op in zip(schedule.steps, ops):
        again.append(step.op in seen)
        pools.append(1 if cached and (op.is_backward or again[-1]) else 0)
        seen.add(step.op)
    reads = _Reads(graph, schedule, ops, pools, cached)
    memory = Memory(len(ops), rounding=1 if graph.pools in ("cached_op", "units") else 4)
    where: Dict[Value, int] = {}

    def elements(tensor: int) -> int:
        item = graph.tensors[tensor]
        return int(np.prod(item.shape, dtype=np.int64)) if item.shape \
            else item.size_bytes // _ITEM_BYTES[item.dtype]

    def in_pool(index: int, tensor: int) -> bool:
        space = graph.tensors[tensor].space
        return space == "device" or (space == "outside" and again[index])

    def may_share(index: int, op: Op, source: Value, target: Value, identity: bool) -> bool:
        old, new = graph.tensors[source[1]], graph.tensors[target[1]]
        if not in_pool(*target) or target in where or source not in where:
            return False
        life = memory.lives[where[source]]
        alone = reads.pending(life.values, index) == 1 \
            and len(set(op.ignored_inputs)) < len(op.inputs)
        return (life.pool == pools[index] and reads.pending([target], index) > 0
                and reads.pending(life.values, index) > 0
                and elements(source[1]) == elements(target[1])
                and _ITEM_BYTES[old.dtype] == _ITEM_BYTES[new.dtype]
                and (alone or (identity and old.dtype == new.dtype)))

    for index, (step, op) in enumerate(zip(schedule.steps, ops)):
        used: Set[int] = set()
        for option in op.inplace:
            source = (step.sources[option.input], op.inputs[option.input])
            target = (index, op.outputs[option.output])
            if option.input not in used and may_share(index, op, source, target, option.identity):
                used.add(option.input)
                where[target] = where[source]
                memory.lives[where[source]].values.append(target)
        fresh = [(elements(t), k, t) for k, t in enumerate(op.outputs)
                 if in_pool(index, t) and (index, t) not in where]
        for count, _, tensor in sorted(fresh)[::-1]:
            where[index, tensor] = len(memory.lives)
            memory.lives.append(Life([(index, tensor)], count, op.device, pools[index], index))
    unused = _added(schedule, ops, reads, where)
    for life in memory.lives:
        needed = [s for value in life.values for s in reads.steps.get(value, ())]
        endless = any(value in reads.forever for value in life.values)
        life.end = memory.steps if endless else max(needed + [life.start])
        life.bytes = max((graph.tensors[t].size_bytes for s, t in life.values
                          if (s, t) not in unused), default=0)
    for index, (step, op) in enumerate(zip(schedule.steps, ops)):
        ended: List[int] = []
        read = [where.get((s, t)) for k, (s, t) in enumerate(zip(step.sources, op.inputs))
                if k not in op.ignored_inputs]
        touched = [which for k, which in enumerate(read) if which not in read[k + 1:]]
        for number in touched + [where.get((index, tensor)) for tensor in op.outputs]:
            if number is not None and memory.lives[number].end == index and number not in ended:
                ended.append(number)
        memory.ending.append(ended)
    return memory


def _added(schedule: Schedule, ops: Sequence[Op], reads: _Reads,
           where: Dict[Value, int]) -> Set[Value]:
    # Right operands of sums in place, whose own memory MXNet leaves unused.
    found: Set[Value] = set()
    for index, (step, op) in enumerate(zip(schedule.steps, ops)):
        if not op.adds_into_first or len(op.inputs) != 2 or min(step.sources) < 0:
            continue
        left, right = tuple(zip(step.sources, op.inputs))
        if where.get(left) == where.get((index, op.outputs[0])) \
                and reads.everything[right] == 1 and left[0] < right[0]:
            found.add(right)
    return found


def stock_pool(memory: Memory) -> int:
    """Real bytes of the pool that MXNet's own allocator makes of these lives."""
    sizes: List[int] = []
    contents: List[List[int]] = []
    buffer_of: Dict[int, int] = {}
    for pool in sorted({life.pool for life in memory.lives}):
        free: List[Tuple[int, int]] = []  # (size, buffer) in order of release
        starting: List[List[int]] = [[] for _ in range(memory.steps)]
        for index, life in enumerate(memory.lives):
            if life.pool == pool:
                starting[life.start].append(index)
        for step in range(memory.steps):
            for index in starting[step]:
                life = memory.lives[index]
                size = 4 * life.elements
                same = [entry for entry in free if memory.lives[contents[entry[1]][0]].device
                        == life.device]
                larger = [e for e in same if size <= e[0] <= 16 * size]
                smaller = [e for e in same if size // 16 <= e[0] < size]
                if larger:
                    entry = min(larger, key=lambda e: e[0])  # first of equals
                elif smaller:
                    entry = max(reversed(smaller), key=lambda e: e[0])  # last of equals
                else:
                    entry = (0, len(sizes))
                    sizes.append(0)
                    contents.append([])
                if larger or smaller:
                    free.remove(entry)
                buffer = entry[1]
                sizes[buffer] = max(sizes[buffer], size)
                contents[buffer].append(index)
                buffer_of[index] = buffer
            free.extend((sizes[buffer_of[i]], buffer_of[i]) for i in memory.ending[step]
                        if memory.lives[i].pool == pool)
    return sum(max(memory.rounded(i) for i in lives) for lives in contents)


def host_peak(graph: Graph, schedule: Schedule) -> int:
    """Most bytes on the host at a step, by looking at every step for every value."""
    ops = chosen_ops(graph, schedule.variants)
    steps = schedule.steps
    host = [t for t, record in enumerate(graph.tensors) if record.space == "host"]

    def alive(tensor: int, made: int, now: int) -> bool:
        if made > now or tensor not in ops[steps[made].op].outputs:
            return False
        return made == now or tensor in graph.outputs or any(
            (t, source) == (tensor, made) and k not in ops[step.op].ignored_inputs
            for step in steps[now:]
            for k, (t, source) in enumerate(zip(ops[step.op].inputs, step.sources)))

    return max((sum(graph.tensors[t].size_bytes for t in host
                    for made in ([-1] if graph.tensors[t].producer < 0 else range(now + 1))
                    if made < 0 or alive(t, made, now))
                for now in range(len(steps))), default=0)
