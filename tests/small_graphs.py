"""Small graphs with known or searchable optima, and storage of values by their lives."""
from __future__ import annotations

import heapq
import random
from typing import Dict, FrozenSet, Optional, Tuple

import numpy as np

from memonger.graph.offers import Offer, offering
from memonger.graph.types import Graph, Implementation, Inplace, Op, Tensor
from memonger.memory.liveness import Program as StorageProgram
from memonger.memory.liveness import ProgramStep, Value
from memonger.memory.storage import StoragePlan, plan_program
from memonger.solve.effort import Effort
from memonger.solve.mip import highs
from memonger.solve.mip.formulation import build
from memonger.solve.mip.problem import reduce_graph
from memonger.solve.mip.program import Program, integer_columns


def random_graph(seed: int, inplace: bool, forward: int = 5) -> Graph:
    """A small training graph: a random forward part and its reversed backward part."""
    rng = random.Random(seed)
    tensors, ops = [], []

    def op(name: str, inputs: Tuple[int, ...], backward: bool, reason: str) -> int:
        position = len(ops)
        tensors.append(Tensor(name, rng.choice((1, 2, 4, 4)) * 256, position))
        places = tuple(Inplace(i, 0, rng.random() < 0.3) for i in range(len(inputs))
                       if rng.random() < 0.3 and inplace
                       and tensors[inputs[i]].size_bytes == tensors[-1].size_bytes)
        ops.append(Op.of(name, "op", inputs, (len(tensors) - 1,), backward, inplace=places,
                         not_recomputable_because=reason, time_s=float(rng.randint(0, 6))))
        return len(tensors) - 1

    made = []
    for i in range(forward):
        sources = tuple(sorted(rng.sample(made, min(len(made), rng.randint(1, 2)))))
        made.append(op("f%d" % i, sources, False, "random" if rng.random() < 0.1 else ""))
    gradient: Tuple[int, ...] = ()
    for i in reversed(range(forward)):
        reads = tuple(t for t in made[max(0, i - 2):i + 1] if rng.random() < 0.6)
        gradient = (op("b%d" % i, tuple(sorted(reads)) + gradient, True, "backward"),)
    graph = Graph(tuple(tensors), tuple(ops), (made[-1],) if rng.random() < 0.5 else ())
    graph.check()
    return graph


def optimum(graph: Graph, budget: float) -> Optional[float]:
    """Least extra time by exhaustive search over (next op, values in memory); None: no plan."""
    first_backward = next((i for i, op in enumerate(graph.ops) if op.is_backward), len(graph.ops))
    sizes = [t.size_bytes for t in graph.tensors]
    keep = frozenset(graph.outputs)
    group = list(range(len(sizes)))
    for op in graph.ops:
        for option in op.inplace:
            if option.identity:
                one, other = group[op.inputs[option.input]], group[op.outputs[option.output]]
                group = [min(one, other) if g in (one, other) else g for g in group]

    def bytes_of(held: FrozenSet[int]) -> int:
        largest: Dict[int, int] = {}
        for tensor in held:
            root = group[tensor]
            largest[root] = max(largest.get(root, 0), sizes[tensor])
        return sum(largest.values())

    def must_stay(position: int) -> FrozenSet[int]:
        stay = {t for t in keep if graph.tensors[t].producer < position}
        if position < first_backward:
            stay |= {t for later in graph.ops[position:first_backward] for t in later.inputs
                     if graph.tensors[t].producer < position}
        return frozenset(stay)

    def runs(held: FrozenSet[int], index: int, after: FrozenSet[int]):
        """Memory while op ``index`` runs with ``held`` in memory, ``after`` wanted later."""
        op = graph.ops[index]
        during = held | set(op.outputs)
        whole = bytes_of(during)
        saved = 0
        for option in op.inplace:
            source, target = op.inputs[option.input], op.outputs[option.output]
            if source not in after and not option.identity and group[source] != group[target]:
                saved = max(saved, min(sizes[source], sizes[target]))
        return whole - saved

    queue = [(0.0, 0, 0, frozenset())]
    best = {}
    while queue:
        time, _, position, held = heapq.heappop(queue)
        if best.get((position, held), float("inf")) < time:
            continue
        if position == len(graph.ops):
            return time
        moves = []
        if set(graph.ops[position].inputs) <= held:
            moves.append((position, position + 1, 0.0))
        if position >= first_backward:
            for index in range(min(position, first_backward)):
                op = graph.ops[index]
                if op.recomputable and not op.is_backward and set(op.inputs) <= held \
                        and not set(op.outputs) <= held:
                    moves.append((index, position, op.time_s))
        for index, following, cost in moves:
            everything = held | set(graph.ops[index].outputs)
            stay = must_stay(following)
            loose = sorted(everything - stay)
            for mask in range(1 << len(loose)):
                after = frozenset(stay & everything) | frozenset(
                    t for i, t in enumerate(loose) if mask >> i & 1)
                if not stay <= everything or runs(held, index, after) > budget:
                    continue
                state = (following, after)
                if time + cost < best.get(state, float("inf")):
                    best[state] = time + cost
                    heapq.heappush(queue, (time + cost, len(best), following, after))
    return None


