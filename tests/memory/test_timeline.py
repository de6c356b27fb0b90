"""The timeline: exact on a small net, and consistent with storage on random ones."""
from __future__ import annotations

import pytest
import strategies
from hypothesis import given

from memonger.graph.schedule import expand
from memonger.graph.types import Graph, Op, Tensor
from memonger.memory.storage import plan_storage
from memonger.memory.timeline import Alive, timeline

MIB = 2**20


def small_net():
    """x -> a -> b -> backward of b, then of a, which reads a: 1 MiB each."""
    def tensor(name, producer, category="activation"):
        space = "device" if producer != 3 else "outside"
        return Tensor(name, MIB, producer, category, space, (2**18,))
    return Graph(
        (tensor("a", 0), tensor("b", 1, "output"), tensor("gb", 2), tensor("ga", 3, "gradient")),
        (Op.of("a", "Op", (), (0,), workspace_bytes=7), Op.of("b", "Op", (0,), (1,)),
         Op.of("gb", "Op", (1,), (2,), True, 1), Op.of("ga", "Op", (0, 2), (3,), True, 0)),
        (1, 3))


def test_an_unplanned_step():
    graph = small_net()
    found = timeline(graph, expand(graph, {}))
    assert found.names == ("a", "b", "gb", "ga")
    assert found.live_bytes == (MIB, 2 * MIB, 3 * MIB, 3 * MIB)
    assert (found.peak_step, found.peak_live_bytes, found.pool_bytes) == (2, 3 * MIB, 3 * MIB)
    assert found.by_category == {
        "activations": (MIB,) * 4, "outputs": (0, MIB, MIB, MIB), "recomputed": (0,) * 4,
        "gradients": (0, 0, MIB, MIB)}
    assert found.workspace_bytes == (7, 0, 0, 0)
    assert found.is_backward == (False, False, True, True)
    assert found.at_peak == (Alive("a", "a", MIB, "activations", 0, 3),
                             Alive("b", "b", MIB, "outputs", 1, 4),
                             Alive("gb", "gb", MIB, "gradients", 2, 3))


def test_a_clone_has_a_number_and_a_category():
    graph = small_net()
    found = timeline(graph, expand(graph, {0: {}}))
    assert found.names == ("a", "b", "gb", "a#1", "ga")
    assert found.by_category["recomputed"] == (0, 0, 0, MIB, MIB)
    assert [a.op for a in found.alive_at(3)] == ["b", "gb", "a#1"]


def test_a_step_out_of_range_is_refused():
    found = timeline(small_net(), expand(small_net(), {}))
    with pytest.raises(IndexError, match="step 4 of 4"):
        found.alive_at(4)


@given(strategies.planned_graphs())
def test_columns_add_up(case):
    graph, schedule = case
    for model in ("best", "stock", "live"):
        found = timeline(graph, schedule, model)
        storage = plan_storage(graph, schedule, model)
        assert max(found.live_bytes) == found.peak_live_bytes == storage.peak_live_bytes
        assert found.pool_bytes == storage.pool_bytes
        for step, live in enumerate(found.live_bytes):
            alive = found.alive_at(step)
            assert live == sum(a.bytes for a in alive) <= found.buffer_bytes[step]
            assert found.buffer_bytes[step] <= found.pool_bytes
            for category, column in found.by_category.items():
                assert column[step] == sum(a.bytes for a in alive if a.category == category)
        sizes = [a.bytes for a in found.at_peak]
        assert sizes == sorted(sizes, reverse=True)


@given(strategies.live_graphs())
def test_graphs_of_other_planners_have_no_buffers(case):
    found = timeline(*case, "live")
    assert found.buffer_bytes == found.live_bytes
    assert max(found.live_bytes) == found.pool_bytes
