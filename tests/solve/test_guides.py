"""When 0/1 programs guide the search, which one comes first, and what becomes of their plans."""
from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from small_graphs import chain, variant_graph
from training_nets import attention, residual_network

from memonger.graph import Graph
from memonger.schedule import expand
from memonger.solve import Options, auto, highs, milp
from memonger.solve.bound import Bound, integer_columns
from memonger.solve.core import Core, Decisions
from memonger.solve.reduce import reduce_graph
from memonger.solve.relaxation import build
from memonger.storage import plan_storage

OPTIONS = Options(storage="live")
#: Bytes for everything in the graph with a variant.
ROOM = 3000


def inexact_graph() -> Graph:
    graph = variant_graph(2.0)  # the variant saves time
    return replace(graph, variants=tuple(replace(v, exact=False) for v in graph.variants),
                   _cache={})


def refinement(graph: Graph, budget_bytes: int, variants: str = "exact") -> milp.Refinement:
    search = milp.Refinement.start(graph, budget_bytes, replace(OPTIONS, variants=variants))
    search.first_bound(5.0)
    return search


def test_the_first_program_leaves_out_variants_that_are_not_exact() -> None:
    graph = inexact_graph()
    search = refinement(graph, ROOM, "all")
    bound = search.bound
    _, _, narrow = search._ask(search.live_budget_bytes, 1.0, proof=False, exact=True)
    assert search.bound == bound
    _, _, free = search._ask(search.live_budget_bytes, 1.0, proof=True)
    assert narrow is not None and free is not None
    assert (narrow.variants, free.variants) == ((), (0,))


def test_there_is_no_such_program_without_such_variants(monkeypatch) -> None:
    search = refinement(variant_graph(2.0), ROOM, "all")
    monkeypatch.setattr(search, "_ask", lambda *_, **__: pytest.fail("asked"))
    assert not search.refine_exact(1.0, 0)


def test_the_program_with_all_variants_gets_more_time_after_a_good_plan(monkeypatch) -> None:
    search = refinement(inexact_graph(), ROOM, "all")
    shares = []
    for good in (True, False):
        monkeypatch.setattr(search, "refine_exact", lambda *_, good=good: good)
        monkeypatch.setattr(search, "refine", lambda *_, share, mend_work: shares.append(share))
        auto._prove_first(search, 0.0, 0.25)
    assert shares == [auto._SHARE_GUIDED, 0.25]


