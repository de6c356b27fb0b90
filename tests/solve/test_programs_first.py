"""Graphs of few ops, and bytes of live values: method "auto" begins with 0/1 programs."""
from __future__ import annotations

from types import SimpleNamespace

import pytest
from small_graphs import chain

from memonger.graph.schedule import expand
from memonger.memory.storage import plan_storage
from memonger.plans.plan import Status
from memonger.solve import Options, auto_steps, solve
from memonger.solve.effort import Effort
from memonger.solve.mip import highs, highs_runs
from memonger.solve.mip.formulation import build
from memonger.solve.mip.problem import reduce_graph
from memonger.solve.mip.program import integer_columns

highspy = pytest.importorskip("highspy")
CHAIN = chain((400, 300, 500, 200) * 5, (3.0, 1.0, 2.0, 1.5) * 5)


@pytest.mark.parametrize("share", [0.5, 0.35])
def test_a_proof_takes_little_work(share):
    budget = int(share * plan_storage(CHAIN, expand(CHAIN, {}), "live").pool_bytes)
    account = Effort(float("inf"))
    plan = solve(CHAIN, budget, "auto", Options(storage="live", account=account))
    exact = solve(CHAIN, budget, "milp", Options(storage="live"))
    assert plan.status is exact.status is Status.OPTIMAL
    assert plan.overhead == pytest.approx(exact.overhead)
    assert account.spent_s < 1.0  # of ten


def test_one_program_plans_a_large_graph_whose_bytes_are_those_of_live_values() -> None:
    graph = chain((400, 300, 500, 200) * 100, (3.0, 1.0, 2.0, 1.5) * 100)
    budget = int(0.3 * plan_storage(graph, expand(graph, {}), "live").pool_bytes)
    first, later = Effort(float("inf")), Effort(float("inf"))
    plan = solve(graph, budget, "auto", Options(storage="live", account=first))
    searched = solve(graph, budget, "auto", Options(
        storage="live", account=later, without=frozenset(["live program"])))
    assert plan.overhead <= searched.overhead + auto_steps.LIVE_GAP
    assert 2 * first.spent_s < later.spent_s


def test_an_answer_that_contradicts_itself_is_asked_for_again_without_the_start(monkeypatch):
    """HiGHS 1.16 costs some starts too low, and calls them optimal for that cost."""
    class Confused(highspy.Highs):
        started = False

        def setSolution(self, point):
            self.started = True
            return super().setSolution(point)

        def clearSolver(self):
            self.started = False
            return super().clearSolver()

        def getInfo(self):
            info = super().getInfo()
            less = self.started * 1.0
            return SimpleNamespace(
                objective_function_value=info.objective_function_value - less,
                mip_dual_bound=info.mip_dual_bound - less,
                primal_solution_status=info.primal_solution_status)

    program = build(reduce_graph(CHAIN), list(range(20, 40)), 3000)
    columns = integer_columns(program)
    best = highs.solve_integer(program, columns, Effort(5.0))
    monkeypatch.setattr(highs_runs, "quiet", lambda highspy: Confused)
    again = highs.solve_integer(program, columns, Effort(5.0), best.values)
    assert again.status == "optimal" and again.bound == pytest.approx(best.bound)
