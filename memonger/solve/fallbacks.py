"""Plans that do not depend on the budget, for budgets that no search meets.

A budget is refused only if none of these plans fits; the total that the error names can always be
reached.
"""
from __future__ import annotations

from dataclasses import replace
from operator import attrgetter

from ..plans.plan import Plan, Status
from ..util.errors import PluginMissing
from .board import Board
from .candidate import Candidate
from .result import unplanned
from .search import local
from .search.starts import baseline_schedules

#: Counted seconds for the smallest plan of the native search.
FALLBACK_S = 4.0
#: The share of the time limit that they may take.
FALLBACK_SHARE = 0.2


def find_fallback(board: Board) -> None:
    """Evaluate the plan with the least memory and those of simpler methods. Once."""
    if board.fallback is not None:
        return
    options = replace(board.options, objective="memory", max_overhead=None, bound=False,
                      account=board.effort, time_limit_s=min(
                          FALLBACK_S, FALLBACK_SHARE * board.options.time_limit_s))
    candidates = [board.evaluate(unplanned(board.graph))]
    try:
        candidates.append(_evaluated(board, local.solve(board.graph, None, options)))
    except (PluginMissing, OSError):
        pass
    sets = sorted({(), candidates[-1].schedule.variants})
    if not board.interrupted:
        candidates += [board.evaluate(schedule)
                       for schedule in baseline_schedules(board.graph, options, sets)]
    least = min(candidates, key=attrgetter("bytes"))
    smallest = board.chain.smallest(least.bytes) if board.chain and not board.interrupted else None
    if smallest is not None:
        least = min(least, board.evaluate(smallest.schedule), key=attrgetter("bytes"))
    board.fallback = least


def offer_fallback(board: Board, plan: Plan) -> None:
    """Another plan that does not depend on the budget."""
    candidate = _evaluated(board, plan)
    if board.fallback is None or candidate.bytes < board.fallback.bytes:
        board.fallback = candidate


def _evaluated(board: Board, plan: Plan) -> Candidate:
    board.interrupted |= plan.status is Status.INTERRUPTED
    return board.evaluate(plan.schedule)
