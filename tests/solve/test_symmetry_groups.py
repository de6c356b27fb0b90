"""Large graphs of repeated blocks: decided by groups of like values."""
import pytest
from training_nets import attention

from memonger.graph.types import Graph
from memonger.solve import Options
from memonger.solve.search.native import NativeSearch

STEPS = 300


@pytest.fixture(scope="module")
def graph() -> Graph:
    return attention(STEPS)


def searched(graph, share, variants="exact", work=20 * 10 ** 6):
    core = NativeSearch(graph, Options(storage="live", variants=variants))
    room = int(share * core.evaluate(core.unplanned()).pool_bytes)
    return core.search(room, work, 60.0, 1)


@pytest.mark.parametrize("variants", ["none", "exact"])
@pytest.mark.parametrize("share", [0.75, 0.3])
def test_a_wide_value_is_made_again_from_the_narrow_one(graph, variants, share):
    # Two wide values of a step stay without variants, each made again from the other; with them
    # only the tanh, made again by way of the sum.
    again = (1 - share) if variants == "none" else 2 * max(0.0, 0.5 - share)
    found = searched(graph, share, variants)
    assert found.feasible
    assert found.cost_s - graph.time_s <= 1e-6 * (1.1 * again * 2 * STEPS + 8)


def test_smaller_graphs_start_with_groups_as_well():
    small = attention(100)
    found = searched(small, 0.5, work=7 * 10 ** 6)
    assert found.feasible and found.cost_s - small.time_s <= 2e-5


def test_the_same_work_finds_the_same_plan(graph):
    assert searched(graph, 0.3, work=5 * 10 ** 6) == searched(graph, 0.3, work=5 * 10 ** 6)
