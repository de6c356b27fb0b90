"""The exact method: 0/1 programs (:mod:`memonger.solve.refining`) until a plan is proven.

The native search, where its library is there, gives the first plan. Cost: the worst case is
exponential; ``time_limit_s`` ends it.
"""
from __future__ import annotations

from typing import Optional

from ..graph.types import Graph
from ..plans.plan import Plan
from .board import Board
from .fallbacks import find_fallback
from .least_memory import least_memory
from .mip import highs
from .options import Options
from .refining import Programs
from .result import as_asked


def solve(graph: Graph, budget_bytes: Optional[int], options: Options) -> Plan:
    """Method "milp"; the signature of all solvers.

    Raises
    ------
    SolverUnavailable
        If highspy is missing.
    """
    highs.require()
    if budget_bytes is None or options.objective == "memory":
        return least_memory(graph, budget_bytes, options)
    board = Board.start(graph, budget_bytes, options)
    programs = Programs(board)
    work = 20000 * max(len(graph.ops), 100)
    try:
        board.evaluate(as_asked(graph, options))
        board.first_bound()
        programs.constrained = list(board.bound.constrained)
        if not board.possible:
            find_fallback(board)
        board.walks.improve(board, work // 2)
        programs.refine(12, share=0.2, mend_work=work // 8)
        if board.best is None and board.possible:
            programs.squeeze(12)
            programs.constrained, programs.exhausted = list(board.bound.constrained), False
        programs.refine(10 ** 6)
    except KeyboardInterrupt:
        board.interrupted = True
    return board.plan("milp", budget_bytes)