def test_programs_that_miss_by_far_are_no_guide() -> None:
    graph = chain((400,) * 6, (3.0, 1.0, 2.0, 1.0, 1.0, 1.0))
    whole = plan_storage(graph, expand(graph, {}), "live").pool_bytes
    for budget, guided in ((whole // 2, False), (whole, True)):
        search = milp.Refinement.start(graph, budget, OPTIONS)
        search.measured = [3]
        columns = search._program(budget).num_columns
        # Everything stays alive: the plan is the unplanned step.
        search.bound = Bound(0.0, "linear", (3,), np.ones(columns))
        assert search.guided() == guided


def test_without_guidance_one_program_is_solved_for_the_bound(monkeypatch) -> None:
    graph = residual_network(8)
    for name in ("_TINY_OPS", "_SMALL_OPS"):
        monkeypatch.setattr(auto, name, 0)
    monkeypatch.setattr(auto, "_enough", lambda _: 0.0)
    for guided in (False, True):
        def guide(self: milp.Refinement, guided: bool = guided) -> bool:
            self.missed_far = not guided
            return guided
        monkeypatch.setattr(milp.Refinement, "guided", guide)
        monkeypatch.setattr(milp.Refinement, "within", lambda *_: False)
        monkeypatch.setattr(milp.Refinement, "proven", False)
        search = milp.Refinement.start(
            graph, plan_storage(graph, expand(graph, {}), "live").pool_bytes // 2, OPTIONS)
        search.weigh(expand(graph, {}))
        search.first_bound(5.0)
        anew = []
        monkeypatch.setattr(search, "local_search",
                            lambda work, start=None, breed=False, anew=anew:
                            anew.append(start is None))
        auto._take_turns(search, 1000.0)
        if guided:
            assert search.rounds > 1
        else:
            assert search.rounds == 1 and all(anew)


def test_a_near_miss_is_mended_before_it_is_planned_for_less(monkeypatch) -> None:
    graph = chain((400,) * 5, (3.0, 1.0, 2.0, 1.0, 1.0))
    search = milp.Refinement.start(graph, 1500, OPTIONS)
    search.bound = Bound(-100.0, "none")
    kept = search.weigh(expand(graph, {}))
    search.enough = 0.1
    events = []
    monkeypatch.setattr(search, "_ask", lambda *_, **__: (events.append("ask"), None, None))
    for mended_s, expected in ((2.0 + 0.05 * graph.time_s, ["mend"]),
                               (2.0 + 0.2 * graph.time_s, ["mend", "ask"])):
        def mend(*_, cost_s: float = mended_s) -> None:
            events.append("mend")
            search.best = milp.Candidate(kept.schedule, cost_s, 1500)
        search.best = milp.Candidate(kept.schedule, 99.0, 1500)
        monkeypatch.setattr(search, "_mend", mend)
        search._bring_within(replace(kept, bytes=1510, extra_s=2.0), 1500, 0.4, 10)
        assert events == expected
        events.clear()


def test_a_plan_that_is_dearer_and_does_not_fit_is_forgotten(monkeypatch) -> None:
    graph = chain((400,) * 5, (3.0, 1.0, 2.0, 1.0, 1.0))
    search = milp.Refinement.start(graph, 1500, OPTIONS)
    kept = search.weigh(expand(graph, {}))
    search.best = milp.Candidate(kept.schedule, 2.0, 1500)
    monkeypatch.setattr(search, "_mend", lambda *_: pytest.fail("mended"))
    search._bring_within(replace(kept, bytes=1510, extra_s=2.0), 1500, 0.4, 10)


@pytest.mark.parametrize("scale", (1.0, 1e-7))
def test_the_absolute_gap_is_in_units_of_the_costs(monkeypatch, scale: float) -> None:
    reduced = reduce_graph(chain((400,) * 5, (3.0, 1.0, 2.0, 1.0, 1.0)))
    program = build(reduced, [4], 1500)
    program = replace(program, cost=program.cost * scale)
    largest = float(program.cost.max())
    seen = []
    run = highs._run_polled

    def polled(solver, *rest):
        seen.append(solver.getOptionValue("mip_abs_gap")[1] / max(solver.getLp().col_cost_))
        return run(solver, *rest)

    monkeypatch.setattr(highs, "_run_polled", polled)
    highs.solve_integer(program, integer_columns(program), 5.0, absolute_gap=0.25 * largest)
    assert seen[0] == pytest.approx(0.25)


def test_a_search_gives_its_pool_as_it_was_packed() -> None:
    graph = residual_network(8)
    for storage in ("arena", "best"):
        core = Core(graph, replace(OPTIONS, storage=storage))
        room = core.evaluate(core.unplanned()).pool_bytes * 3 // 4
        found = core.search(room, 10 ** 6, 60.0, 1)
        assert found.feasible
        least = plan_storage(graph, found.schedule, storage).pool_bytes
        assert least <= found.pool_bytes <= room - found.workspace_bytes


def test_plans_found_with_fewer_variants_are_gone_on_from_as_they_are() -> None:
    for graph in (attention(12), variant_graph(2.0)):
        narrow, wide = (Core(graph, replace(OPTIONS, storage="arena", variants=which))
                        for which in ("none", "exact"))
        assert wide.allowed_variants and not narrow.allowed_variants
        room = narrow.evaluate(narrow.unplanned()).pool_bytes
        for share in (0.5, 0.7, 0.9):
            found = narrow.search(int(share * room), 10 ** 5, 60.0, 1)
            adopted = wide.evaluate(wide.adopt(narrow, found.decisions))
            assert adopted is not None and adopted.schedule == found.schedule


@pytest.mark.parametrize("choices, expected", [
    ((1, 2), (1, 0, 2)),  # made again before op 5, it stays
    ((2, 2), (2, 2, 2)),
    ((0, 1), (0, 0, 1)),
])
def test_a_gap_that_a_variant_reads_in_decides_as_the_whole(choices, expected) -> None:
    whole = [(0, 0, 1, 9, False), (0, 1, 9, 12, True)]
    parts = [(0, 0, 1, 5, False), (0, 1, 5, 9, False), (0, 2, 9, 12, True)]
    narrow, wide = (SimpleNamespace(gaps=lambda gaps=gaps: gaps, allowed_variants=allowed,
                                    graph=SimpleNamespace(ops=[None] * 12))
                    for gaps, allowed in ((whole, (3,)), (parts, (1, 3))))
    adopted = Core.adopt(wide, narrow, Decisions(choices, (-1, -1), (True,)))
    assert adopted == Decisions(expected, (-1, -1, -1), (False, True))
