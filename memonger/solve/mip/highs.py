"""HiGHS behind two calls: solve a linear program, solve a 0/1 program.

HiGHS computes in floating point, so nothing it says of a linear program is taken on trust:
:func:`dual_bound` turns any multipliers into a lower bound that holds whatever the solver did
(every variable lies in a box, so the reduced costs can be minimised one by one),
:func:`proves_infeasible` does the same for "no point at all", and whoever uses a primal solution
checks it in exact integers. For a 0/1 program its word is all there is: its bound is lowered by a
millionth where it is used, and "infeasible" must be said twice. Its tolerances are absolute (1e-7
of a reduced cost), so costs far below one, such as the seconds of small ops, are scaled up.
A program in which it fails proves nothing and has no point; the plan says so in a note.
"""
from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Optional, Tuple

import numpy as np

from ...util.errors import SolverUnavailable
from ..effort import Effort
from .highs_runs import Solver, import_highspy
from .program import Program

#: Programs whose largest cost is below so many seconds are scaled.
_SMALL_COST = 1e-4
#: Predicted seconds of a linear program by its nonzeros: this times a power of their number.
_LINEAR_S = 1.0e-7
#: That power.
_LINEAR_POWER = 1.5
#: Predicted seconds for each nonzero of a linear program, at most, up to ``_LARGE_ENTRIES``.
_LARGE_LINEAR_S = 3.0e-5
#: Nonzeros from which on a linear program is large.
_LARGE_ENTRIES = 100_000
#: Predicted seconds for each nonzero beyond these, at most.
_MORE_LINEAR_S = 1.2e-5
#: Seconds between two checks of HiGHS in a 0/1 program of no size.
_CHECK_S = 0.006
#: Seconds between two checks that each nonzero adds.
_CHECK_S_PER_ENTRY = 1.8e-6


@dataclass
class Solution:
    """What came back: ``values`` is None when no feasible point is known."""

    #: (columns,) float64.
    values: Optional[np.ndarray]
    #: Proven lower bound of the objective; ``inf`` when the program has no feasible point.
    bound: float
    #: "optimal", "infeasible", "interrupted", or "unknown": a limit ended it, or it failed.
    status: str


def available() -> bool:
    """True when highspy can be imported."""
    try:
        import_highspy()
    except SolverUnavailable:
        return False
    return True


def require() -> None:
    """Raise SolverUnavailable when highspy is missing."""
    import_highspy()


def linear_s(program: Program) -> float:
    """Counted seconds of a linear program, or of what comes before the checks of a 0/1 program."""
    entries = len(program.value)
    more = max(0, entries - _LARGE_ENTRIES)
    return min(_LINEAR_S * entries ** _LINEAR_POWER,
               _LARGE_LINEAR_S * (entries - more) + _MORE_LINEAR_S * more)


def _scaled(program: Program) -> Tuple[Program, float]:
    """The program with costs of a size that HiGHS can tell apart, and the factor."""
    largest = float(np.abs(program.cost).max(initial=0.0))
    if not 0.0 < largest < _SMALL_COST:
        return program, 1.0
    factor = 2.0 ** -np.floor(np.log2(largest))  # a power of two: bits stay what they are
    return replace(program, cost=program.cost * factor), factor


def dual_bound(program: Program, multipliers: np.ndarray) -> float:
    """Lower bound of the program that these row multipliers prove.

    Parameters
    ----------
    program : Program
    multipliers : ndarray
        (rows,) float64; those with the wrong sign for a one-sided row are set to zero.

    Returns
    -------
    float
        ``min over the box of cost x + y (b - A x)``, less a margin for rounding.
    """
    y = np.where(np.isfinite(multipliers), multipliers, 0.0)
    y = np.where((y > 0) & ~np.isfinite(program.row_lower), 0.0, y)
    y = np.where((y < 0) & ~np.isfinite(program.row_upper), 0.0, y)
    side = np.where(y > 0, program.row_lower, program.row_upper)
    constant = y * np.where(y == 0, 0.0, side)
    rows = np.repeat(np.arange(program.num_rows), np.diff(program.start))
    weighted = y[rows] * program.value
    reduced = program.cost - np.bincount(program.index, weights=weighted,
                                         minlength=program.num_columns)
    best = np.where(reduced > 0, reduced * program.lower, reduced * program.upper)
    margin = 1e-12 * (np.abs(constant).sum() + np.abs(weighted).sum())
    return float(constant.sum() + best.sum() - margin)


