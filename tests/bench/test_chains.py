"""memonger bench chains: cutting a graph into a chain, and Revolve's actions as our schedule."""
from __future__ import annotations

from typing import Any, List, NamedTuple

import pytest

from memonger.bench import chains
from memonger.graph.schedule import expand
from memonger.graph.types import Graph, Op, Tensor
from memonger.memory.storage import plan_storage
from memonger.util.errors import InputError


class Forward(NamedTuple):
    n0: int
    n1: int
    write_ics: bool


class Copy(NamedTuple):
    n: int


class Move(Copy):
    pass


class Reverse(NamedTuple):
    n1: int
    n0: int


def chain(length: int, skip: bool = False) -> Graph:
    """Forward ops in a row (with ``skip`` the third reads the first, too), then gradients."""
    tensors: List[Tensor] = []
    ops: List[Op] = []

    def op(name: str, inputs: Any, backward: bool, forward_op: int = -1) -> int:
        tensors.append(Tensor(name, 100, len(ops)))
        ops.append(Op(name, "op", tuple(inputs), (len(ops),), backward, forward_op=forward_op,
                      time_s=1.0, keep_reason="backward" if backward else ""))
        return len(ops) - 1

    for i in range(length):
        inputs = [i - 1] if i else []
        op("f%d" % i, inputs + [0] if skip and i == 2 else inputs, False)
    gradient: List[int] = []
    for i in reversed(range(length)):
        gradient = [op("b%d" % i, [i, *gradient], True, i)]
    graph = Graph(tuple(tensors), tuple(ops), (), recompute_in_forward=True)
    graph.check()
    return graph


def test_a_chain_is_cut_everywhere_and_a_skip_nowhere_beneath_it():
    assert chains.cuts(chain(4)) == [0, 1, 2, 3, 4]
    assert chains.cuts(chain(4, skip=True)) == [0, 1, 3, 4]


def test_actions_become_steps_with_the_right_sources():
    graph = chain(3)
    # One snapshot, the start: every segment is run from there again.
    actions = [Forward(0, 2, True), Forward(2, 3, False), Reverse(3, 2),
               Copy(0), Forward(0, 1, False), Forward(1, 2, False), Reverse(2, 1),
               Move(0), Forward(0, 1, False), Reverse(1, 0)]
    schedule = chains.replayed(graph, [0, 1, 2, 3], actions)
    names = [graph.ops[step.op].name for step in schedule.steps]
    assert names == ["f0", "f1", "f2", "b2", "f0", "f1", "b1", "f0", "b0"]
    assert [step.sources for step in schedule.steps] == [
        (), (0,), (1,), (2,), (), (4,), (5, 3), (), (7, 6)]
    assert schedule.time_s(graph) == 9.0


def test_clones_that_nobody_reads_are_left_out():
    graph = chain(2)
    actions = [Forward(0, 2, True), Reverse(2, 1), Copy(0), Forward(0, 2, False), Reverse(1, 0)]
    schedule = chains.replayed(graph, [0, 1, 2], actions)
    assert [graph.ops[step.op].name for step in schedule.steps] == ["f0", "f1", "b1", "f0", "b0"]


def test_the_missing_planner_is_named(monkeypatch):
    import sys
    monkeypatch.setitem(sys.modules, "checkpoint_schedules", None)
    with pytest.raises(InputError, match="pip install checkpoint-schedules"):
        chains.revolve_schedule(chain(4), 2)


def test_revolve_itself():
    pytest.importorskip("checkpoint_schedules")
    graph = chain(12)
    schedule, segments = chains.revolve_schedule(graph, 3)
    assert segments == 12
    whole = expand(graph, {})
    assert plan_storage(graph, schedule, "live").pool_bytes < \
        plan_storage(graph, whole, "live").pool_bytes
    # Griewank and Walther: 12 steps with 3 snapshots.
    assert whole.time_s(graph) < schedule.time_s(graph) <= 2 * whole.time_s(graph)


def test_rows_as_text():
    row = chains.ChainRow("vgg16", 23, 4, 1000, 500, 0.75, None, 0.0)
    text = chains.render([row, chains.ChainRow("vgg16", 23, 8, 1000, 600, 0.5, 0.01, 0.005)])
    assert "none found" in text and "+75.0 %" in text and "40.0 %" in text
