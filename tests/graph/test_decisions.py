"""Decisions that a schedule was made of, and the same in a graph of other sizes."""
from __future__ import annotations

import random
from dataclasses import replace

import pytest
import strategies

from memonger.graph.decisions import carried_over
from memonger.graph.types import Graph


def of_another_batch(graph: Graph) -> Graph:
    """The same ops, all tensors twice as large."""
    return replace(graph, tensors=tuple(
        replace(tensor, size_bytes=2 * tensor.size_bytes) for tensor in graph.tensors))


@pytest.mark.parametrize("seed", strategies.seeds(200, quick=40))
def test_a_schedule_is_the_same_at_another_batch(seed: int) -> None:
    rng = random.Random(seed)
    graph = strategies.variants(rng, strategies.training_graph(rng, 9))
    schedule = strategies.schedule_with_variants(rng, graph)
    assert carried_over(graph, schedule, of_another_batch(graph)) == schedule


@pytest.mark.parametrize("seed", strategies.seeds(100, quick=20))
def test_variants_that_the_other_graph_has_not_are_left_out(seed: int) -> None:
    rng = random.Random(seed)
    graph = strategies.variants(rng, strategies.training_graph(rng, 9))
    schedule = strategies.schedule_with_variants(rng, graph)
    carried = carried_over(graph, schedule, strategies.without_variants(graph))
    assert carried.variants == ()
    assert {step.op for step in carried.steps} == set(range(len(graph.ops)))
    assert set(carried.recomputed()) <= set(schedule.recomputed())


def test_ops_of_another_network_are_not_run_again() -> None:
    graph = strategies.training_graph(random.Random(2), 9)
    renamed = replace(graph, ops=tuple(replace(op, name="other_" + op.name) for op in graph.ops))
    schedule = strategies.schedule_with_variants(random.Random(2), graph)
    assert carried_over(graph, schedule, renamed).recomputed() == ()
