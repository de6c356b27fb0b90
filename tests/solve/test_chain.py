"""Plans of chains: the program against a recursion, and what it says against the simulator."""
from __future__ import annotations

import random
from dataclasses import replace
from functools import lru_cache
from types import SimpleNamespace
from typing import Any, List, Tuple

import pytest
import strategies
from training_nets import residual_network

from memonger.graph.schedule import expand
from memonger.graph.types import Graph, Tensor
from memonger.memory.storage import plan_storage
from memonger.solve import Options, auto_steps, solve
from memonger.solve.chain import tradeoffs
from memonger.solve.chain.plans import ChainPlans
from memonger.solve.chain.program import Chain, decisions_of
from memonger.solve.chain.segments import Boundary, find_boundaries, segments_of
from memonger.solve.chain.tradeoffs import Tradeoff
from memonger.solve.effort import Effort
from memonger.solve.search.native import PARTS, NativeSearch
from memonger.solve.search.walks import Walks

OPTIONS = Options(storage="live")


def plans_of(graph: Graph, options: Options = OPTIONS) -> ChainPlans:
    found = ChainPlans.of(graph, options, NativeSearch(graph, options), Effort(10.0))
    assert found is not None
    return found


def live_bytes(graph: Graph) -> int:
    return plan_storage(graph, expand(graph, {}), "live").pool_bytes


# ---------------------------------------------------------------------- segments
def test_segments_part_the_step() -> None:
    graph = residual_network(6)
    boundaries = find_boundaries(graph)
    units = [one for one in segments_of(graph, boundaries) if one.end == one.begin + 1]
    assert [one.begin for one in units] == list(range(len(boundaries)))
    ops = sorted(op for one in units for op in one.ops if op >= 0)
    assert ops == list(range(len(graph.ops)))
    assert sum(one.graph.time_s for one in units) == pytest.approx(graph.time_s)
    for one in units:
        one.graph.check()
        assert one.graph.ops[one.middle].is_backward and one.ops[one.middle] == -1


def test_boundaries_are_found_without_the_names_of_forward_ops() -> None:
    graph = residual_network(6)
    nameless = replace(graph, ops=tuple(replace(op, forward_op=-1) for op in graph.ops))
    boundaries = find_boundaries(nameless)
    named = [one.forward for one in find_boundaries(graph)]
    assert {one.forward for one in boundaries} >= {*named[2:-1]}  # all but those at the ends
    backward = [one.backward for one in boundaries]
    assert backward == sorted(backward, reverse=True)
    plan = plans_of(nameless).smallest(2 ** 62)
    assert plan is not None and plan.pool_bytes < live_bytes(graph) / 2


def test_a_little_value_that_stays_is_no_reason_not_to_cut() -> None:
    graph = residual_network(6)
    first, last = graph.ops[0], graph.ops[graph.num_forward - 1]
    counter = len(graph.tensors)
    ops = (first.changed(outputs=(*first.outputs, counter)),
           *graph.ops[1:graph.num_forward - 1], last.changed(inputs=(*last.inputs, counter)),
           *graph.ops[graph.num_forward:])
    counted = replace(graph, ops=ops, tensors=(*graph.tensors, Tensor("counter", 8, 0)))
    assert [one.forward for one in find_boundaries(counted)] \
        == [one.forward for one in find_boundaries(graph)]


@pytest.mark.parametrize("seed", strategies.seeds(300, quick=30))
def test_segments_of_any_graph_are_graphs(seed: int) -> None:
    rng = random.Random(seed)
    graph = strategies.variants(rng, strategies.training_graph(rng, 12))
    for one in segments_of(graph, find_boundaries(graph)):
        one.graph.check()


def test_what_is_no_chain_has_no_plans() -> None:
    scattered = strategies.live_graph(random.Random(1), 12)
    assert ChainPlans.of(scattered, OPTIONS, NativeSearch(scattered, OPTIONS), Effort(9.0)) is None
    graph = residual_network(6)
    native = NativeSearch(graph, OPTIONS)
    assert ChainPlans.of(graph, OPTIONS, native, Effort(0.001)) is None  # not enough work


