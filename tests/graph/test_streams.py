"""Several streams: when steps run, and what a graph needs so that no memory is touched early."""
from __future__ import annotations

import random
from dataclasses import replace

import pytest
import strategies
from offloaded import chain_of_two_streams, moves, offloading, slower_copies
from reference import clock

from memonger.graph.clock import Run, times_of
from memonger.graph.in_use import graph_in_use
from memonger.graph.schedule import HANDED_ON, Schedule, expand, expand_in_part
from memonger.graph.types import Graph, Implementation, Tensor
from memonger.plans.validate import Kind, structure
from memonger.util.errors import InputError


def on(stream, time_s, *reads):
    return Run(stream, time_s, reads)


@pytest.mark.parametrize("runs, starts", [
    # A stream runs one step after the other.
    ([on("compute", 2.0), on("compute", 1.0)], [0.0, 2.0]),
    # A reader waits for what it reads, on whatever stream; nobody else does.
    ([on("compute", 1.0), on("copy", 5.0, 0), on("compute", 1.0), on("compute", 1.0, 1)],
     [0.0, 1.0, 1.0, 6.0]),
    # Another stream begins behind the steps of compute that are issued before it.
    ([on("compute", 3.0), on("copy", 1.0), on("compute", 1.0)], [0.0, 3.0, 3.0]),
    # Two streams beside compute know each other by what they read only.
    ([on("copy", 4.0), on("network", 1.0), on("network", 1.0, 0)], [0.0, 0.0, 4.0]),
])
def test_when_steps_start(runs, starts):
    assert times_of(runs).start_s == tuple(starts)


def test_a_step_ends_with_its_last_stream():
    times = times_of([on("compute", 1.0), on("network", 5.0, 0), on("compute", 2.0)])
    assert times.total_s == 6.0 and times.compute_s == (1.0, 1.0, 3.0)


def test_copies_that_fit_beside_compute_take_no_time():
    graph = chain_of_two_streams()
    moved = Schedule(expand(graph_in_use(graph, Schedule((), (0,))), {}).steps, (0,))
    assert graph.time_s == moved.time_s(graph) == 8.0
    names = [graph.ops[step.op].name for step in moved.steps]
    start = dict(zip(names, moved.times(graph).start_s))
    assert names == ["a", "b", "store0:a", "c", "d", "wait0:a", "d'", "c'", "fetch0:a", "b'", "a'"]
    assert (start["store0:a"], start["wait0:a"], start["fetch0:a"], start["a'"]) == (2, 4, 6, 7)


def test_copies_that_do_not_fit_are_waited_for():
    slow = slower_copies(chain_of_two_streams(), 4)
    moved = Schedule(expand(graph_in_use(slow, Schedule((), (0,))), {}).steps, (0,))
    # Two seconds at the wait, three at a'.
    assert moved.time_s(slow) == 13.0


@pytest.mark.parametrize("seed", range(100))
def test_times_are_those_of_the_reference(seed):
    graph, schedule = of_any_streams(seed)
    assert schedule.time_s(graph) == clock.time_s(graph, schedule)
    assert list(schedule.times(graph).end_s) == clock.ends_of(graph, schedule)
    assert graph.time_s == expand(graph, {}).time_s(graph)


@pytest.mark.parametrize("seed", range(50))
def test_one_stream_is_the_sum_to_the_last_bit(seed):
    rng = random.Random(seed)
    graph = strategies.training_graph(rng, rng.randint(2, 14))
    graph = graph.with_times([rng.random() for _ in graph.ops])
    schedule = expand_in_part(graph, strategies.decisions(rng, graph))
    times = [graph.ops[step.op].time_s for step in schedule.steps]
    assert schedule.time_s(graph) == sum(times)
    assert graph.time_s == sum(op.time_s for op in graph.ops)
    one_by_one = 0.0
    for time_s in times:
        one_by_one += time_s
    assert schedule.times(graph).total_s == one_by_one


def of_any_streams(seed):
    """A graph whose ops lie on any stream, and a schedule of it."""
    rng = random.Random(seed)
    graph = strategies.variants(rng, strategies.training_graph(rng, rng.randint(2, 14)))
    graph = replace(graph, ops=tuple(replace(
        op, stream=rng.choice(("compute", "compute", "copy", "network"))) for op in graph.ops))
    return graph, strategies.schedule_with_variants(rng, graph)


# ------------------------------------------------------------------------- memory
@pytest.mark.parametrize("gates", [False, True])
@pytest.mark.parametrize("seed", range(60))
def test_no_step_gets_memory_that_another_stream_works_in(seed, gates):
    graph, schedule = moved_at_random(seed, gates)
    assert not list(clock.races(graph, schedule)) and not structure(graph, schedule)


def test_the_reference_finds_memory_that_is_freed_too_early():
    found = 0
    for seed in range(60):
        graph, schedule = moved_at_random(seed, False)
        # Without the waits.
        graph = replace(graph, ops=tuple(
            replace(op, implementations=(op.implementations[0], Implementation((), ())))
            if op.kind == "wait" else op for op in graph.ops))
        steps = tuple(replace(step, sources=()) if graph.ops[step.op].kind == "wait" else step
                      for step in schedule.steps)
        schedule = Schedule(steps, schedule.variants)
        races = list(clock.races(graph, schedule))
        problems = structure(graph, schedule)
        # What is free early is a race where something is made behind it.
        assert {problem.kind for problem in problems} <= {Kind.FREED_EARLY}
        assert bool(problems) >= bool(races)
        found += bool(races)
        if any(graph.variants[v].name == "offload" for v in schedule.variants):
            with pytest.raises(ValueError, match="add one that waits for it"):
                graph.check()
    assert found > 10


