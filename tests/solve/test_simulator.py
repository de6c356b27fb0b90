"""The C++ simulator against expand(), the storage planner and itself."""
from __future__ import annotations

import random
from dataclasses import replace

import pytest
import strategies
from offloaded import chain_of_two_streams, moves, offloading, slower_copies
from reference import clock, judge
from small_graphs import chain
from training_nets import residual_network

from memonger.graph.decisions import decisions_of
from memonger.graph.in_use import graph_in_use
from memonger.graph.schedule import expand
from memonger.memory.storage import plan_storage
from memonger.solve.options import Options
from memonger.solve.search.decisions import Decisions
from memonger.solve.search.native import NativeSearch


def some_decisions(rng, core):
    """Any choice in any gap, some with an op that the gap names, and some variants."""
    choices, places, share = [], [], rng.random()
    for _, _, begin, end, trailing in core.gaps():
        choices.append(rng.randint(0, 2) if rng.random() < share else 2 if trailing else 0)
        early = not trailing and end - begin > 1 and rng.random() < 0.3
        places.append(rng.randint(begin + 1, end) if early else -1)
    used, touched = [], set()
    for index in core.allowed_variants:
        ops = {op for op, _ in core.graph.variants[index].choices}
        used.append(rng.random() < 0.5 and not ops & touched)
        touched |= ops if used[-1] else set()
    return Decisions(tuple(choices), tuple(places), tuple(used))


def found_of(seed, **options):
    rng = random.Random(seed)
    pools = rng.choice(("executor", "executor", "cached_op"))
    graph = strategies.variants(rng, strategies.training_graph(
        rng, rng.randint(2, 14), pools=pools))
    core = NativeSearch(graph, Options(variants="all", **options))
    return graph, core.evaluate(some_decisions(rng, core))


@pytest.mark.parametrize("seed", range(150))
def test_schedules_are_those_of_expand(seed):
    graph, found = found_of(seed)
    used = graph_in_use(graph, found.schedule)
    expanded = expand(used, decisions_of(graph, found.schedule))
    assert found.schedule.steps == expanded.steps
    assert found.cost_s == pytest.approx(found.schedule.time_s(graph))


@pytest.mark.parametrize("seed", range(100))
def test_decisions_of_a_schedule_make_it_again(seed):
    rng = random.Random(seed)
    graph = strategies.training_graph(rng, rng.randint(2, 14))
    core = NativeSearch(graph, Options())
    share = rng.random()
    choices = tuple(2 if trailing else int(rng.random() < share) for *_, trailing in core.gaps())
    found = core.evaluate(Decisions(choices, (-1,) * len(choices), ()))
    assert core.evaluate(core.decisions_of(found.schedule)).schedule == found.schedule


@pytest.mark.parametrize("seed", range(20))
def test_a_dropped_value_stays_from_the_op_that_its_gap_names(seed):
    rng = random.Random(seed)
    core = NativeSearch(strategies.training_graph(rng, rng.randint(2, 14)), Options())
    gaps = core.gaps()
    kept = Decisions(tuple(2 if gap[-1] else 1 for gap in gaps), (-1,) * len(gaps), ())
    named = Decisions((2,) * len(gaps), tuple(-1 if last else begin + 1
                                              for _, _, begin, _, last in gaps), ())
    assert core.evaluate(named).schedule == core.evaluate(kept).schedule


def test_decisions_of_a_schedule_with_variants_cost_the_same():
    same = 0
    for seed in range(100):
        graph, found = found_of(seed)
        core = NativeSearch(graph, Options(variants="all"))
        same += core.evaluate(core.decisions_of(found.schedule)).cost_s <= found.cost_s * (1 + 1e-9)
    assert same >= 95  # values that are read from two runs at a time are no decision of the search


@pytest.mark.parametrize("pools", ["executor", "cached_op"])
def test_live_bytes_are_those_of_the_pools_blocks(pools):
    """But for sums in place and inputs that ops ignore, which the simulator leaves out."""
    checked = 0
    for seed in range(250):
        rng = random.Random(seed)
        graph = strategies.training_graph(rng, rng.randint(2, 14), pools=pools)
        if any(op.adds_into_first or op.ignored_inputs for op in graph.ops):
            continue
        core = NativeSearch(graph, Options(storage="best"))
        found = core.evaluate(some_decisions(rng, core))
        blocks = plan_storage(graph, found.schedule, "best").blocks
        assert found.peak_bytes - found.outside_pool_bytes == sum(
            max((sum(block.bytes for block in blocks.blocks
                     if block.pool == pool and block.start <= step <= block.end)
                 for step in range(blocks.num_steps)), default=0) for pool in (0, 1))
        checked += 1
    assert checked > 20