# ---------------------------------------------------------------------- the program
def random_chain(rng: random.Random, count: int) -> Tuple[List[int], List[Any]]:
    """Bytes of boundaries, and segments with their trade-offs."""
    sizes = [0] + [rng.randint(1, 120) for _ in range(count - 1)]
    segments = []
    for begin in range(count):
        for end in range(begin + 1, min(count, begin + 2) + 1):
            tradeoffs = []
            for nothing in (True, True, False, False):
                peak = rng.randint(50, 400)
                tradeoffs.append(Tradeoff(
                    float(rng.randint(0, 9)), 0 if nothing else rng.randint(0, 200),
                    rng.randint(1, peak), peak, nothing, (), ()))
            segments.append(SimpleNamespace(
                begin=begin, end=end, gradient_bytes=rng.randint(1, 60), all=tradeoffs, middle=0,
                ops=(-1, 1000 - 10 * end), forward_s=float(rng.randint(1, 20)),
                transient_peak_bytes=min(one.forward_peak_bytes for one in tradeoffs)))
    return sizes, segments


def reference(sizes: List[int], segments: List[Any], budget: int) -> float:
    """The same by recursion over ranges and bytes; infinite where nothing fits."""
    count = len(sizes)
    unit = {one.begin: one for one in segments if one.end == one.begin + 1}

    def forward(begin: int, end: int) -> float:
        return sum(unit[number].forward_s for number in range(begin, end))

    @lru_cache(maxsize=None)
    def best(begin: int, end: int, room: int, first: bool) -> float:
        if room < 0:
            return float("inf")
        gradient = 0 if first else unit[end - 1].gradient_bytes
        found = float("inf")
        for middle in range(begin + 1, end):
            peak = max(unit[number].transient_peak_bytes + (sizes[number] if number > begin else 0)
                       for number in range(begin, middle))
            if peak + gradient <= room:
                found = min(found, (0 if first else forward(begin, middle))
                            + best(middle, end, room - sizes[middle], first)
                            + best(begin, middle, room, False))
        for one in segments:
            if one.begin != begin or one.end > end:
                continue
            for tradeoff in one.all:
                peak = tradeoff.backward_peak_bytes
                if not tradeoff.nothing_kept:
                    peak = max(peak, tradeoff.forward_peak_bytes + one.gradient_bytes)
                if peak > room:
                    continue
                if one.end == end:
                    if tradeoff.nothing_kept != first:
                        found = min(found, tradeoff.extra_s)
                elif not tradeoff.nothing_kept:
                    left = room - tradeoff.kept_bytes - sizes[one.end]
                    found = min(found, (0 if first else forward(begin, one.end)) + tradeoff.extra_s
                                + best(one.end, end, left, first))
        return found

    return best(0, count, budget, True)


@pytest.mark.parametrize("seed", strategies.seeds(200, quick=25))
def test_the_program_is_a_recursion_over_ranges(seed: int) -> None:
    rng = random.Random(seed)
    sizes, segments = random_chain(rng, rng.randint(1, 6))
    boundaries = [Boundary(number, 1000 - 10 * number, size) for number, size in enumerate(sizes)]
    chain = Chain(boundaries, segments, {(one.begin, one.end): one for one in segments},
                  first_backward=0)
    expected = reference(sizes, segments, 1000)  # a level is a byte
    found = chain.plan(1000)
    assert (found is None) == (expected == float("inf"))
    if found is not None:
        assert found.extra_s == pytest.approx(expected)
        assert found.placed[0].segment.begin == 0
        assert [one.segment.end for one in found.placed[:-1]] == \
            [one.segment.begin for one in found.placed[1:]]


# ---------------------------------------------------------------------- plans
@pytest.mark.parametrize("share", [0.8, 0.6, 0.45, 0.35])
def test_plans_take_what_the_program_says(share: float) -> None:
    graph = residual_network(10)
    plans = plans_of(graph)
    budget = int(share * live_bytes(graph))
    plan = plans.chain.plan(budget)
    assert plan is not None
    found = plans.native.evaluate(decisions_of(graph, plans.native, plan))
    assert found is not None
    assert found.cost_s - graph.time_s <= plan.extra_s + 1e-6 * graph.time_s
    assert found.pool_bytes <= 1.01 * budget
    fitting = list(plans.plans(budget))[-1]
    assert fitting.pool_bytes <= budget


def test_the_smallest_plan_of_a_chain_is_small() -> None:
    graph = residual_network(10)
    smallest = plans_of(graph).smallest(2 ** 62)
    assert smallest is not None and smallest.pool_bytes < 0.35 * live_bytes(graph)


