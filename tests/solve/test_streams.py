"""Plans of graphs with several streams: every method compares the ends of last streams."""
from __future__ import annotations

import random

import pytest
import strategies
from offloaded import chain_of_two_streams, slower_copies, with_streams
from reference import clock
from reference.judge import validate

from memonger.graph.schedule import expand
from memonger.graph.types import Graph, Op, Tensor
from memonger.memory.storage import plan_storage
from memonger.plans.plan import Status
from memonger.plans.plan_file import dumps, loads
from memonger.solve import methods
from memonger.solve.imported import plan_graph
from memonger.util.errors import InfeasibleBudget

SEARCHES = ("auto", "milp", "local")


@pytest.mark.parametrize("method", SEARCHES)
def test_copies_beside_compute_cost_nothing(method):
    plan = plan_graph(chain_of_two_streams(), 32 + 8, method, variants="exact", time_limit_s=2)
    assert plan.overhead == 0.0 and plan.schedule.variants == (0,)
    assert plan.bound == 0.0 and plan.status is Status.OPTIMAL


@pytest.mark.parametrize("method", SEARCHES)
def test_a_value_is_made_again_where_its_copies_would_be_waited_for(method):
    graph = slower_copies(chain_of_two_streams(), 4)
    plan = plan_graph(graph, 32 + 8, method, variants="exact", time_limit_s=2)
    # Of eight seconds; moving a would cost five.
    assert plan.overhead == 1 / 8 and plan.schedule.variants == ()
    assert len(plan.schedule.recomputed()) == 1


def reduced_beside_backward() -> Graph:
    """A chain of four ops of a second, whose weights' gradients are reduced in two seconds each.

    Compute has run after eight seconds, the network after 13: it is never idle from the first
    gradient on.
    """
    tensors = [Tensor("x", 8, -1, "input", "outside")]
    ops, reduced, gradient = [], [], 4
    for index in range(4):
        tensors.append(Tensor("f%d" % index, 8, index))
        ops.append(Op.of("f%d" % index, "f", (index,), (index + 1,), time_s=1.0))
    for forward in (3, 2, 1, 0):
        made = len(tensors)
        tensors += [Tensor("d%d" % forward, 8, len(ops)),
                    Tensor("w%d" % forward, 8, len(ops), "gradient", "outside"),
                    Tensor("r%d" % forward, 8, len(ops) + 1, "gradient", "outside")]
        ops += [Op.of("b%d" % forward, "b", (gradient, forward + 1), (made, made + 1), True,
                      forward, time_s=1.0),
                Op.of("r%d" % forward, "r", (made + 1,), (made + 2,), True, time_s=2.0,
                      stream="network")]
        gradient = made
        reduced.append(made + 2)
    graph = Graph(tuple(tensors), tuple(ops), (gradient, *reduced), name="reduced")
    graph.check()
    return graph


@pytest.mark.parametrize("method", SEARCHES)
def test_what_runs_again_beside_the_network_costs_nothing(method):
    graph = reduced_beside_backward()
    assert graph.time_s == 13.0 and graph.forward_time_s == 4.0
    pool = plan_storage(graph, expand(graph, {}), "live").pool_bytes
    outside = sum(t.size_bytes for t in graph.tensors if t.space == "outside")
    plan = plan_graph(graph, pool + outside - 8, method, time_limit_s=2)
    assert plan.schedule.recomputed() and plan.overhead == plan.bound == 0.0
    assert plan.status is Status.OPTIMAL and not validate(plan)


@pytest.mark.parametrize("method", sorted(set(methods()) - {"brute"}))
@pytest.mark.parametrize("seed", range(6))
def test_every_method_plans_graphs_of_several_streams(method, seed):
    rng = random.Random(seed)
    graph = with_streams(rng, strategies.training_graph(
        rng, rng.randint(4, 10), dtypes=False, pools="allocator"))
    whole = plan_storage(graph, expand(graph, {}), "live").pool_bytes
    outside = sum(t.size_bytes for t in graph.tensors if t.space == "outside")
    try:
        plan = plan_graph(graph, int(0.9 * whole) + outside, method, time_limit_s=0.5,
                          variants="none" if method in ("chen", "ogc", "sublinear") else "exact")
    except InfeasibleBudget as error:
        plan = error.best_plan
    assert not list(clock.races(graph, plan.schedule))
    assert (1 + plan.overhead) * graph.time_s == pytest.approx(clock.time_s(graph, plan.schedule))
    assert plan.bound <= plan.overhead + 1e-9
    again = loads(dumps(plan))
    assert again.graph == graph and again.overhead == plan.overhead