def chain(sizes: Tuple[int, ...], times: Tuple[float, ...]) -> Graph:
    tensors = [Tensor("t%d" % i, size, i) for i, size in enumerate(sizes)]
    ops = [Op.of("f%d" % i, "op", (i - 1,) if i else (), (i,), time_s=t)
           for i, t in enumerate(times)]
    gradient: Tuple[int, ...] = ()
    for i in reversed(range(len(sizes))):
        tensors.append(Tensor("g%d" % i, 100, len(ops)))
        ops.append(Op.of("b%d" % i, "op", (i,) + gradient, (len(tensors) - 1,), True,
                         not_recomputable_because="backward", time_s=1.0))
        gradient = (len(tensors) - 1,)
    return Graph(tuple(tensors), tuple(ops), ())


def taken_in_place() -> Graph:
    """A gradient may take the memory of a value that a later op reads, too."""
    tensors = (Tensor("value", 400, 0), Tensor("result", 100, 1), Tensor("gradient", 100, 2),
               Tensor("first", 400, 3), Tensor("second", 4, 4))
    ops = (Op.of("make", "op", (), (0,), False, time_s=5.0),
           Op.of("use", "op", (0,), (1,), False, time_s=1.0),
           Op.of("use_backward", "op", (1,), (2,), True, time_s=1.0),
           Op.of("first_backward", "op", (2, 0), (3,), True, inplace=(Inplace(1, 0, False),),
                 time_s=1.0),
           Op.of("second_backward", "op", (3, 0), (4,), True, time_s=1.0))
    return Graph(tensors, ops, ())


def variant_graph(saving_s: float) -> Graph:
    """Two ops whose variant keeps a small mask where the base keeps the large value."""
    tensors = (Tensor("a", 800, 0), Tensor("b", 800, 1), Tensor("c", 800, 2), Tensor("gb", 100, 3),
               Tensor("ga", 100, 4), Tensor("mask", 50, 1))
    ops = (Op.of("f0", "op", (), (0,), time_s=5.0, not_recomputable_because="random"),
           Op.of("f1", "op", (0,), (1,), time_s=4.0), Op.of("f2", "op", (1,), (2,), time_s=3.0),
           Op.of("b1", "op", (1, 2), (3,), True, not_recomputable_because="backward", time_s=1.0),
           Op.of("b0", "op", (0, 3), (4,), True, not_recomputable_because="backward", time_s=1.0))
    offer = Offer("mask", 1, (
        (1, Implementation((0,), (1, 5), time_s=4.0 - saving_s)),
        (3, Implementation((2, 5), (3,), time_s=1.5)),
        (4, Implementation((3, 5), (4,), time_s=1.0))))
    return offering(Graph(tensors, ops, ()), [offer])


def violation(program: Program, values: np.ndarray) -> float:
    """How far a point is from satisfying the program."""
    rows = np.repeat(np.arange(program.num_rows), np.diff(program.start))
    activity = np.bincount(rows, weights=program.value * values[program.index],
                           minlength=program.num_rows)
    return max(float(np.max(part, initial=0.0)) for part in (
        program.row_lower - activity, activity - program.row_upper,
        program.lower - values, values - program.upper))


def integer_bound_s(graph: Graph, budget_bytes: int, variants: str = "none") -> float:
    """The least extra time by the 0/1 program that constrains every op."""
    program = build(reduce_graph(graph, variants), range(len(graph.ops)), budget_bytes)
    return highs.solve_integer(program, integer_columns(program), Effort(5.0)).bound


def program_of(*lives: Tuple[int, int, int]) -> StorageProgram:
    """Values with these lives: first step, last step, elements of four bytes."""
    steps = tuple(ProgramStep(
        step, 0, tuple(i for i, life in enumerate(lives) if life[0] < life[1] == step),
        tuple(i for i, life in enumerate(lives) if life[0] == step), (), (), 0, 0, False)
        for step in range(1 + max(life[1] for life in lives)))
    count = len(lives)
    return StorageProgram(
        steps, tuple(Value(i, life[0], steps[life[0]].outputs.index(i))
                     for i, life in enumerate(lives)),
        tuple(life[2] for life in lives), tuple(4 * life[2] for life in lives), (0,) * count,
        (4,) * count, (False,) * count, (0,) * count, (False,) * count)


def storage_of(*lives: Tuple[int, int, int], model: str) -> StoragePlan:
    """Storage of values with these lives; blocks come in order of first step, largest first."""
    return plan_program(program_of(*lives), model)