def solve_linear(program: Program, effort: Effort) -> Solution:
    """Solve the linear program by HiGHS's interior-point method, where that fails by its simplex.

    It is solved to the end, whatever is left of the counted work.

    Raises
    ------
    SolverUnavailable
        If highspy is missing.
    """
    effort.spend(linear_s(program))
    program, factor = _scaled(program)
    result = Solution(None, dual_bound(program, np.zeros(program.num_rows)), "unknown")
    failure = ""
    for options in ({"solver": "ipm", "run_crossover": "off"}, {"solver": "simplex"}):
        solver = Solver(program, effort.clock_s)
        solver.set(**options)
        if _runs(solver):
            result, failure = _linear_result(program, solver.highs, effort), ""
        else:
            failure = failure or solver.failure
        if result.status != "unknown" or effort.clock_s <= 0:
            break
    if failure:
        effort.note_failure(failure)
    return replace(result, bound=result.bound / factor)


def _runs(solver: Solver) -> bool:
    """Run a linear program: whether there is an answer. Ctrl-C is raised at its end."""
    ended = solver.run()
    if ended.interrupted:
        raise KeyboardInterrupt
    return ended.ok


def proves_infeasible(program: Program, effort: Effort) -> bool:
    """True when multipliers prove that no point satisfies all rows.

    They come from the program that lets every row be missed by a common amount and asks for the
    least amount; its dual bound is above zero only where the rows contradict each other.
    """
    count = program.num_columns
    reach = np.zeros(program.num_rows)
    rows = np.repeat(np.arange(program.num_rows), np.diff(program.start))
    box = np.maximum(np.abs(program.lower), np.abs(program.upper))
    np.add.at(reach, rows, np.abs(program.value) * box[program.index])
    sides = [np.where(np.isfinite(side), np.abs(side), 0.0)
             for side in (program.row_lower, program.row_upper)]
    most = float((reach + np.maximum(*sides)).max(initial=0.0)) + 1.0
    below = np.flatnonzero(np.isfinite(program.row_lower))
    above = np.flatnonzero(np.isfinite(program.row_upper))
    all_rows = np.concatenate([rows, below, above])
    order = np.argsort(all_rows, kind="stable")
    index = np.concatenate([program.index, np.full(len(below), count),
                            np.full(len(above), count + 1)])[order]
    value = np.concatenate([program.value, np.ones(len(below)), -np.ones(len(above))])[order]
    start = np.concatenate([[0], np.cumsum(np.bincount(all_rows, minlength=program.num_rows))])
    elastic = replace(
        program, cost=np.append(np.zeros(count), [1.0, 1.0]),
        lower=np.append(program.lower, [0.0, 0.0]), upper=np.append(program.upper, [most, most]),
        start=start.astype(np.int32), index=index.astype(np.int32), value=value)
    effort.spend(linear_s(elastic))
    solver = Solver(elastic, max(effort.clock_s, 1.0))
    if not _runs(solver):
        effort.note_failure(solver.failure)
        return False
    multipliers = np.array(solver.highs.getSolution().row_dual, dtype=np.float64)
    return len(multipliers) == program.num_rows and dual_bound(elastic, multipliers) > 1e-7


def _contradicts_itself(program: Program, solver: Any) -> bool:
    """Whether the point costs something else than HiGHS says.

    Release 1.16 may cost a start too low when presolve has made the program smaller. Then it looks
    only for what is cheaper still, and answers with the start.
    """
    values = np.array(solver.getSolution().col_value, dtype=np.float64)
    told = solver.getInfo().objective_function_value
    if len(values) != program.num_columns or not np.isfinite(told):
        return False
    costs = program.cost * values
    return abs(costs.sum() - told) > 1e-6 * max(np.abs(costs).sum(), abs(told))