@pytest.mark.parametrize("share", [0.02, 0.05, 0.1, 0.2])
def test_the_smallest_plan_keeps_to_the_extra_time(share: float) -> None:
    graph = residual_network(10)
    plans = plans_of(graph)
    most_extra_s = share * graph.time_s
    smallest, any_cost = plans.smallest(2 ** 62, most_extra_s), plans.smallest(2 ** 62)
    assert smallest is not None and any_cost is not None
    assert smallest.cost_s <= graph.time_s + most_extra_s + 1e-6 * graph.time_s
    assert any_cost.pool_bytes <= smallest.pool_bytes < live_bytes(graph)


@pytest.mark.parametrize("seed", strategies.seeds(300, quick=40))
def test_chains_of_any_graph_have_plans(seed: int) -> None:
    """Where a segment had no backward of its own, reading its plan ended in an IndexError."""
    graph = strategies.training_graph(random.Random(seed), 9)
    found = ChainPlans.of(graph, OPTIONS, NativeSearch(graph, OPTIONS), Effort(10.0))
    smallest = found.smallest(2 ** 62) if found else None
    assert smallest is None or smallest.cost_s >= graph.time_s * (1 - 1e-9)


def test_pinned_values_stay_and_go() -> None:
    graph = residual_network(6)
    budget = int(0.6 * live_bytes(graph))
    free = list(plans_of(graph).plans(budget))[-1]
    again = sorted(set(free.schedule.recomputed()))
    kept = Options(storage="live", keep=(again[0],))
    for found in plans_of(graph, kept).plans(budget):
        assert again[0] not in found.schedule.recomputed()


def test_searches_start_from_chains() -> None:
    graph = residual_network(12)
    budget = int(0.45 * live_bytes(graph))
    short = frozenset(["live program", "turn 1", "turn 2", "turn 3", "turn 4", "programs",
                       "squeeze", *PARTS])
    with_chain, without = (
        solve(graph, budget, "auto", Options(storage="live", variants="none", without=left_out))
        for left_out in (short, short | {"chain"}))
    assert with_chain.overhead < without.overhead


def test_segments_are_searched_once_for_all_budgets(monkeypatch: pytest.MonkeyPatch) -> None:
    search, calls = tradeoffs._SegmentSearch.tradeoffs, []

    def counted(self: Any, *asked: int) -> List[Tradeoff]:
        calls.append(asked)
        return search(self, *asked)
    monkeypatch.setattr(tradeoffs._SegmentSearch, "tradeoffs", counted)
    tradeoffs._searched.cache_clear()
    graph = residual_network(9)
    first = plans_of(graph)
    count = len(calls)
    again = plans_of(graph)
    assert len(calls) == count > 0
    assert [one.all for one in again.chain.tradeoffs] == [one.all for one in first.chain.tradeoffs]
    plans_of(graph, replace(OPTIONS, keep=(2,)))
    assert len(calls) > count


def test_in_a_large_graph_a_search_from_nothing_comes_after_the_chain(
        monkeypatch: pytest.MonkeyPatch) -> None:
    graph = residual_network(12)
    budget = live_bytes(graph) // 2
    asked: List[Tuple[str, bool]] = []
    beside, improve = Walks.beside, Walks.improve

    def side(self: Any, board: Any, work: int, *args: Any, **named: Any) -> Any:
        asked.append(("beside", bool(work)))
        return beside(self, board, work, *args, **named)

    def main(self: Any, board: Any, work: int, start: Any, *args: Any, **named: Any) -> Any:
        asked.append(("main", start is not None))
        return improve(self, board, work, start, *args, **named)
    monkeypatch.setattr(Walks, "beside", side)
    monkeypatch.setattr(Walks, "improve", main)

    def walks(gap: float, most_ops: int, storage: str = "live") -> List[Tuple[str, bool]]:
        monkeypatch.setattr(auto_steps, "LARGE_OPS", most_ops)
        monkeypatch.setattr(auto_steps, "CHAIN_GAP", gap)
        options = Options(storage=storage, time_limit_s=5.0)
        search = auto_steps.Run.start(graph, budget, options)
        auto_steps.unplanned_step(search)
        asked.clear()
        auto_steps.chain(search)
        return list(asked)

    of_chain, late = ("main", True), ("main", False)
    assert walks(-1.0, 10_000) == walks(-1.0, 10, "arena") == [("beside", True), of_chain]
    assert walks(-1.0, 10) == [("beside", False), of_chain, late]
    assert walks(1.0, 10) == [("beside", False), of_chain]
