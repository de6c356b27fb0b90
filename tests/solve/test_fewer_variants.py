"""Searches with fewer variants, as a step of the default method."""
from __future__ import annotations

from dataclasses import replace

import pytest
from small_graphs import variant_graph

from memonger.graph.schedule import expand
from memonger.plans.plan import Status
from memonger.solve import Options
from memonger.solve.board import Board
from memonger.solve.fewer_variants import search_with_fewer
from memonger.solve.result import build_plan

OPTIONS = Options(storage="live", variants="exact")
#: Both large values and the small gradient; the variant saves one of them.
KEPT, WITH_MASK = 800 * 3 + 100, 800 * 2 + 50 + 100


def board_and_search(budget_bytes, variants="exact", **fields):
    """A board, and a search on it that answers the unplanned step; what was asked of the latter."""
    graph = variant_graph(0.0)
    if variants == "all":
        graph = replace(graph, variants=tuple(replace(v, exact=False) for v in graph.variants))
    board, asked = Board.start(graph, budget_bytes, replace(OPTIONS, variants=variants)), []

    def solve(graph, budget_bytes, options):
        asked.append(options.variants)
        options.account.spend(fields.get("spent_s", 0.0))
        return build_plan(graph, expand(graph, {}), "auto", options, budget_bytes,
                          fields.get("status", Status.FEASIBLE))

    return board, solve, asked


def test_no_variants_are_tried_where_nothing_fits() -> None:
    board, solve, asked = board_and_search(KEPT)
    search_with_fewer(board, 0.0, solve)
    assert asked == ["none"] and board.best is not None and board.best.extra_s == 0
    search_with_fewer(board, 0.0, solve)
    assert asked == ["none"]


def test_equal_sets_of_variants_are_tried_once() -> None:
    board, solve, asked = board_and_search(WITH_MASK, "all")
    search_with_fewer(board, 0.0, solve)
    assert asked == ["exact"] and board.best is None


def test_exact_variants_are_tried_only_where_they_may_cost_less() -> None:
    for budget_bytes, expected in ((KEPT, ["exact"]), (WITH_MASK, [])):
        board, solve, asked = board_and_search(budget_bytes, "all")
        board.best = replace(board.evaluate(expand(board.graph, {})), extra_s=0.5)
        board.bound = board.bound._replace(extra_s=0.0)
        search_with_fewer(board, 0.0, solve)
        assert asked == expected, budget_bytes


def test_plans_near_the_bound_and_proofs_end_it() -> None:
    board, solve, asked = board_and_search(KEPT, "all")
    board.evaluate(expand(board.graph, {}))
    search_with_fewer(board, 1.0, solve)
    board, _, _ = board_and_search(WITH_MASK)
    board.bound = board.bound._replace(extra_s=float("inf"))
    search_with_fewer(board, 0.0, solve)
    assert asked == []


@pytest.mark.parametrize("spent_s, expected", [(10.0, ["exact"]), (12.5, [])])
def test_they_share_the_work_of_the_search(spent_s, expected) -> None:
    board, solve, asked = board_and_search(KEPT, "all")
    board.best = replace(board.evaluate(expand(board.graph, {})), extra_s=0.5)
    board.effort.spend(spent_s)
    search_with_fewer(board, 0.0, solve)
    assert asked == expected


def test_where_nothing_fits_one_more_is_made_in_any_case() -> None:
    board, solve, asked = board_and_search(KEPT)
    board.effort.spend(12.5)
    search_with_fewer(board, 0.0, solve)
    assert asked == ["none"] and board.best is not None


def test_ctrl_c_in_one_ends_all() -> None:
    board, solve, asked = board_and_search(WITH_MASK, status=Status.INTERRUPTED)
    search_with_fewer(board, 0.0, solve)
    assert board.interrupted and asked == ["none"]