def _linear_result(program: Program, solver: Any, effort: Effort) -> Solution:
    highspy = import_highspy()
    status = solver.getModelStatus()
    solution = solver.getSolution()
    nothing = dual_bound(program, np.zeros(program.num_rows))
    if status == highspy.HighsModelStatus.kInfeasible:
        if not proves_infeasible(program, effort):
            return Solution(None, nothing, "unknown")
        return Solution(None, float("inf"), "infeasible")
    name = "optimal" if status == highspy.HighsModelStatus.kOptimal else "unknown"
    multipliers = np.array(solution.row_dual, dtype=np.float64)
    values = np.array(solution.col_value, dtype=np.float64)
    bound = dual_bound(program, multipliers) if len(multipliers) == program.num_rows \
        else float("-inf")
    return Solution(values if name == "optimal" else None, max(bound, nothing), name)


def solve_integer(program: Program, integer_columns: np.ndarray, effort: Effort,
                  start: Optional[np.ndarray] = None, gap: float = 0.0,
                  max_checks: int = 0, absolute_gap: float = 0.0) -> Solution:
    """Solve the program with some columns 0 or 1.

    Ctrl-C ends it with the best point found.

    Parameters
    ----------
    program : Program
    integer_columns : ndarray
        (number of them,) int64.
    effort : Effort
        HiGHS is stopped by how often it has asked whether to go on.
    start : ndarray, optional
        (columns,) float64: a feasible point to begin with.
    gap : float
        Stop when the bound is within this share of the best point.
    max_checks : int
        Most times that HiGHS may ask; 0: as often as the effort allows.
    absolute_gap : float
        Stop when the bound is within this many seconds of the best point.

    Returns
    -------
    Solution
        Status "interrupted" after Ctrl-C.

    Raises
    ------
    SolverUnavailable
        If highspy is missing.
    """
    highspy = import_highspy()
    program, factor = _scaled(program)
    check_s = _CHECK_S + _CHECK_S_PER_ENTRY * len(program.value)
    most = max(1, int(effort.left_s / check_s))
    max_checks = min(max_checks, most) if max_checks else most
    solver = Solver(program, effort.clock_s, np.asarray(integer_columns))
    solver.set(mip_rel_gap=gap)
    if absolute_gap > 0:
        solver.set(mip_abs_gap=absolute_gap * factor)
    if len(program.length.columns):
        # Of such programs HiGHS 1.16 may never end presolving one anew, whatever its time limit.
        solver.set(mip_allow_restart=False)
    if start is not None:
        solver.start_from(start)
    ended = solver.run(max_checks)
    effort.spend(linear_s(program) + ended.checks * check_s)
    interrupted, model = ended.interrupted, highspy.HighsModelStatus
    infeasible = ended.ok and solver.highs.getModelStatus() == model.kInfeasible
    if infeasible or ended.ok and start is not None and _contradicts_itself(program, solver.highs):
        # Presolve has called feasible programs infeasible; what ends a search is asked twice.
        if infeasible:
            solver.set(presolve="off")
        solver.forget()  # the start as well
        ended = solver.run(max_checks)
        effort.spend(ended.checks * check_s)
        interrupted |= ended.interrupted
        if infeasible and ended.ok and solver.highs.getModelStatus() == model.kInfeasible:
            return Solution(None, float("inf"), "infeasible")
    if not ended.ok:
        effort.note_failure(solver.failure)
        return Solution(None, float("-inf"), "interrupted" if interrupted else "unknown")
    info, status = solver.highs.getInfo(), solver.highs.getModelStatus()
    values = np.array(solver.highs.getSolution().col_value, dtype=np.float64)
    known = len(values) == program.num_columns and np.isfinite(info.objective_function_value) \
        and info.primal_solution_status == 2
    name = "interrupted" if interrupted else "optimal" if status == model.kOptimal else "unknown"
    return Solution(values if known else None, float(info.mip_dual_bound) / factor, name)
