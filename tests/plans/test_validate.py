"""The judge: accepts what is right, names what is wrong, and agrees with the storage planner."""
from __future__ import annotations

import random
import re
from dataclasses import replace

import numpy as np
import pytest
import strategies
from footprints import pair, plan_with, planned_as
from hypothesis import given
from reference import liveness
from reference.judge import Claim, validate

from memonger.graph.offers import Offer, offering
from memonger.graph.schedule import Schedule, Step, expand, expand_in_part
from memonger.graph.types import Graph, Implementation, Op, Tensor
from memonger.memory.storage import plan_storage
from memonger.plans.validate import Kind
from memonger.util.errors import InputError


def net():
    """x -> a -> b -> c, then gc, gb, ga; each backward op reads its op's output."""
    names = ("a", "b", "c", "gc", "gb", "ga")
    tensors = (*(Tensor(n, 8, i, "output" if n == "c" else "activation",
                        "outside" if n == "ga" else "device", (2,))
                 for i, n in enumerate(names)),
               Tensor("x", 8, -1, "input", "outside", (2,)),
               Tensor("mask", 1, 0, shape=(1,), dtype="uint8"))
    ops = (Op.of("a", "Op", (6,), (0,), time_s=1.0), Op.of("b", "Op", (0,), (1,), time_s=1.0),
           Op.of("c", "Op", (1,), (2,), time_s=1.0, not_recomputable_because="random"),
           Op.of("gc", "Op", (2,), (3,), True, 2, control_deps=(2,), time_s=2.0),
           Op.of("gb", "Op", (1, 3), (4,), True, 1, time_s=2.0),
           Op.of("ga", "Op", (0, 4), (5,), True, 0, time_s=2.0))
    mask = Offer("mask", 0, ((0, Implementation((6,), (0, 7), time_s=1.5)),
                             (5, Implementation((7, 4), (5,), time_s=1.0))))
    fused = Offer("fused", 1, ((0, Implementation((), (), runs=False)),
                               (1, Implementation((6,), (0, 1), time_s=1.5))))
    return offering(Graph(tensors, ops, (2, 5)), [mask, fused])


#: a b c gc b#1 gb a#1 ga is what expand makes of {0, 1}, when b#1 reads a's first run.
PLANNED = (Step(0, (-1,)), Step(1, (0,)), Step(2, (1,)), Step(3, (2,)), Step(0, (-1,)),
           Step(1, (4,)), Step(4, (5, 3)), Step(5, (4, 6)))


def kinds(steps, variants=(), graph=None, **claims):
    return [p.kind for p in validate(graph or net(), Schedule(tuple(steps), variants), **claims)]


def test_right_schedules_have_no_problem():
    graph = net()
    assert expand(graph, {0: {}, 1: {}}).steps == PLANNED
    assert expand(graph, {op: {} for op in np.arange(2)}).steps == PLANNED
    assert kinds(PLANNED, time_s=11.0, pool_bytes=40, budget_bytes=50, fixed_bytes=10) == []
    assert kinds(expand(graph, {}).steps, time_s=9.0) == []


@pytest.mark.parametrize("recompute", [{9: {}}, {-1: {}}, {0: {(9, 0): 1}}])
def test_decisions_about_ops_that_are_not_there_are_refused(recompute):
    with pytest.raises(InputError, match="names op (9|-1), and the graph has ops 0 to 5"):
        expand(net(), recompute)


@pytest.mark.parametrize("recompute, message", [
    ({0: {(1, 3): 2}}, "op 'a' names run 3 of op 'b', which does not run so often"),
    ({0: {(2, 0): 5}}, "op 'a' names run 5 of op 'a', which does not run so often"),
    ([0, 1], "decisions must be {op: {"), ({0: None}, "not {0: None}"),
    ({0: {4: 1}}, "decisions must"), ({0: {("a", 0): 1}}, "decisions must"),
    ({0: {(4, 0): 1.0}}, "decisions must"), ({"a": {}}, "decisions must")])
