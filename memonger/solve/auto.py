"""The default method: a table of rows on one board.

:data:`ROWS` is the method. Each row says why it is there, when it runs, who describes it and what
it costs. A native search looks for plans, linear and 0/1 programs prove how little a plan can cost,
and each helps the other: programs suggest plans that the native search mends, and the best plan
says where programs must look. Rows end where the best plan is near its bound or the work is spent.

Work is counted, not timed (:mod:`memonger.solve.effort`), and a row waits for what it started on
the other core. So the same input gives the same plan on every machine. What a time limit above the
usual one buys are rounds behind all other rows, none of which depends on the limit: a longer
search begins as a shorter one does, and never ends with a dearer plan or a lower bound. Without
HiGHS only the native search is left. ``python -m benchmarks ablation`` leaves out each row in turn.
"""
from __future__ import annotations

from typing import Optional, Tuple

from ..graph.types import Graph
from ..plans.plan import Plan
from . import fewer_variants
from .auto_steps import (
    GIVEN,
    INTEGER_GROUPS,
    TARGET_GAP,
    TINY_OPS,
    TURNS,
    Run,
    chain,
    first_bound,
    given_plan,
    has_programs,
    least_memory_plan,
    native_search,
    programs_first,
    proofs,
    prove,
    rounded_program,
    rounds,
    turn_row,
    unplanned_step,
)
from .fallbacks import find_fallback
from .least_memory import least_memory
from .options import USUAL_TIME_LIMIT_S, Options
from .row import Row

#: The method: its rows in order.
ROWS: Tuple[Row[Run], ...] = (
    Row("unplanned", "a plan to compare with", lambda s: not s.board.options.recompute,
        unplanned_step, price="one evaluation"),
    Row(GIVEN, "what the caller knows", lambda s: s.board.options.given is not None, given_plan,
        price="one evaluation"),
    Row("first bound", "easy budgets, and the ops that decide", lambda s: True, first_bound,
        "Jain et al. 2020, Shah et al. 2021",
        "seven linear programs at most, and four tenths of a search beside them"),
    Row("programs first", "proofs in graphs of few ops, in a tenth of the time",
        lambda s: s.board.open and s.has_few_ops, programs_first,
        "Jain et al. 2020, Shah et al. 2021", "half of the time limit at most"),
    Row("live program", "bytes of live values, which programs count as plans do",
        lambda s: s.board.open and s.board.options.storage == "live" and not s.has_few_ops
        and s.wants_program and not s.board.within(s.near), prove,
        "Jain et al. 2020, Shah et al. 2021", "one 0/1 program"),
    Row("chain", "networks of blocks at deep cuts",
        lambda s: s.board.open and not s.board.within(0.01), chain,
        "Beaumont et al. 2019, Zhao et al. 2023",
        "3 s for a dynamic program, and three searches on each core"),
    Row("smallest plan", "a plan to go on from",
        lambda s: s.board.open and s.board.best is None, lambda s: find_fallback(s.board),
        "Chen et al. 2016, Feng and Huang 2021", "4 s, a fifth of the time limit at most"),
    Row("native search", "all there is without HiGHS",
        lambda s: s.board.open and not has_programs(s.board.options), native_search,
        "Kirkpatrick et al. 1983, Lourenco et al. 2003", "one search"),
    Row("rounded program", "graphs too large for 0/1 programs",
        lambda s: s.board.open and has_programs(s.board.options)
        and len(s.board.reduced.size_bytes) > INTEGER_GROUPS and not s.board.within(s.near)
        and s.affords_turn, rounded_program,
        "Jain et al. 2020", "one linear program, and a search beside it"),
    *(turn_row(turn, number) for number, turn in enumerate(TURNS)),
    Row("squeeze", "budgets that no search met",
        lambda s: s.board.open and s.board.best is None,
        lambda s: s.programs.squeeze(s.most_programs), price="twelve 0/1 programs at most"),
    Row("programs", "proofs in small graphs", lambda s: s.board.open, proofs,
        "Jain et al. 2020, Shah et al. 2021", "twelve 0/1 programs at most"),
    Row("smallest plan of all", "what a refusal calls possible",
        lambda s: s.board.best is None and not s.board.interrupted,
        lambda s: find_fallback(s.board), price="as the smallest plan, once"),
    Row("least memory", "no refusal of what a call without a budget gives",
        lambda s: s.board.best is None and not s.board.interrupted and not s.board.call_over
        and (s.board.possible or s.num_ops <= TINY_OPS),
        least_memory_plan, price="a fifth of the time limit"),
    Row(fewer_variants.NAME, "networks whose variants lead a search astray",
        lambda s: s.board.possible and not s.board.interrupted,
        lambda s: fewer_variants.search_with_fewer(s.board, TARGET_GAP, solve),
        price="what all searches may take beyond the time limit, three tenths of it"),
    Row("rounds", "what a longer time limit buys",
        lambda s: s.board.options.time_limit_s > USUAL_TIME_LIMIT_S and s.board.possible
        and not s.board.interrupted, rounds, "Moscato 1989",
        "all that the time limit is above ten seconds"),
)

#: Left out, method "auto" evaluates the plan that it is given, and no other.
ALL_BUT_GIVEN = frozenset(row.name for row in ROWS if row.name != GIVEN)


def solve(graph: Graph, budget_bytes: Optional[int], options: Options) -> Plan:
    """Method "auto"; the signature of all solvers."""
    if budget_bytes is None or options.objective == "memory":
        return least_memory(graph, budget_bytes, options, solve)
    search = Run.start(graph, budget_bytes, options)
    try:
        for row in ROWS:
            if row.name not in options.without and row.when(search):
                search.board.report()
                row.run(search)
    except KeyboardInterrupt:
        search.board.interrupted = True
    return search.board.plan("auto", budget_bytes)
