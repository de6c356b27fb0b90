"""One program in HiGHS: all statuses are read here, and every run has a thread of its own.

HiGHS makes a scheduler for each thread that runs it, with as many workers as the first run there
asks for; a later one that asks for another number is an error. So a thread of a run's own finds no
scheduler, whatever the caller's thread ran before, and its end leaves none there, nor one that
another thread uses. highspy's ``startSolve`` has its own thread as well, but one lock for all
solvers of a process, the user's included.
"""
from __future__ import annotations

import threading
from typing import Any, List, NamedTuple, Optional

import numpy as np

from ...util.errors import SolverError, SolverUnavailable
from .program import Program


class Ended(NamedTuple):
    """How a run ended."""

    #: False: HiGHS says "error", and nothing that it holds is an answer.
    ok: bool
    #: Ctrl-C ended it.
    interrupted: bool
    #: How often HiGHS asked whether to go on with a 0/1 program.
    checks: int


class Solver:
    """HiGHS with one program.

    Parameters
    ----------
    program : Program
    clock_s : float
        Seconds after which HiGHS stops.
    integer_columns : ndarray, optional
        (number of them,) int64: columns that are whole.

    Raises
    ------
    SolverError
        Here and below where HiGHS refuses what it is given.
    SolverUnavailable
        If highspy is missing.
    """

    def __init__(self, program: Program, clock_s: float,
                 integer_columns: Optional[np.ndarray] = None):
        highspy = import_highspy()
        self._error = highspy.HighsStatus.kError
        self._program = program
        self._kind = "linear program" if integer_columns is None else "0/1 program"
        self.highs = quiet(highspy)()
        self.set(output_flag=False, threads=1, random_seed=1, time_limit=max(clock_s, 0.01))
        self._accepted(self.highs.passModel(_model(highspy, program, integer_columns)),
                       "the program")

    def set(self, **options: Any) -> None:
        """Set options of HiGHS."""
        for name, value in options.items():
            self._accepted(self.highs.setOptionValue(name, value), "%s=%r" % (name, value))

    def start_from(self, values: np.ndarray) -> None:
        """Begin with a point, (columns,) float64, that is feasible."""
        point = import_highspy().HighsSolution()
        point.col_value = [float(v) for v in values]
        point.value_valid = True
        self._accepted(self.highs.setSolution(point), "a point to start from")

    def forget(self) -> None:
        """The next run starts anew."""
        self._accepted(self.highs.clearSolver(), "to start anew")

    def run(self, most_checks: Optional[int] = None) -> Ended:
        """Run to the end, or until a 0/1 program has asked so often whether to go on.

        Ctrl-C ends a 0/1 program; a linear one goes on to its end.
        """
        checks = 0
        statuses: List[Any] = []
        failed: List[BaseException] = []
        over = threading.Event()

        def check(event: Any) -> None:
            nonlocal checks
            checks += 1
            if raised or most_checks is not None and checks > most_checks:
                event.interrupt()

        def run() -> None:
            try:
                statuses.append(self.highs.run())
            except BaseException as error:  # noqa: B036 - raised again where it is waited for
                failed.append(error)
            finally:
                over.set()

        #: By handlers of signals, while this thread waits.
        raised: List[BaseException] = []
        self.highs.cbMipInterrupt += check
        threading.Thread(target=run, name="memonger-highs", daemon=True).start()
        while not over.is_set():
            try:
                over.wait()
            except BaseException as error:  # noqa: B036 - raised again below
                raised.append(error)
        self.highs.cbMipInterrupt -= check
        for one in (*failed, *raised):
            if not isinstance(one, KeyboardInterrupt):
                raise one
        return Ended(statuses[0] != self._error, bool(raised), checks)

    @property
    def failure(self) -> str:
        """What to say of a run that is not ``ok``."""
        return "%s, model status %s" % (self, self.highs.modelStatusToString(
            self.highs.getModelStatus()))

    def __str__(self) -> str:
        return "a %s of %d columns and %d rows" % (
            self._kind, self._program.num_columns, self._program.num_rows)

    def _accepted(self, status: Any, what: str) -> None:
        if status == self._error:
            raise SolverError("HiGHS refuses %s for %s; please report this with the version of "
                              "highspy" % (what, self))


def import_highspy() -> Any:
    """The module; SolverUnavailable where it is missing."""
    try:
        import highspy
    except ImportError as error:
        raise SolverUnavailable(
            "this needs the HiGHS solver: pip install 'highspy>=1.10' "
            "(method='local' works without it)") from error
    return highspy


def quiet(highspy: Any) -> Any:
    """Highs without the banner that release 1.16 prints while it is made."""
    class Quiet(highspy.Highs):
        def enableCallbacks(self) -> None:
            self.setOptionValue("output_flag", False)
            super().enableCallbacks()

    return Quiet


def _model(highspy: Any, program: Program, integer_columns: Optional[np.ndarray]) -> Any:
    model = highspy.HighsLp()
    model.num_col_, model.num_row_ = program.num_columns, program.num_rows
    model.col_cost_, model.col_lower_, model.col_upper_ = \
        program.cost, program.lower, program.upper
    model.row_lower_, model.row_upper_ = program.row_lower, program.row_upper
    model.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
    model.a_matrix_.start_ = program.start
    model.a_matrix_.index_ = program.index
    model.a_matrix_.value_ = program.value
    if integer_columns is not None:
        kinds = [highspy.HighsVarType.kContinuous] * program.num_columns
        for column in integer_columns:
            kinds[column] = highspy.HighsVarType.kInteger
        model.integrality_ = kinds
    return model
