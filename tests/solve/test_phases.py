"""Steps of several forward and backward passes: every method plans them, with proof."""
from __future__ import annotations

import random
from dataclasses import replace

import pytest
import strategies
from laid import IN_A_ROW, NESTED, laid, reading_across
from reference import brute, judge
from small_graphs import random_graph
from training_nets import residual_network, transformer

from memonger.graph.imported import parse_graph
from memonger.graph.schedule import Schedule, Step, expand
from memonger.memory.storage import plan_storage
from memonger.plans import plan_file
from memonger.plans.validate import Kind, structure
from memonger.solve.imported import plan_graph
from memonger.solve.options import Options
from memonger.solve.search.native import NativeSearch
from memonger.util.errors import InfeasibleBudget

ORDERS = pytest.mark.parametrize("order", [NESTED, IN_A_ROW], ids=["nested", "in a row"])


def test_phases_are_passes_in_the_order_of_execution():
    part = random_graph(1, False, 4)
    names = [p.name for p in laid([part, part], IN_A_ROW).phases]
    assert names == ["forward", "backward", "forward 2", "backward 2"]
    nested = laid([part, part], NESTED)
    assert [(p.first_op, p.is_backward) for p in nested.phases] == [(0, False), (8, True)]
    assert nested.first_backward == nested.num_forward == 8 and replace(
        nested, ops=(nested.ops[0].changed(runs=False), *nested.ops[1:])).num_forward == 7
    with pytest.raises(ValueError, match="not forward, backward, forward 2, backward 2"):
        replace(laid([part, part], IN_A_ROW), pools="cached_op").check()


@ORDERS
@pytest.mark.parametrize("method", ["auto", "local", "milp", "sublinear", "chen", "ogc"])
def test_every_method_plans_networks_laid_in_one_graph(method, order):
    graph = laid([residual_network(4), transformer(2)], order)
    try:
        plan = plan_graph(graph, "70%", method, time_limit_s=2)
    except InfeasibleBudget as error:
        assert method in ("chen", "ogc")  # these do not look at the budget
        plan = error.best_plan
        plan = plan.changed(budget_bytes=plan.total_bytes)
    assert not judge.validate(plan)
    assert plan.bound <= plan.overhead + 1e-9
    assert plan.schedule.recomputed()
    assert plan_file.loads(plan_file.dumps(plan)) == plan


@ORDERS
def test_budgets_of_deep_cuts_are_met_near_the_bound(order):
    graph = laid([transformer(3), transformer(2)], order)
    plan = plan_graph(graph, "45%", "auto", time_limit_s=4)
    assert not judge.validate(plan)
    assert 0 < plan.overhead <= plan.bound + 0.01


@pytest.mark.parametrize("seed", strategies.seeds(60, 5))
@pytest.mark.parametrize("method", ["auto", "milp", "local"])
@ORDERS
def test_small_graphs_cost_no_less_than_the_optimum(seed, method, order):
    rng = random.Random(seed)
    parts = [random_graph(100 * seed + n, False, rng.randint(2, 3)) for n in range(2)]
    graph = replace(laid(parts, order), pools="units")
    whole = plan_storage(graph, expand(graph, {}), "live").pool_bytes
    budget = int(rng.choice((0.6, 0.8)) * whole)
    best = brute.solve(graph, budget, Options(storage="live"))
    try:
        plan = plan_graph(graph, budget, method, time_limit_s=0.5)
    except InfeasibleBudget:
        assert best.pool_bytes > budget
        return
    assert best.pool_bytes <= budget and not judge.validate(plan)
    assert plan.bound <= best.overhead + 1e-9 <= plan.overhead + 2e-9
    if method == "milp":
        assert plan.overhead == pytest.approx(best.overhead, abs=1e-6)


def across(seed):
    """Two networks in a row; the second reads what the first made forward and backward."""
    rng = random.Random(seed)
    parts = [strategies.training_graph(rng, rng.randint(3, 7), dtypes=False, pools="allocator")
             for _ in range(2)]
    graph = laid(parts, IN_A_ROW)
    later = next(p.first_op for p in graph.phases if p.name == "forward 2")
    made = [t for op in graph.ops[:later] for t in op.outputs]
    readers = [i for i, op in enumerate(graph.ops) if i >= later and not op.is_backward]
    return reading_across(graph, [(rng.choice(readers), rng.choice(made)) for _ in range(3)])


@pytest.mark.parametrize("seed", strategies.seeds(60, 5))
@pytest.mark.parametrize("method", ["auto", "milp", "local", "sublinear", "chen"])
def test_what_a_later_pass_reads_of_an_earlier_one_is_from_its_first_run(seed, method):
    graph = across(seed)
    try:
        plan = plan_graph(graph, 0.8, method, time_limit_s=0.5)
    except InfeasibleBudget as error:
        plan = error.best_plan.changed(budget_bytes=error.best_plan.total_bytes)
    assert not judge.validate(plan)
    assert plan.bound <= plan.overhead + 1e-9


@pytest.mark.parametrize("seed", strategies.seeds(200, 40))
def test_any_decision_of_the_simulator_gives_a_plan_that_runs(seed):
    graph = across(seed)
    native = NativeSearch(graph, Options(storage="live"))
    rng = random.Random(seed)
    gaps = native.gaps()
    valid = 0
    for _ in range(10):
        choices = tuple(rng.choice((0, 1, 2)) for _ in gaps)
        found = native.evaluate(replace(native.unplanned(), choices=choices))
        if found is not None:
            valid += 1
            assert not structure(graph, found.schedule)
            assert plan_storage(graph, found.schedule, "live").pool_bytes == found.pool_bytes
    assert valid or not gaps


def test_a_clone_in_front_of_a_later_forward_pass_is_refused():
    graph = laid([random_graph(3, False, 3)] * 2, IN_A_ROW)
    steps = expand(graph, {}).steps
    later = next(p.first_op for p in graph.phases if p.name == "forward 2")
    again = next(i for i, op in enumerate(graph.ops) if op.recomputable and not op.inputs)
    moved = [*steps[:later], Step(again, ()), *(
        replace(step, sources=tuple(s + (s >= later) for s in step.sources))
        for step in steps[later:])]
    kinds = {problem.kind for problem in structure(graph, Schedule(tuple(moved)))}
    assert Kind.CLONE_IN_FORWARD in kinds


def test_files_of_other_planners_still_have_one_backward_pass():
    with pytest.raises(Exception, match="the backward pass comes last"):
        parse_graph("3 2\n1 1 1\n1 1 0\n1 1 1\n0 1\n1 2\n")
