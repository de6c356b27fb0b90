"""Views lie in the memory of the tensor that they are views of, whatever their shape."""
from __future__ import annotations

import json
import random
from dataclasses import replace

import pytest

from memonger.graph.imported import parse_graph
from memonger.graph.schedule import expand
from memonger.graph.types import DTYPES, Graph, Inplace, Op, Tensor
from memonger.memory.storage import plan_storage
from memonger.solve import Options, solve
from memonger.solve.mip.least_bytes import minimum_peak_bound
from memonger.solve.mip.problem import reduce_graph
from memonger.solve.search.native import NativeSearch


def step_with_views(rng: random.Random, num_forward: int = 8) -> Graph:
    """A forward pass half of whose ops make views, and a chain of gradients that reads both."""
    tensors = [Tensor("x", 64, -1, "input", "outside", (16,))]
    ops = []

    def add(name, inputs, view=False, backward=False, forward_op=-1, category="activation"):
        dtype = rng.choice(("float32", "float16", "complex64"))
        number = len(tensors)
        if view:
            source = tensors[inputs[0]]
            owner = source.storage_of if source.storage_of >= 0 else inputs[0]
            tensors.append(Tensor(name, source.size_bytes, len(ops), category, source.space,
                                  (rng.randint(1, 4),), dtype, owner))
        else:
            shape = (rng.choice((1, 4, 16, 64)),)
            tensors.append(Tensor(name, shape[0] * DTYPES[dtype], len(ops), category, "device",
                                  shape, dtype))
        ops.append(Op.of(name, "op", tuple(inputs), (number,), backward, forward_op,
                         inplace=(Inplace(0, 0, True),) if view else (),
                         time_s=0.0 if view else 1.0))
        return number

    values = [0, add("first", [0])]
    for number in range(num_forward):
        if rng.random() < 0.5:
            values.append(add("view%d" % number, [rng.choice(values[1:])], view=True))
        else:
            values.append(add("op%d" % number, rng.sample(values, min(len(values), 2))))
    gradient = add("loss", [values[-1]], category="output")
    outputs = [gradient]
    for number in reversed(range(num_forward)):
        gradient = add("grad%d" % number, [gradient, *rng.sample(values, rng.randint(0, 2))],
                       backward=True, forward_op=number + 1)
    graph = Graph(tuple(tensors), tuple(ops), (*outputs, gradient))
    graph.check()
    return graph


def peak_of(graph, schedule):
    """The peak by storages: each lives from the op that makes it to the last read of any view."""
    storage_of, ends, sizes = {}, {}, {}
    for index, step in enumerate(schedule.steps):
        op = graph.ops[step.op]
        for source, tensor in zip(step.sources, op.inputs):
            if source >= 0:
                ends[storage_of[source, tensor]] = index
        output, = op.outputs
        made = graph.tensors[output]
        if made.storage_of >= 0:
            storage_of[index, output] = storage_of[step.sources[0], op.inputs[0]]
            continue
        storage_of[index, output] = (index, output)
        ends[index, output], sizes[index, output] = index, made.size_bytes
    ran = [step.op for step in schedule.steps]
    for tensor in graph.outputs:
        first = ran.index(graph.tensors[tensor].producer)
        ends[storage_of[first, tensor]] = len(schedule.steps)
    return max(sum(size for storage, size in sizes.items() if storage[0] <= index <= ends[storage])
               for index in range(len(schedule.steps)))


@pytest.mark.parametrize("first", range(0, 200, 50))
def test_peaks_are_those_of_the_storages(first):
    for seed in range(first, first + 50):
        rng = random.Random(seed)
        graph = step_with_views(rng, rng.randint(2, 14))
        again = {op: {} for op, o in enumerate(graph.ops) if not o.is_backward
                 and rng.random() < 0.5}
        for schedule in (expand(graph, {}), expand(graph, again)):
            assert plan_storage(graph, schedule, "live").pool_bytes == peak_of(graph, schedule)


@pytest.mark.parametrize("seed", range(25))
def test_plans_of_graphs_with_views_hold(seed):
    """The search, the bounds and the check of every plan count views alike."""
    graph = step_with_views(random.Random(seed), 10)
    core = NativeSearch(graph, Options(storage="live"))
    found = core.evaluate(core.unplanned())
    assert found.pool_bytes == found.peak_bytes == peak_of(graph, expand(graph, {}))
    plan = solve(graph, None, "auto", Options(storage="live", objective="memory",
                                              time_limit_s=0.1))
    assert plan.pool_bytes == peak_of(graph, plan.schedule)
    assert minimum_peak_bound(reduce_graph(graph, "none")).bytes <= plan.pool_bytes


def test_graphs_with_views_are_saved_and_checked():
    graph = step_with_views(random.Random(1))
    assert parse_graph(json.dumps(graph.to_dict()), "") == graph
    number = next(i for i, t in enumerate(graph.tensors) if t.storage_of >= 0)
    view = graph.tensors[number]
    for wrong in (replace(view, size_bytes=view.size_bytes + 4), replace(view, storage_of=number),
                  replace(view, storage_of=99), replace(view, storage_of=0)):
        tensors = (*graph.tensors[:number], wrong, *graph.tensors[number + 1:])
        with pytest.raises(ValueError, match="is a view of"):
            replace(graph, tensors=tensors).check()
