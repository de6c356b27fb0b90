"""What becomes of the plans of 0/1 programs, and plans handed from one search to another."""
from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest
from small_graphs import chain, variant_graph
from training_nets import attention, residual_network

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
def test_the_absolute_gap_is_in_units_of_the_costs(monkeypatch, scale: float) -> None:
    reduced = reduce_graph(chain((400,) * 5, (3.0, 1.0, 2.0, 1.0, 1.0)))
    program = build(reduced, [4], 1500)
    program = replace(program, cost=program.cost * scale)
    largest = float(program.cost.max())
    seen = []
    run = highs._run_polled

    def polled(solver, *rest):
        seen.append(solver.getOptionValue("mip_abs_gap")[1] / max(solver.getLp().col_cost_))
        return run(solver, *rest)

    monkeypatch.setattr(highs, "_run_polled", polled)
    highs.solve_integer(program, integer_columns(program), Effort(5.0), absolute_gap=0.25 * largest)
    assert seen[0] == pytest.approx(0.25)


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