def moved_at_random(seed, gates):
    """A graph that offers to move values, and any schedule of it."""
    rng = random.Random(seed)
    graph = strategies.training_graph(rng, rng.randint(4, 14), dtypes=False, pools="allocator")
    chosen = moves(graph, rng.choice((0.0, 2.0, 5.0)), dict.fromkeys(
        range(len(graph.tensors)), rng.choice((0.0, 2.0, 5.0))), least_ops=2)
    graph = offloading(graph, rng.sample(chosen, min(len(chosen), 3)), rng.random() / 50, gates)
    graph.check()
    return graph, strategies.schedule_with_variants(rng, graph)


def changed(graph: Graph, name: str, **fields) -> Graph:
    """The graph with other fields of one op."""
    return replace(graph, ops=tuple(op.changed(**fields) if op.name == name else op
                                    for op in graph.ops))


def refused(graph: Graph, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        graph.check()


def alternative(graph: Graph, name: str, **fields) -> Graph:
    op, = (op for op in graph.ops if op.name == name)
    own, other = op.implementations
    return changed(graph, name, implementations=(own, replace(other, **fields)))


def test_graphs_whose_plans_would_free_memory_too_early_are_refused():
    graph = chain_of_two_streams()
    refused(changed(graph, "c", stream="tape"), "unknown stream 'tape'; one of compute, copy")
    refused(alternative(graph, "store0:a", workspace_bytes=1), "cannot have a workspace")
    # The wait does not read the value, or not what the store makes; or is where a clone serves it.
    refused(alternative(graph, "wait0:a", inputs=(1,)), "reads 'a', and no later op of compute")
    host = next(i for i, t in enumerate(graph.tensors) if t.name == "host:a")
    refused(alternative(graph, "wait0:a", inputs=(host,)), "reads 'a', and no later op of compute")
    refused(changed(graph, "wait0:a", is_backward=True), "reads 'a', and no later op of compute")
    refused(changed(graph, "wait0:a", stream="network"), "reads 'a', and no later op of compute")
    # Nobody reads what is fetched.
    reader, = (op for op in graph.ops if op.name == "a'")
    refused(alternative(graph, "a'", inputs=reader.inputs), "makes 'back:a', and no later op")
    # A variant of the reader that can be chosen beside reads something else.
    refused(changed(graph, "c", stream="copy"), "'c' of stream 'copy' may run again")
    refused(changed(graph, "c", stream="copy", not_recomputable_because="slow"),
            "'c' of stream 'copy' reads 'b', and no later op of compute")
    number = [op.name for op in graph.ops].index("store0:a")
    refused(changed(graph, "d", control_deps=(number,)), "let it read what that makes")


def test_streams_are_in_files_and_enter_the_fingerprint():
    graph = chain_of_two_streams()
    again = Graph.from_dict(graph.to_dict())
    assert again == graph and again.has_streams
    plain = strategies.training_graph(random.Random(1), 6)
    assert all("stream" not in op for op in plain.to_dict()["ops"])
    assert replace(plain, ops=(replace(plain.ops[0], stream="network"), *plain.ops[1:])
                   ).fingerprint != plain.fingerprint


def gated() -> Graph:
    """A step with an op that hands on a value."""
    for seed in range(100):
        graph = strategies.training_graph(random.Random(seed), 6, dtypes=False, pools="allocator")
        for move in moves(graph, 1.0, {}, least_ops=2):
            offered = offloading(graph, [move], 0.125, gates=True)
            if offered.handed_on:
                offered.check()
                return offered
    raise AssertionError("no value is handed on")


@pytest.mark.parametrize("change", [
    {"hands_on": 10 ** 6}, {"hands_on": 0}, {"is_backward": False}, {"inplace": ()}])
def test_only_the_value_that_an_op_renames_is_handed_on(change):
    graph = gated()
    gate, = graph.handed_on.values()
    ops = tuple(op.changed(**change) if index == gate else op
                for index, op in enumerate(graph.ops))
    with pytest.raises(ValueError, match="hands on no value"):
        replace(graph, ops=ops).check()


def test_a_value_is_handed_on_once():
    graph = gated()
    (value, gate), = graph.handed_on.items()
    again = Tensor("again", graph.tensors[value].size_bytes, len(graph.ops))
    op = graph.ops[gate].changed(name="again", outputs=(len(graph.tensors),))
    op = replace(op, implementations=op.implementations[:1])
    with pytest.raises(ValueError, match="two ops hand on"):
        replace(graph, ops=(*graph.ops, op), tensors=(*graph.tensors, again)).check()


def test_a_decision_names_no_value_that_nobody_hands_on():
    graph = gated()
    op = next(i for i, op in enumerate(graph.ops) if op.recomputable and not op.is_backward
              and graph.handed_on.keys().isdisjoint(op.outputs))
    with pytest.raises(InputError, match="names run -1"):
        expand(graph, {op: {(len(graph.ops) - 1, 0): HANDED_ON}})