def test_decisions_about_other_runs_and_of_another_form_are_refused(recompute, message):
    with pytest.raises(InputError, match=re.escape(message)):
        expand(net(), recompute)


def test_derived_decisions_may_be_about_runs_that_there_are_no_longer():
    assert expand_in_part(net(), {0: {(1, 3): 2}, 1: {}}).steps == PLANNED


def changed(index, step):
    return (*PLANNED[:index], step, *PLANNED[index + 1:])


@pytest.mark.parametrize("steps, kind", [
    (changed(0, Step(9, ())), Kind.UNKNOWN_OP),
    (changed(1, Step(1, (0, 0))), Kind.SOURCE_COUNT),
    (changed(1, Step(1, (1,))), Kind.SOURCE_LATE),
    (changed(2, Step(2, (0,))), Kind.SOURCE_WRONG),
    (changed(1, Step(1, (-1,))), Kind.SOURCE_WRONG),
    (PLANNED[:-1], Kind.NOT_RUN),
    ((Step(0, (-1,)), Step(1, (0,)), Step(2, (1,)), Step(2, (1,)), Step(3, (3,)),
      Step(4, (1, 4)), Step(5, (0, 5))), Kind.RUN_TWICE),
    ((Step(0, (-1,)), Step(1, (0,)), Step(2, (1,)), Step(3, (2,)), Step(3, (2,)),
      Step(4, (1, 4)), Step(5, (0, 5))), Kind.RUN_TWICE),
    ((*PLANNED[:3], Step(0, (-1,)), Step(3, (2,)), Step(4, (1, 4)), Step(5, (0, 5))),
     Kind.USELESS_CLONE),
    ((Step(0, (-1,)), Step(1, (0,)), Step(0, (-1,)), Step(2, (1,)), Step(3, (3,)),
      Step(4, (1, 4)), Step(5, (2, 5))), Kind.CLONE_IN_FORWARD),
    ((Step(0, (-1,)), Step(1, (0,)), Step(2, (1,)), Step(3, (2,)), Step(0, (-1,)),
      Step(4, (1, 3)), Step(5, (4, 5))), Kind.CLONE_EARLY),
    ((Step(0, (-1,)), Step(0, (-1,)), Step(1, (1,)), Step(2, (2,)), Step(3, (3,)),
      Step(4, (2, 4)), Step(5, (0, 5))), Kind.FIRST_RUN_READS_CLONE),
])
def test_each_fault_is_named(steps, kind):
    assert kind in kinds(steps)


def test_order_and_dependencies():
    graph = net()
    free = replace(graph, ops=(*graph.ops[:4], graph.ops[4].changed(inputs=(1, 2)),
                               graph.ops[5].changed(inputs=(0,))))
    steps = (Step(0, (-1,)), Step(1, (0,)), Step(2, (1,)), Step(5, (0,)), Step(3, (2,)),
             Step(4, (1, 2)))
    assert Kind.BASE_ORDER in kinds(steps, graph=free)
    late = replace(free, ops=(free.ops[0], replace(free.ops[1], control_deps=(2,)),
                              *free.ops[2:]))
    assert Kind.DEPENDENCY in kinds(expand(late, {}).steps, graph=late)


def test_a_kept_output_must_come_from_the_first_run():
    graph = net()
    kept = replace(graph, ops=(replace(graph.ops[0], kept_outputs=(0,)), *graph.ops[1:]))
    assert Kind.KEPT_OUTPUT in kinds(PLANNED, graph=kept)
    assert kinds(expand(kept, {0: {}, 1: {}}).steps, graph=kept) == []


def test_a_clone_that_only_makes_state_is_needed():
    graph = net()
    stateful = replace(graph, ops=(*graph.ops[:5], graph.ops[5].changed(inputs=(4,),
                                                           uses_state=True)))
    schedule = expand(stateful, {0: {}})
    assert len(schedule.steps) == 7
    assert validate(stateful, schedule) == []


