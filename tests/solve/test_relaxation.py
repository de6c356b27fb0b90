"""The program of bounds says what its readable twin says, and what exhaustive search finds."""
from __future__ import annotations

import random
from typing import List, Tuple

import pytest
import strategies
from hypothesis import given
from hypothesis import strategies as st
from offloaded import with_streams
from reference.relaxation import Relaxation
from small_graphs import chain, optimum, random_graph, taken_in_place

from memonger.graph.schedule import expand
from memonger.graph.types import Graph, Op, Tensor
from memonger.memory.storage import plan_storage
from memonger.solve.effort import Effort
from memonger.solve.mip import highs
from memonger.solve.mip.formulation import build
from memonger.solve.mip.problem import reduce_graph
from memonger.solve.mip.program import integer_columns

#: Budgets as shares of the unplanned peak; the last asks for the least memory.
SHARES = (0.4, 0.55, 0.7, 0.85, float("inf"))


@st.composite
def graphs_with_variants(draw) -> Graph:
    rng = draw(st.randoms(use_true_random=False))
    graph = strategies.training_graph(rng, draw(st.integers(1, 8)))
    if draw(st.booleans()):
        graph = strategies.variants(rng, graph)
        if draw(st.booleans()):
            graph = strategies.split_gradients(rng, graph)
    if draw(st.booleans()):
        graph = with_streams(rng, graph)
    return graph


def compare(graph: Graph, share: float, constrained: List[int],
            spans: List[Tuple[int, int]] = (), whole: bool = False) -> None:  # type: ignore
    reduced = reduce_graph(graph, "all")
    whole_bytes = plan_storage(graph, expand(graph, {}), "live").pool_bytes
    budget_bytes = share * max(whole_bytes, 1)
    program = build(reduced, constrained, budget_bytes, spans=spans)
    if not len(integer_columns(program)):  # nothing to decide, and HiGHS does not look at the rows
        return
    unit = program.frame.unit_bytes if share == float("inf") else 1.0
    found = highs.solve_integer(program, integer_columns(program), Effort(5.0)) if whole \
        else highs.solve_linear(program, Effort(5.0))
    twin = Relaxation(reduced, constrained, budget_bytes, spans, whole)
    least = 1e-6 * (1.0 + graph.time_s * graph.has_streams)
    assert found.bound * unit == pytest.approx(twin.solve(), rel=1e-6, abs=least)


@given(graphs_with_variants(), st.sampled_from(SHARES), st.integers(1, 2 ** 40), st.data())
def test_the_linear_program_has_the_twins_optimum(graph: Graph, share: float, picks: int,
                                                  data) -> None:
    constrained = [k for k in range(len(graph.ops)) if picks >> k & 1] or [0]
    windows = st.integers(1, len(constrained))
    spans = data.draw(st.lists(st.tuples(windows, windows).map(
        lambda pair: (min(pair), max(pair))), max_size=3, unique=True))
    compare(graph, share, constrained, spans)


@given(graphs_with_variants(), st.sampled_from(SHARES), st.integers(1, 2 ** 40))
def test_the_0_1_program_has_the_twins_optimum(graph: Graph, share: float, picks: int) -> None:
    compare(graph, share, [k for k in range(len(graph.ops)) if picks >> k & 1] or [0], whole=True)


@pytest.mark.parametrize("share", [0.75, 0.85, 0.95, float("inf")])
@pytest.mark.parametrize("whole", [False, True])
def test_what_an_op_takes_in_place_is_gone(share: float, whole: bool) -> None:
    graph = taken_in_place()
    compare(graph, share, list(range(len(graph.ops))), whole=whole)
    compare(graph, share, [3], whole=whole)


@st.composite
def flat_graphs(draw) -> Graph:
    """Forward ops that read nothing, so nothing is made beside a rerun: constraining ops is exact.

    Some of them must not run again.
    """
    sizes = draw(st.lists(st.sampled_from((100, 200, 300)), min_size=1, max_size=5))
    tensors = [Tensor("f%d" % i, size, i) for i, size in enumerate(sizes)]
    ops = [Op.of("f%d" % i, "op", (), (i,), time_s=float(draw(st.integers(0, 5))),
                 not_recomputable_because=draw(st.sampled_from(("", "", "random"))))
           for i in range(len(sizes))]
    for i in range(len(sizes)):
        read = draw(st.sets(st.sampled_from(range(len(sizes))), max_size=2))
        tensors.append(Tensor("b%d" % i, 100, len(ops)))
        ops.append(Op.of("b%d" % i, "op", (*sorted(read), *((len(ops) - 1,) if i else ())),
                         (len(ops),), True, not_recomputable_because="backward", time_s=1.0))
    graph = Graph(tuple(tensors), tuple(ops), (len(ops) - 1,))
    graph.check()
    return graph


def least_s(graph: Graph, budget_bytes: int) -> float:
    """The 0/1 twin's optimum with all ops constrained."""
    return Relaxation(reduce_graph(graph), range(len(graph.ops)), budget_bytes,
                      whole=True).solve()


@given(flat_graphs(), st.integers(2, 12))
def test_the_0_1_optimum_is_that_of_exhaustive_search(graph: Graph, hundreds: int) -> None:
    exact = optimum(graph, 100 * hundreds)
    assert least_s(graph, 100 * hundreds) == pytest.approx(
        float("inf") if exact is None else exact)


@pytest.mark.parametrize("budget", [900, 1000, 1200, 1300, 1400])
def test_the_0_1_optimum_of_a_chain_is_that_of_exhaustive_search(budget: int) -> None:
    graph = chain((400, 400, 400, 100), (3.0, 1.0, 2.0, 1.0))
    assert least_s(graph, budget) == pytest.approx(optimum(graph, budget))


@pytest.mark.parametrize("seed", range(12))
def test_no_plan_costs_less_than_the_0_1_optimum(seed: int) -> None:
    graph = random_graph(seed, bool(seed % 2), 4)
    budget = int(random.Random(seed).uniform(0.4, 0.8) * sum(t.size_bytes for t in graph.tensors))
    exact = optimum(graph, budget)
    assert exact is None or least_s(graph, budget) <= exact + 1e-6