@pytest.mark.parametrize("storage", ["best", "stock", "live"])
@pytest.mark.parametrize("seed", range(40))
def test_pools_are_those_of_the_storage_planner(seed, storage):
    graph, found = found_of(seed, storage=storage)
    assert found.pool_bytes == plan_storage(graph, found.schedule, storage).pool_bytes


@pytest.mark.parametrize("seed", range(100))
def test_schedules_of_other_planners_graphs_run_and_peak_as_the_storage_planner_says(seed):
    rng = random.Random(seed)
    graph = strategies.live_graph(rng, rng.randint(2, 30))
    core = NativeSearch(graph, Options(storage="live"))
    found = core.evaluate(some_decisions(rng, core))
    if found is None:
        pytest.skip("these decisions run something too often")
    again = found.schedule.recomputed()
    assert all(graph.ops[op].recomputable for op in again)
    # plan_storage raises when a step reads what its source does not make.
    assert found.peak_bytes == plan_storage(graph, found.schedule, "live").pool_bytes
    assert found.cost_s == pytest.approx(found.schedule.time_s(graph))


@pytest.mark.parametrize("kind", ["training", "limited", "live"])
@pytest.mark.parametrize("seed", strategies.seeds(300, 30))
def test_changed_decisions_are_simulated_as_if_from_the_start(kind, seed):
    rng = random.Random(seed)
    options = Options(storage="live", variants="all", max_clones=2 if kind == "limited" else 0)
    graph = strategies.live_graph(rng, rng.randint(2, 30)) if kind == "live" else \
        strategies.variants(rng, strategies.training_graph(rng, rng.randint(2, 14)))
    core = NativeSearch(graph, options)
    now = some_decisions(rng, core)
    for _ in range(30):
        other = some_decisions(rng, core)
        share = rng.choice((0.05, 0.3, 1.0))
        now = Decisions(*(tuple(new if rng.random() < share else old for old, new in zip(*pair))
                          for pair in ((now.choices, other.choices), (now.advance, other.advance))),
                        other.variants if rng.random() < share else now.variants)
        assert core.evaluate(now) == NativeSearch(graph, options).evaluate(now)


def test_a_chain_of_recomputations_may_be_as_long_as_the_graph():
    # Everything is dropped: the last gradient runs all of the forward pass again.
    graph = chain((100,) * 16000, (1.0,) * 16000)
    core = NativeSearch(graph, Options(storage="live"))
    found = core.evaluate(Decisions(tuple(2 if last else 1 for *_, last in core.gaps()),
                                    (-1,) * len(core.gaps()), ()))
    assert found is not None and len(found.schedule.recomputed()) > 15000


def test_decisions_that_ask_for_too_many_steps_leave_nothing_behind():
    # Every gradient would run the forward pass again up to its op: more steps than are simulated.
    graph = chain((100,) * 600, (1.0,) * 600)
    options = Options(storage="live")
    core = NativeSearch(graph, options)
    too_many = Decisions((2,) * len(core.gaps()), (-1,) * len(core.gaps()), ())
    rng = random.Random(0)
    for rare in (0.0, 0.02, 0.1, 0.5):
        assert core.evaluate(too_many) is None
        other = Decisions(tuple(rng.choice((1, 2)) if rng.random() < rare else choice
                                for choice in core.unplanned().choices), too_many.advance, ())
        assert core.evaluate(other) == NativeSearch(graph, options).evaluate(other)


def test_keeping_everything_is_the_unplanned_step():
    graph = strategies.training_graph(random.Random(3), 10)
    core = NativeSearch(graph, Options())
    assert core.evaluate(core.unplanned()).schedule == expand(graph, {})


def test_ops_that_must_not_run_again_have_no_gaps():
    graph = strategies.training_graph(random.Random(4), 12)
    core = NativeSearch(graph, Options(keep=(1, 2)))
    ops = {op for op, *_ in core.gaps()}
    assert ops and not ops & {1, 2}
    assert all(graph.ops[op].recomputable and not graph.ops[op].is_backward for op in ops)