def test_variants_may_not_overlap_and_replaced_ops_may_not_run():
    steps = expand(net(), {}).steps
    assert kinds(steps, (7,)) == [Kind.UNKNOWN_VARIANT]
    assert kinds(steps, (0, 1)) == [Kind.VARIANTS_OVERLAP]
    assert kinds(steps, (0,), time_s=8.5) == []
    assert Kind.REPLACED_OP in kinds(steps, (1,))
    fused = (Step(1, (-1,)), Step(2, (0,)), Step(3, (1,)), Step(4, (0, 2)), Step(5, (0, 3)))
    assert kinds(fused, (1,), time_s=8.5) == []


def test_claims_are_checked():
    assert kinds(PLANNED, time_s=10.9) == [Claim.TIME]
    assert kinds(PLANNED, pool_bytes=39) == [Claim.POOL]
    assert kinds(PLANNED, budget_bytes=49, fixed_bytes=10) == [Claim.BUDGET]


def test_a_whole_plan():
    graph = net()
    schedule = Schedule(PLANNED)
    plan = plan_with(pair(40, 40, {"parameters": 10}), graph, schedule, budget_bytes=50)
    assert validate(plan) == []
    assert [p.kind for p in validate(planned_as(plan, pool_bytes=20))] == [Claim.POOL]
    assert [str(p) for p in validate(plan.changed(budget_bytes=30))] == [
        "the total is above the budget: 40 bytes of pool and 10 others, allowed are 30"]
    with pytest.raises(TypeError):
        validate(graph)


# ------------------------------------------------------------------------ against the planner
def test_random_variants_are_valid():
    for seed in range(60):
        rng = random.Random(seed)
        graph = strategies.variants(rng, strategies.training_graph(rng, 8))
        schedule = strategies.schedule_with_variants(rng, graph)
        for model in ("best", "stock", "live"):
            pool_bytes = plan_storage(graph, schedule, model).pool_bytes
            assert validate(graph, schedule, storage=model, pool_bytes=pool_bytes,
                            time_s=schedule.time_s(graph)) == []


@given(strategies.planned_graphs(devices=2))
def test_expanded_decisions_are_valid(case):
    """Those of whole buffers and arenas: tests/memory."""
    graph, schedule = case
    planned = plan_storage(graph, schedule, "live")
    assert validate(graph, schedule, storage="live", pool_bytes=planned.pool_bytes,
                    time_s=schedule.time_s(graph)) == []


@given(strategies.live_graphs())
def test_schedules_of_other_planners_graphs_have_the_same_peak(case):
    graph, schedule = case
    peak = plan_storage(graph, schedule, "live").pool_bytes
    assert validate(graph, schedule, storage="live", pool_bytes=peak) == []


@pytest.mark.parametrize("seeds", strategies.batches(range(150), range(1000, 4000)))
def test_the_judge_agrees_with_the_planner(seeds):
    for seed in seeds:
        rng = random.Random(seed)
        graph = strategies.training_graph(
            rng, rng.randint(1, 15 if seed < 1000 else 30), devices=rng.choice((1, 1, 2)),
            pools=rng.choice(("executor", "executor", "cached_op")), unasked=True)
        schedule = expand_in_part(graph, strategies.decisions(rng, graph))
        memory = liveness.examine(graph, schedule)
        planned = plan_storage(graph, schedule, "stock")
        assert [(b.start, b.end, b.bytes, b.elements, b.device, b.pool)
                for b in planned.blocks.blocks] == [
            (x.start, x.end, x.bytes, x.elements, x.device, x.pool) for x in memory.lives], seed
        assert planned.peak_live_bytes == memory.peak()
        assert liveness.stock_pool(memory) == planned.pool_bytes
