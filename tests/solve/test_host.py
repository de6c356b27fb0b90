"""Values on the host: counted there, never above its budget, in every method."""
from __future__ import annotations

import random
from dataclasses import replace
from functools import lru_cache

import pytest
import strategies
from offloaded import moves, offloading
from reference import judge, liveness
from training_nets import transformer

from memonger.graph.types import Graph, Implementation, Inplace
from memonger.memory.host import host_bytes
from memonger.memory.storage import plan_storage
from memonger.plans import plan_file
from memonger.plans.consistency import contradictions
from memonger.solve.imported import plan_graph
from memonger.solve.options import Options
from memonger.solve.search.native import NativeSearch
from memonger.util.errors import InfeasibleBudget


def with_copies(graph: Graph, share: float, gates: bool = True, least_ops: int = 6,
                stream: str = "compute") -> Graph:
    """The graph with variants that move values to the host, by default among the kernels.

    ``share``: of forward's time, what copying all of its values takes.
    """
    forward = sum(t.size_bytes for t in graph.tensors
                  if t.producer >= 0 and not graph.ops[t.producer].is_backward)
    per_byte = share * graph.forward_time_s / max(forward, 1)
    ahead = 0.0 if stream == "compute" else graph.forward_time_s / 20
    chosen = moves(graph, ahead, dict.fromkeys(range(len(graph.tensors)), ahead),
                   least_ops=least_ops)
    graph = offloading(graph, chosen, per_byte, gates)
    return graph if stream == "copy" else replace(
        graph, ops=tuple(replace(op, stream=stream) for op in graph.ops))


@lru_cache(maxsize=None)
def offloadable() -> Graph:
    graph = replace(with_copies(transformer(2), 0.2), pools="allocator")
    graph.check()
    return graph


def on_host(graph: Graph) -> int:
    return sum(graph.tensors[t].size_bytes for t in graph.host_tensors)


@pytest.mark.parametrize("method", ["auto", "milp"])
@pytest.mark.parametrize("budget", ["60%", "40%"])
def test_offloading_under_two_budgets_costs_less_than_recomputation_alone(method, budget):
    graph = offloadable()
    again = plan_graph(graph, budget, method, time_limit_s=3, variants="none")
    costs = [again.overhead]
    for share in (0.3, 1.0):
        limit = int(share * on_host(graph))
        plan = plan_graph(graph, budget, method, time_limit_s=3, host_budget_bytes=limit)
        assert not judge.validate(plan, host_budget_bytes=limit)
        assert 0 < plan.host_bytes <= limit
        assert plan.bound <= plan.overhead + 1e-9
        assert any(graph.variants[v].name == "offload" for v in plan.schedule.variants)
        costs.append(plan.overhead)
    assert costs[2] <= costs[1] + 0.002 and costs[1] < 0.9 * costs[0]


def test_copies_beside_compute_keep_the_host_and_cost_less():
    beside = with_copies(transformer(2), 0.2, stream="copy")
    beside.check()
    limit = int(0.5 * on_host(beside))
    plans = [plan_graph(graph, "50%", "auto", time_limit_s=3, host_budget_bytes=limit)
             for graph in (offloadable(), beside)]
    for plan in plans:
        assert 0 < liveness.host_peak(plan.graph, plan.schedule) <= limit
        assert plan.total_bytes <= plan.budget_bytes
        assert liveness.examine(plan.graph, plan.schedule).peak() == plan.pool_bytes
        assert plan.bound <= plan.overhead + 1e-9
    assert plans[1].overhead < plans[0].overhead


@pytest.mark.parametrize("method", ["auto", "local", "milp"])
def test_without_room_on_the_host_nothing_is_moved(method):
    graph = offloadable()
    plan = plan_graph(graph, "60%", method, time_limit_s=2, host_budget_bytes=0)
    assert host_bytes(graph, plan.schedule) == 0 and not plan.schedule.variants
    assert not judge.validate(plan, host_budget_bytes=0)


