"""Searches with fewer variants than asked for.

Every plan with fewer variants is a plan with all of them, but more variants make more plans to
search through, and a search may end with a dearer plan, or with none.
"""
from __future__ import annotations

from dataclasses import replace
from typing import Callable, Optional

from ..graph.types import Graph
from ..memory.workspace import outside_pool_bytes
from ..plans.plan import Plan, Status
from .board import Board
from .effort import ALL_SEARCHES, LEAST_SEARCH
from .mip.bounds import overhead_bound
from .mip.implementations import allowed_variants
from .mip.least_bytes import pool_limit_bytes
from .options import Options

#: Of the row in the table of :mod:`memonger.solve.auto`.
NAME = "fewer variants"
#: Smaller sets of variants, the largest first.
_SMALLER = {"all": ("exact", "none"), "exact": ("none",), "none": ()}
#: Rows that do not depend on the budget: the search with all variants takes them.
WITHOUT = frozenset([NAME, "smallest plan of all", "least memory"])


def search_with_fewer(board: Board, near: float,
                      solve: Callable[[Graph, Optional[int], Options], Plan]) -> None:
    """Search again, and evaluate what comes out.

    Parameters
    ----------
    board : Board
    near : float
        A plan within this share of the step of the bound needs no other search.
    solve : callable
        The method itself.
    """
    graph, options, effort = board.graph, board.options, board.effort
    tried = {allowed_variants(graph, options.variants)}
    for variants in _SMALLER[options.variants]:
        left_s = ALL_SEARCHES * effort.limit_s - effort.spent_s
        allowed = allowed_variants(graph, variants)
        if allowed in tried or not _may_help(board, variants, near) \
                or board.best is not None and left_s < LEAST_SEARCH * effort.limit_s:
            continue
        tried.add(allowed)
        plan = solve(graph, board.limit_bytes - outside_pool_bytes(graph), replace(
            options, variants=variants, account=effort, without=options.without | WITHOUT,
            time_limit_s=min(effort.limit_s, max(left_s, LEAST_SEARCH * effort.limit_s))))
        board.interrupted |= plan.status is Status.INTERRUPTED
        board.evaluate(plan.schedule)


def _may_help(board: Board, variants: str, near: float) -> bool:
    """Whether plans with these variants may be better; without any, only where nothing fits."""
    if not board.possible or board.interrupted:
        return False
    if board.best is None:
        return True
    return variants != "none" and not board.within(near) and \
        _least_s(board, variants) <= board.best.extra_s


def _least_s(board: Board, variants: str) -> float:
    """No plan with these variants takes less extra time, by one linear program."""
    limit_bytes = pool_limit_bytes(board.graph, board.limit_bytes, variants)
    return overhead_bound(board.graph, limit_bytes, variants, board.options.keep, board.effort,
                          rounds=1).extra_s
