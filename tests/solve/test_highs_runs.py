"""Runs of HiGHS: what the process ran before or runs beside them changes no plan, and back."""
from __future__ import annotations

import json
import os
import signal
import threading
import time
from types import SimpleNamespace

import pytest
from forked import python
from offloaded import chain_of_two_streams
from small_graphs import chain

from memonger.plans.plan import Status
from memonger.solve import Options, solve
from memonger.solve.effort import Effort
from memonger.solve.mip import highs, highs_runs
from memonger.solve.mip.formulation import build
from memonger.solve.mip.problem import reduce_graph
from memonger.solve.mip.program import integer_columns
from memonger.util.errors import InfeasibleBudget, SolverError

highspy = pytest.importorskip("highspy")
GRAPH = chain((400, 300, 500, 200) * 5, (3.0, 1.0, 2.0, 1.5) * 5)
OPTIONS = Options(storage="live")
BUDGET = 3000
HURRIED = Options(storage="live", time_limit_s=0.5)


def users_solver(threads: int) -> "highspy.Highs":
    """A knapsack of a user's own."""
    solver = highspy.Highs()
    solver.setOptionValue("output_flag", False)
    solver.setOptionValue("threads", threads)
    for i in range(8):
        solver.addVar(0, 1)
        solver.changeColIntegrality(i, highspy.HighsVarType.kInteger)
        solver.changeColCost(i, -1.0 - i % 3)
    solver.addRow(-highspy.kHighsInf, 7, 8, list(range(8)), [2.0, 3, 2, 4, 3, 2, 5, 3])
    return solver


def plans():
    """What users see of plans, the last one bounded by linear programs, as JSON gives it back."""
    return json.loads(json.dumps([
        [[(step.op, step.sources) for step in plan.schedule.steps], plan.status.value, plan.bound,
         plan.notes]
        for plan in (solve(GRAPH, BUDGET, method, OPTIONS)
                     for method in ("auto", "milp", "chen"))]))


def in_own_process(before: int, after: int):
    """Plans between two runs of a user with so many threads, -1 for none; the user's statuses."""
    done = python("-c", """
import json
from solve.test_highs_runs import plans, users_solver
own = users_solver(max(%d, 0))
first = str(own.run()) if %d >= 0 else ""
made = plans()
print(json.dumps([made, first, str(users_solver(%d).run()), str(own.run())]))
""" % (before, before, after))
    assert done.returncode == 0, done.stdout
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("before, after", [
    (-1, 1), (-1, 2), (-1, 4), (0, 0), (1, 1), (2, 2), (4, 4), (2, 0), (4, 0)])
def test_a_users_number_of_threads_changes_no_plan_nor_a_plan_the_users_runs(before, after):
    made, *statuses = in_own_process(before, after)
    assert made == plans()
    assert set(statuses) <= {"", "HighsStatus.kOk"}
    assert made[0][1] == made[1][1] == "optimal"


def test_a_user_may_solve_in_other_threads_meanwhile():
    alone, statuses, over = plans(), [], threading.Event()

    def users() -> None:
        while not over.is_set():
            solver = users_solver(2)
            solver.HandleKeyboardInterrupt = True  # by highspy's own thread and lock
            statuses.append(solver.solve())
            statuses.append(users_solver(2).run())
    thread = threading.Thread(target=users)
    thread.start()
    together = [plans() for _ in range(3)]
    over.set()
    thread.join()
    assert together == [alone] * 3
    assert len(statuses) > 2 and set(statuses) == {highspy.HighsStatus.kOk}


class Failing(highspy.Highs):
    """Every run is an error."""

    def run(self):
        return highspy.HighsStatus.kError


@pytest.fixture
def failing(monkeypatch):
    monkeypatch.setattr(highs_runs, "quiet", lambda highspy: Failing)


@pytest.mark.parametrize("method", ["auto", "milp", "chen"])
def test_a_plan_says_where_highs_failed(method, failing):
    plan = solve(GRAPH, BUDGET, method, HURRIED)
    assert plan.total_bytes <= BUDGET
    (note,) = [note for note in plan.notes if "HiGHS" in note]
    assert "HiGHS failed in" in note and "model status" in note
    assert plan.bound == 0 < plan.overhead and plan.status is not Status.OPTIMAL


def test_a_failure_in_one_solver_that_another_mends_is_no_failure(monkeypatch):
    class FailingInterior(highspy.Highs):
        def run(self):
            if self.getOptionValue("solver")[1] == "ipm":
                return highspy.HighsStatus.kError
            return super().run()
    monkeypatch.setattr(highs_runs, "quiet", lambda highspy: FailingInterior)
    plan = solve(GRAPH, BUDGET, "milp", OPTIONS)
    assert plan.status is Status.OPTIMAL and plan.notes == ()


def test_a_refusal_says_where_highs_failed(failing):
    with pytest.raises(InfeasibleBudget, match="HiGHS failed in"):
        solve(GRAPH, 850, "auto", HURRIED)


@pytest.mark.parametrize("call", ["setOptionValue", "passModel", "setSolution"])
def test_what_highs_refuses_is_raised(call, monkeypatch):
    class Refusing(highspy.Highs):
        pass
    setattr(Refusing, call, lambda self, *_: highspy.HighsStatus.kError)
    monkeypatch.setattr(highs_runs, "quiet", lambda highspy: Refusing)
    with pytest.raises(SolverError, match="HiGHS refuses"):
        solve(GRAPH, BUDGET, "milp", OPTIONS)


class Endless(highspy.Highs):
    """Runs until it is told to stop, and asks all the time."""

    def run(self):
        asked = SimpleNamespace(over=False)
        asked.interrupt = lambda: setattr(asked, "over", True)
        while not asked.over:
            time.sleep(0.001)
            for check in self.cbMipInterrupt.callbacks:
                check(asked)
        return highspy.HighsStatus.kWarning


@pytest.fixture
def endless(monkeypatch):
    monkeypatch.setattr(highs_runs, "quiet", lambda highspy: Endless)
    program = build(reduce_graph(GRAPH), [20], BUDGET)
    return highs_runs.Solver(program, 60.0, integer_columns(program))


def test_a_run_ends_after_so_many_checks(endless):
    assert endless.run(5) == (True, False, 6)


def test_ctrl_c_ends_a_run(endless):
    timer = threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    ended = endless.run()
    timer.join()
    assert ended.ok and ended.interrupted and ended.checks > 1


def test_what_a_users_handler_of_a_signal_raises_comes_out(endless):
    def handler(*_):
        raise TimeoutError("the user's own")
    own = signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, 0.1)
    try:
        with pytest.raises(TimeoutError):
            endless.run()
    finally:
        signal.signal(signal.SIGALRM, own)
    assert not any(thread.name == "memonger-highs" and thread.is_alive()
                   for thread in threading.enumerate())


@pytest.mark.parametrize("graph,streams", [(GRAPH, False), (chain_of_two_streams(), True)])
def test_programs_of_streams_are_presolved_once(graph, streams, monkeypatch):
    """HiGHS 1.16 did not come back from a second presolve of one, whatever its time limit."""
    asked = {}
    usual = highs_runs.Solver.set
    monkeypatch.setattr(highs_runs.Solver, "set", lambda self, **options: asked.update(
        options) or usual(self, **options))
    program = build(reduce_graph(graph, "exact"), [len(graph.ops) // 2], 10 ** 6)
    assert highs.solve_integer(program, integer_columns(program), Effort(1.0)).status == "optimal"
    assert asked.get("mip_allow_restart", True) is not streams
