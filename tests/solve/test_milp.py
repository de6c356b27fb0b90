"""The exact method against exhaustive search, on chains, random and variant graphs."""
from __future__ import annotations

import builtins
import random
from concurrent.futures import ThreadPoolExecutor

import pytest
import strategies
from hypothesis import given
from hypothesis import strategies as st
from small_graphs import chain, optimum, variant_graph

from memonger.graph.schedule import expand
from memonger.graph.types import Graph, Op, Tensor
from memonger.memory.storage import plan_storage
from memonger.plans.plan import Status
from memonger.solve import Options
from memonger.solve.board import Board
from memonger.solve.effort import Effort
from memonger.solve.milp import solve
from memonger.solve.mip import highs, highs_runs
from memonger.solve.mip.formulation import build
from memonger.solve.mip.problem import reduce_graph
from memonger.solve.mip.program import integer_columns
from memonger.solve.mip.rounding import schedule_of_point
from memonger.solve.refining import Programs
from memonger.util.errors import SolverUnavailable

OPTIONS = Options(storage="live", time_limit_s=20.0)


@given(strategies.graphs(max_forward=8), st.integers(0, 2 ** 20))
def test_decoded_points_run_and_cost_what_they_say(graph: Graph, picks: int) -> None:
    reduced = reduce_graph(graph)
    budget = 0.7 * plan_storage(graph, expand(graph, {}), "live").pool_bytes
    if budget <= 0:
        return
    program = build(reduced, [k for k in range(len(graph.ops)) if picks >> k & 1] or [0], budget)
    found = highs.solve_integer(program, integer_columns(program), Effort(5.0))
    if found.values is None:
        return
    schedule = schedule_of_point(program, reduced, found.values)
    assert schedule is not None
    plan_storage(graph, schedule, "live")
    first_runs = [step.op for index, step in enumerate(schedule.steps)
                  if step.op not in {s.op for s in schedule.steps[:index]}]
    assert first_runs == list(range(len(graph.ops)))


def compare_with_exhaustive(graph: Graph, shares=(0.5, 0.7, 0.85)) -> int:
    whole = plan_storage(graph, expand(graph, {}), "live").pool_bytes
    proven = 0
    for share in shares:
        budget = int(whole * share)
        exact = optimum(graph, budget)
        plan = solve(graph, budget, OPTIONS)
        extra = plan.overhead * graph.time_s
        assert plan.bound * graph.time_s <= (exact if exact is not None else float("inf")) + 1e-5
        if plan.pool_bytes > budget:
            continue
        assert exact is not None and extra >= exact - 1e-6
        if plan.status is Status.OPTIMAL:
            assert extra == pytest.approx(exact, abs=1e-4)
            proven += 1
    return proven


def test_milp_proves_the_optima_of_chains() -> None:
    rng = random.Random(5)
    proven = 0
    for _ in range(6):
        sizes = tuple(rng.choice((256, 512, 1024)) for _ in range(4))
        graph = chain(sizes, tuple(float(rng.randint(1, 5)) for _ in sizes))
        proven += compare_with_exhaustive(graph)
    assert proven >= 8


def test_milp_uses_variants() -> None:
    graph = variant_graph(0.0)
    plan = solve(graph, 800 * 2 + 50 + 100, OPTIONS)
    assert plan.schedule.variants == (0,)
    assert plan.status is Status.OPTIMAL
    assert plan.overhead * graph.time_s == pytest.approx(0.5, abs=1e-6)


def test_missing_solver_is_said(monkeypatch) -> None:
    original = builtins.__import__

    def refuse(name, *rest):
        if name == "highspy":
            raise ImportError(name)
        return original(name, *rest)

    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(SolverUnavailable, match="highspy"):
        solve(strategies.training_graph(random.Random(1)), 1000, OPTIONS)


def test_threads_plan_alike() -> None:
    """highspy's own threads have one state for all solvers and refuse two runs at once."""
    graph = chain((400,) * 12, (3.0, 1.0, 2.0, 1.0) * 3)
    expected = solve(graph, 3000, OPTIONS)
    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(lambda _: solve(graph, 3000, OPTIONS), range(8)))
    assert all(plan.schedule == expected.schedule for plan in found)


def test_interrupt_returns_the_best_so_far(monkeypatch) -> None:
    def stop(self, *rest, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr(Programs, "refine", stop)
    graph = chain((400, 400, 400, 100), (3.0, 1.0, 2.0, 1.0))
    plan = solve(graph, 1100, OPTIONS)
    assert plan.status in (Status.INTERRUPTED, Status.OPTIMAL)
    assert len(plan.schedule.steps) >= len(graph.ops)


def test_highs_prints_nothing(capfd):
    class Loud(highs.import_highspy().Highs):
        """As release 1.16: a banner while it is made, unless output is off."""

        def enableCallbacks(self):
            if self.getOptionValue("output_flag")[1]:
                print("Running HiGHS")
            super().enableCallbacks()

    class Highspy:
        Highs = Loud

    highs_runs.quiet(Highspy)().run()
    assert capfd.readouterr().out == ""
    Loud()
    assert "Running" in capfd.readouterr().out


def test_one_output_goes_while_the_other_stays() -> None:
    """A pooling layer's workspace stayed for a ResNet's whole step where its output did."""
    tensors = (Tensor("pooled", 100, 0), Tensor("workspace", 400, 0), Tensor("next", 600, 1),
               Tensor("next_gradient", 100, 2), Tensor("gradient", 100, 3))
    ops = (Op.of("pool", "op", (), (0, 1), time_s=5.0),
           Op.of("next", "op", (0,), (2,), time_s=20.0),
           Op.of("next_backward", "op", (0, 2), (3,), True),
           Op.of("pool_backward", "op", (3, 0, 1), (4,), True))
    graph = Graph(tensors, ops, ())
    plan = solve(graph, 800, OPTIONS)
    assert plan.status is Status.OPTIMAL and plan.overhead * graph.time_s == pytest.approx(5.0)
    program = build(reduce_graph(graph), [1, 2], 800)
    point = highs.solve_integer(program, integer_columns(program), Effort(5.0)).values
    assert plan_storage(graph, schedule_of_point(program, reduce_graph(graph), point),
                        "live").peak_live_bytes == 800


def test_a_program_without_an_answer_is_not_asked_again(monkeypatch) -> None:
    """A GAN at a budget that only whole buffers might meet was planned for twenty minutes."""
    graph = chain((400, 400, 400, 100), (3.0, 1.0, 2.0, 1.0))
    board = Board.start(graph, 900, OPTIONS)
    board.first_bound()
    programs, asked = Programs(board, list(board.bound.constrained)), []
    monkeypatch.setattr(highs, "solve_integer", lambda *_, **__: (
        asked.append(1) or highs.Solution(None, float("-inf"), "unknown")))
    programs.refine(10)
    assert asked == [1] and programs.exhausted
