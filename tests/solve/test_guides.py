"""What becomes of the plans of 0/1 programs, and plans handed from one search to another."""
from __future__ import annotations

from dataclasses import replace
from random import Random
from types import SimpleNamespace

import pytest
from small_graphs import chain, variant_graph
from training_nets import attention, residual_network

from memonger.graph.schedule import expand
from memonger.memory.storage import plan_storage
from memonger.solve import Options
from memonger.solve.effort import Effort
from memonger.solve.mip import highs
from memonger.solve.mip.formulation import build
from memonger.solve.mip.problem import reduce_graph
from memonger.solve.mip.program import integer_columns
from memonger.solve.search.decisions import Decisions
from memonger.solve.search.native import NativeSearch

OPTIONS = Options(storage="live")


@pytest.mark.parametrize("scale", (1.0, 1e-7))
def test_the_absolute_gap_is_in_units_of_the_costs(scale: float) -> None:
    """A wide gap ends the proof early, a narrow one does not, however small the costs are."""
    draw = Random(3)
    graph = chain([draw.randrange(100, 900) for _ in range(24)],
                  [draw.uniform(1, 9) for _ in range(24)])
    whole = plan_storage(graph, expand(graph, {}), "live").pool_bytes
    program = build(reduce_graph(graph), list(range(20, 30)), whole // 2)
    program = replace(program, cost=program.cost * scale)
    bounds, spent = [], []
    for gap in (0.0, 0.05, 0.5):
        effort = Effort(20.0)
        answer = highs.solve_integer(program, integer_columns(program), effort,
                                     absolute_gap=gap * float(program.cost.max()))
        assert answer.values is not None
        cost = float(program.cost @ answer.values)
        assert cost - answer.bound <= (gap + 1e-6) * program.cost.max()
        bounds.append(answer.bound / scale)
        spent.append(effort.spent_s)
    assert bounds[0] == pytest.approx(bounds[1]) and bounds[2] < 0.995 * bounds[0]
    assert spent[2] < 0.5 * min(spent[:2])


def test_a_search_gives_its_pool_as_it_was_packed() -> None:
    graph = residual_network(8)
    for storage in ("arena", "best"):
        core = NativeSearch(graph, replace(OPTIONS, storage=storage))
        room = core.evaluate(core.unplanned()).pool_bytes * 3 // 4
        found = core.search(room, 10 ** 6, 60.0, 1)
        assert found.feasible
        least = plan_storage(graph, found.schedule, storage).pool_bytes
        assert least <= found.pool_bytes <= room - found.outside_pool_bytes


def test_plans_found_with_fewer_variants_are_gone_on_from_as_they_are() -> None:
    for graph in (attention(12), variant_graph(2.0)):
        narrow, wide = (NativeSearch(graph, replace(OPTIONS, storage="arena", variants=which))
                        for which in ("none", "exact"))
        assert wide.allowed_variants and not narrow.allowed_variants
        room = narrow.evaluate(narrow.unplanned()).pool_bytes
        for share in (0.5, 0.7, 0.9):
            found = narrow.search(int(share * room), 10 ** 5, 60.0, 1)
            adopted = wide.evaluate(wide.adopt(narrow, found.decisions))
            assert adopted is not None and adopted.schedule == found.schedule


@pytest.mark.parametrize("choices, expected", [
    ((1, 2), (1, 0, 2)),  # made again before op 5, it stays
    ((2, 2), (2, 2, 2)),
    ((0, 1), (0, 0, 1)),
])
def test_a_gap_that_a_variant_reads_in_decides_as_the_whole(choices, expected) -> None:
    whole = [(0, 0, 1, 9, False), (0, 1, 9, 12, True)]
    parts = [(0, 0, 1, 5, False), (0, 1, 5, 9, False), (0, 2, 9, 12, True)]
    narrow, wide = (SimpleNamespace(gaps=lambda gaps=gaps: gaps, allowed_variants=allowed,
                                    graph=SimpleNamespace(ops=[None] * 12))
                    for gaps, allowed in ((whole, (3,)), (parts, (1, 3))))
    adopted = NativeSearch.adopt(wide, narrow, Decisions(choices, (-1, -1), (True,)))
    assert adopted == Decisions(expected, (-1, -1, -1), (False, True))
