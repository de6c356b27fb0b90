"""Placeholders: nothing without a variant, real ops with it; convolutions that are worth it."""
from __future__ import annotations

import random
from dataclasses import replace

import pytest
import strategies
from reference.judge import validate

from memonger.graph.in_use import graph_in_use
from memonger.graph.schedule import Schedule, expand, expand_in_part
from memonger.graph.types import Graph, Op, Tensor
from memonger.memory.storage import plan_storage
from memonger.mx.rewrite.gradient_split import with_placeholders, worth_splitting
from memonger.plans import columnar_json as columns
from memonger.solve.options import Options
from memonger.solve.search.native import NativeSearch

MODELS = ("best", "stock", "live")


def case(seed):
    rng = random.Random(seed)
    pools = rng.choice(("executor", "executor", "cached_op"))
    graph = strategies.variants(rng, strategies.training_graph(rng, rng.randint(2, 10),
                                                               pools=pools))
    return rng, graph, strategies.split_gradients(rng, graph)


@pytest.mark.parametrize("first", range(0, 60, 20))
def test_idle_ops_change_nothing(first):
    added = 0
    for seed in range(first, first + 20):
        rng, graph, split = case(seed)
        split.check()
        added += len(split.ops) - len(graph.ops)
        assert split.fingerprint == graph.fingerprint and split.time_s == graph.time_s
        kept = [i for i, op in enumerate(split.ops) if op.runs]
        recompute = strategies.decisions(rng, graph)
        moved = {kept[op]: {(kept[reader], run): clone for (reader, run), clone in served.items()}
                 for op, served in recompute.items()}
        before, after = expand_in_part(graph, recompute), expand_in_part(split, moved)
        assert [(kept[s.op], s.sources) for s in before.steps] == \
            [(s.op, s.sources) for s in after.steps]
        for model in MODELS:
            assert plan_storage(graph, before, model).pool_bytes == \
                plan_storage(split, after, model).pool_bytes
    assert added


@pytest.mark.parametrize("first", range(0, 60, 20))
def test_plans_with_gradients_in_two_steps_are_valid(first):
    for seed in range(first, first + 20):
        rng, _, graph = case(seed)
        schedule = strategies.schedule_with_variants(rng, graph)
        for model in MODELS:
            pool_bytes = plan_storage(graph, schedule, model).pool_bytes
            assert validate(graph, schedule, storage=model, pool_bytes=pool_bytes,
                            time_s=schedule.time_s(graph)) == []


def test_the_search_sees_what_the_schedule_does():
    for seed in range(60):
        rng, _, graph = case(seed)
        schedule = Schedule((), strategies.schedule_with_variants(rng, graph).variants)
        schedule = Schedule(expand(graph_in_use(graph, schedule), {}).steps, schedule.variants)
        core = NativeSearch(graph, Options(variants="all", storage="best"))
        found = core.evaluate(core.decisions_of(schedule))
        assert found.schedule == schedule
        assert found.cost_s == pytest.approx(schedule.time_s(graph))
        assert found.pool_bytes == plan_storage(graph, schedule, "best").pool_bytes


def test_graphs_with_placeholders_are_saved():
    _, _, graph = case(3)
    assert any(not op.runs for op in graph.ops)
    assert columns.unpack_graph(columns.pack_graph(graph)) == graph
    assert Graph.from_dict(graph.to_dict()) == graph


def test_an_idle_op_that_runs_is_found():
    _, _, graph = case(3)
    schedule = expand(
        replace(graph, ops=tuple(op.changed(runs=True) for op in graph.ops)), {})
    assert "REPLACED_OP" in {problem.kind.name for problem in validate(graph, schedule)}


# ------------------------------------------------------------------------ where it is offered
def chain(sizes):
    """Convolutions from size to size; the first one's data need no gradient."""
    tensors = [Tensor("x", sizes[0], -1, "input", "outside")]
    ops = []
    for i, size in enumerate(sizes[1:]):
        tensors.append(Tensor("y%d" % i, size, i))
        ops.append(Op.of("c%d" % i, "Convolution", (i,), (i + 1,)))
    gradient = len(sizes) - 1
    for i in range(len(ops) - 1, -1, -1):
        tensors.append(Tensor("g%d" % i, sizes[i], len(ops)))
        ops.append(Op.of("b%d" % i, "_backward_Convolution", (gradient, i), (len(tensors) - 1,),
                         True, i, not_recomputable_because="it is a gradient"))
        gradient = len(tensors) - 1
    return Graph(tuple(tensors), tuple(ops), ())


def test_convolutions_that_outweigh_all_other_ops_are_worth_it():
    assert set(worth_splitting(chain((1, 100, 100, 50, 10)))) == {"c1", "c2"}


def test_others_that_need_as_much_make_it_worthless():
    graph = chain((1, 100, 100, 10))
    other = Op.of("big", "exp", (1,), (len(graph.tensors),))
    graph = Graph(graph.tensors + (Tensor("big", 1000, len(graph.ops)),), graph.ops + (other,), ())
    assert not worth_splitting(graph)


def test_data_without_a_gradient_are_no_reason():
    assert "c0" not in worth_splitting(chain((1000, 1000, 1)))


def test_no_ops_no_change():
    graph = chain((1, 2, 3))
    assert with_placeholders(graph, set()) is graph