def test_pinned_recomputation_is_never_kept():
    rng = random.Random(5)
    graph = strategies.training_graph(rng, 10, dtypes=False)
    free = NativeSearch(graph, Options())
    pinned = next(op for op, _, begin, end, trailing in free.gaps() if not trailing
                  and not graph.ops[begin].is_backward and graph.ops[end].is_backward
                  and not graph.ops[op].kept_outputs)
    found = NativeSearch(graph, Options(recompute=(pinned,))).search(2 ** 40, 10 ** 6, 10.0)
    assert found.feasible and pinned in found.schedule.recomputed()


@pytest.mark.parametrize("storage", ["live", "best"])
def test_clones_are_limited(storage):
    graph = residual_network(4)
    core = NativeSearch(graph, Options(max_clones=1, storage=storage))
    base = core.evaluate(core.unplanned())
    found = core.search(int(base.pool_bytes * 0.6), 10 ** 6, 10.0)
    again = found.schedule.recomputed()
    assert again and len(again) == len(set(again))


def test_damaged_graphs_are_refused():
    from memonger.util.errors import SolverError
    graph = strategies.training_graph(random.Random(1), 4)
    broken = replace(graph, ops=graph.ops[:-1] + (graph.ops[-1].changed(inputs=(9999,)),))
    with pytest.raises(SolverError):
        NativeSearch(broken, Options())


@pytest.mark.parametrize("seed", strategies.seeds(400, 80))
def test_times_of_several_streams_are_those_of_the_reference(seed):
    rng = random.Random(seed)
    graph = strategies.variants(rng, strategies.training_graph(rng, rng.randint(2, 14)))
    graph = replace(graph, ops=tuple(op.changed(
        time_s=op.time_s * rng.random(), stream=rng.choice(("compute", "copy", "network")))
        for op in graph.ops))
    core = NativeSearch(graph, Options(variants="all"))
    for _ in range(10):
        found = core.evaluate(some_decisions(rng, core))
        # To the last bit; what the search compares is the same in whole numbers.
        assert found.cost_s == clock.time_s(graph, found.schedule) == found.schedule.time_s(graph)


@pytest.mark.parametrize("seed", range(20))
def test_the_search_compares_the_ends_of_last_streams(seed):
    """It finds moves whose copies run beside compute, and refuses those that are waited for."""
    graph = chain_of_two_streams()
    for offered, extra_s in ((graph, 0.0), (slower_copies(graph, 4), 1.0)):
        core = NativeSearch(offered, Options(variants="exact", storage="live", seed=seed))
        found = core.search(32, 10 ** 5, 10.0)
        assert found.feasible and found.cost_s == offered.time_s + extra_s


def handed_on(graph, schedule):
    """How many values steps read as another op hands them on, and how many such ops ran early."""
    used = graph_in_use(graph, schedule)
    reads = sum(used.ops[schedule.steps[source].op].hands_on == tensor
                for step in schedule.steps
                for tensor, source in zip(used.ops[step.op].inputs, step.sources) if source >= 0)
    firsts = list(dict.fromkeys(step.op for step in schedule.steps))
    early = sum(used.ops[op].hands_on >= 0 and op > later
                for op, later in zip(firsts, firsts[1:]))
    return reads, early


def test_what_runs_again_reads_values_that_were_fetched():
    """Counted as the slow references count it, and an op hands on early what is there."""
    reads = early = 0
    for seed in range(800):
        rng = random.Random(seed)
        graph = strategies.training_graph(rng, rng.randint(4, 14), dtypes=False, pools="allocator")
        graph = offloading(graph, moves(graph, 1.0, dict.fromkeys(range(len(graph.tensors)), 4.0),
                                        least_ops=2), 2.0 ** -6, gates=True)
        graph.check()
        core = NativeSearch(graph, Options(variants="exact", storage="live"))
        found = core.evaluate(some_decisions(rng, core))
        schedule = found.schedule
        used = graph_in_use(graph, schedule)
        assert expand(used, decisions_of(graph, schedule)).steps == schedule.steps
        assert found.cost_s == clock.time_s(graph, schedule) == schedule.time_s(graph)
        assert found.pool_bytes == plan_storage(graph, schedule, "live").pool_bytes
        assert not judge.validate(graph, schedule) and not list(clock.races(graph, schedule))
        more = handed_on(graph, schedule)
        reads, early = reads + more[0], early + more[1]
    assert reads > 100 and early > 20