def test_the_host_counts_in_no_total_of_the_device():
    graph = offloadable()
    more = replace(graph, tensors=tuple(
        replace(t, size_bytes=10 * t.size_bytes, shape=()) if t.space == "host" else t
        for t in graph.tensors))
    plans = [plan_graph(g, "40%", "local", time_limit_s=2) for g in (graph, more)]
    assert plans[0].schedule == plans[1].schedule
    assert plans[0].total_bytes == plans[1].total_bytes
    taken = [host_bytes(p.graph, p.schedule) for p in plans]
    assert taken[1] == 10 * taken[0] > 0


@pytest.mark.parametrize("objective", [None, 0.1])
def test_the_least_memory_keeps_the_host_too(objective):
    graph = offloadable()
    limit = on_host(graph) // 4
    plan = plan_graph(graph, None, "auto", time_limit_s=0.5, host_budget_bytes=limit,
                      max_overhead=objective)
    assert not judge.validate(plan, host_budget_bytes=limit)


@pytest.mark.parametrize("seed", strategies.seeds(200, 30))
def test_bytes_of_the_host_and_the_simulator_are_those_of_the_reference(seed):
    rng = random.Random(seed)
    graph = strategies.training_graph(rng, rng.randint(4, 12), dtypes=False, pools="allocator")
    graph = with_copies(graph, 0.5, rng.random() < 0.5, least_ops=2)
    graph.check()
    schedule = strategies.schedule_with_variants(rng, graph)
    taken = liveness.host_peak(graph, schedule)
    assert host_bytes(graph, schedule) == taken
    assert plan_storage(graph, schedule, "live").pool_bytes == liveness.examine(
        graph, schedule).peak()
    for limit in {max(0, taken - 1), taken}:
        native = NativeSearch(graph, Options(
            variants="all", storage="live", host_budget_bytes=limit))
        found = native.evaluate(native.decisions_of(schedule))
        assert found is None or found.above_host == (
            liveness.host_peak(graph, found.schedule) > limit)


@pytest.mark.parametrize("seed", strategies.seeds(60, 12))
@pytest.mark.parametrize("method", ["auto", "milp"])
def test_random_graphs_keep_both_budgets(seed, method):
    rng = random.Random(seed)
    graph = strategies.training_graph(rng, rng.randint(4, 8), dtypes=False, pools="allocator")
    graph = with_copies(graph, 0.3, rng.random() < 0.5, least_ops=2)
    limit = int(rng.choice((0.2, 0.5)) * on_host(graph))
    try:
        plan = plan_graph(graph, 0.75, method, time_limit_s=1, host_budget_bytes=limit)
    except InfeasibleBudget:
        return
    assert not judge.validate(plan, host_budget_bytes=limit)
    assert plan.bound <= plan.overhead + 1e-9


def test_a_file_with_too_much_on_the_host_contradicts_itself():
    graph = offloadable()
    plan = plan_graph(graph, "60%", "local", time_limit_s=1)
    taken = host_bytes(graph, plan.schedule)
    asked = plan.changed(options={"host_budget_bytes": taken})
    assert plan_file.loads(plan_file.dumps(asked)).host_bytes == taken
    wrong, = contradictions(plan.changed(options={"host_budget_bytes": taken - 1}))
    assert "values on the host take %d bytes" % taken in wrong


def test_what_the_host_cannot_do_is_refused():
    graph = offloadable()
    store = next(i for i, op in enumerate(graph.ops) if op.kind == "store")

    def changed(**fields):
        ops = list(graph.ops)
        ops[store] = replace(ops[store], **fields)
        return replace(graph, ops=tuple(ops))

    with pytest.raises(ValueError, match="makes a value on the host and may run again"):
        changed(not_recomputable_because="").check()
    own, copy = graph.ops[store].implementations
    assert isinstance(copy, Implementation)
    with pytest.raises(ValueError, match="cannot take memory of the host in place"):
        changed(implementations=(own, replace(copy, inplace=(Inplace(0, 0),)))).check()
    again = Graph.from_dict(graph.to_dict())
    assert again == graph and again.host_tensors == graph.host_tensors
