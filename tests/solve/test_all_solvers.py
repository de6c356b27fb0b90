"""One table of cases for all solvers: same signature, same promises."""
from __future__ import annotations

import os
import random
import signal
import threading
from dataclasses import replace

import pytest
import reference.brute  # noqa: F401  a method of that name
import strategies
from footprints import planned_as, unplanned_as
from reference.judge import validate
from training_nets import residual_network

from memonger.graph.imported import single_output_graph
from memonger.graph.schedule import Step, expand
from memonger.memory.storage import plan_storage
from memonger.memory.workspace import outside_pool_bytes
from memonger.plans.plan import Status
from memonger.solve import Options, methods, register, solve
from memonger.solve.baselines.ogc import best_cuts
from memonger.solve.result import build_plan, unplanned
from memonger.solve.search.native import NativeSearch
from memonger.util.errors import InfeasibleBudget, InputError, InvalidPlan

SOLVERS = ("auto", "local", "milp", "brute", "chen", "ogc")
EXACT = ("auto", "local", "milp", "brute")


def chain(length, kept=1.0):
    """Forward ops in a row, 10 units each, and backward ops that read them in reverse."""
    edges = [(i, i + 1) for i in range(length - 1)]
    for i in range(length):
        edges += [(length - 1 - i, length + i), (length - 1 + i, length + i)]
    return single_output_graph(
        ["f%d" % i for i in range(length)] + ["b%d" % i for i in range(length)],
        [10] * length + [1] * length, [kept] * length + [2.0] * length,
        [True] * length + [False] * length, sorted(set(edges)), "chain")


def mxnet_graph(seed, num_forward=5):
    rng = random.Random(seed)
    return strategies.training_graph(rng, num_forward, dtypes=False)


def pool(graph, storage):
    return plan_storage(graph, unplanned(graph), storage).pool_bytes


GRAPHS = [("chain", chain(5), "live"), ("live", strategies.live_graph(
    random.Random(7), 10), "live")] + [("mxnet%d" % s, mxnet_graph(s), "best") for s in range(6)]


@pytest.mark.parametrize("share", [1.0, 0.75, 0.4])
@pytest.mark.parametrize("name, graph, storage", GRAPHS, ids=[g[0] for g in GRAPHS])
@pytest.mark.parametrize("method", SOLVERS)
def test_budget_is_kept_or_refused(method, name, graph, storage, share):
    options = Options(storage=storage, fixed_bytes={"parameters": 1000}, effort=0.1,
                      time_limit_s=1.0)
    budget = int(pool(graph, storage) * share)
    try:
        plan = solve(graph, budget, method, options)
    except InfeasibleBudget as error:
        assert share < 1 and error.budget_bytes == budget + 1000 + outside_pool_bytes(graph)
        assert error.minimum_bytes > error.budget_bytes
        assert error.best_plan.total_bytes == error.minimum_bytes
        return
    except InputError as error:
        assert method == "brute" and "brute force" in str(error)
        return
    assert plan.pool_bytes <= budget
    assert plan.total_bytes <= plan.budget_bytes
    assert plan.method == method and plan.storage == storage
    assert validate(plan) == []
    if share == 1.0:
        assert plan.overhead == 0
        assert (plan.status is Status.NOT_NEEDED) == (plan.baseline_pool_bytes <= budget)


@pytest.mark.parametrize("seed", strategies.seeds(12, quick=4))
def test_local_search_reaches_the_optimum_of_small_mxnet_graphs(seed):
    graph = mxnet_graph(seed, 4)
    options = Options(storage="best", effort=0.2)
    base = pool(graph, "best")
    for share in (0.9, 0.7):
        answers = []
        for method in ("brute", "local"):
            try:
                answers.append(solve(graph, int(base * share), method, options)
                               .schedule.time_s(graph))
            except InfeasibleBudget as error:
                answers.append(-error.minimum_bytes)
            except InputError:
                pytest.skip("too many decisions for brute force")
        assert answers[0] == pytest.approx(answers[1])


@pytest.mark.parametrize("seed", range(8))
def test_local_search_reaches_the_optimum_of_small_graphs_of_other_planners(seed):
    rng = random.Random(1000 + seed)
    graph = strategies.live_graph(rng, rng.randint(7, 11))
    for share in (0.85, 0.7):
        answers = []
        for method in ("brute", "local"):
            try:
                plan = solve(graph, int(pool(graph, "live") * share), method,
                             Options(storage="live", effort=0.2))
                answers.append(plan.schedule.time_s(graph))
            except InfeasibleBudget:
                answers.append(None)
        assert answers[0] == answers[1]


@pytest.mark.parametrize("share", [0.6, 0.4])
def test_plans_for_live_bytes_take_no_more_time_than_those_for_an_arena(share):
    # An arena takes what is alive and a little more.
    graph = residual_network(10)
    budget = int(share * plan_storage(graph, expand(graph, {}), "live").pool_bytes)
    live, arena = [NativeSearch(graph, Options(storage=storage)).search(budget, 2_000_000, 60.0)
                   for storage in ("live", "arena")]
    assert live.feasible and arena.feasible
    assert live.cost_s <= arena.cost_s * (1 + 1e-9)


def test_long_chain_in_square_root_memory():
    graph = chain(36)
    plans = {m: solve(graph, None, m, Options(storage="live", objective="memory"))
             for m in ("chen", "ogc")}
    assert pool(graph, "live") > 350
    for plan in plans.values():
        assert plan.pool_bytes < 140
        assert plan.schedule.time_s(graph) <= graph.time_s + 36


def test_ogc_finds_the_optimum_of_a_chain():
    # By hand: checkpoints of 1 and 2 bytes around segments of at most 10.
    sizes = [4, 6, 1, 9, 1, 2, 8]
    graph = single_output_graph(
        ["f%d" % i for i in range(7)] + ["loss"], sizes + [0], [1.0] * 8, [True] * 7 + [False],
        [(i, i + 1) for i in range(7)])
    cuts, value = best_cuts(graph)
    least = min(_objective(sizes, mask) for mask in range(2 ** 7))
    assert value == least
    assert _objective(sizes, sum(1 << i for i in cuts)) == least


def _objective(sizes, mask):
    kept, inside, largest = 0, 0, 0
    for i, size in enumerate(sizes):
        if mask >> i & 1:
            kept, inside = kept + size, 0
        else:
            inside += size
            largest = max(largest, inside)
    return kept + largest


def test_least_memory_within_an_overhead():
    graph = chain(16)
    options = Options(storage="live", objective="memory", max_overhead=0.1, effort=0.3)
    plan = solve(graph, None, "local", options)
    assert plan.overhead <= 0.1 + 1e-9
    assert plan.pool_bytes < pool(graph, "live")
    free = solve(graph, None, "local", replace(options, max_overhead=None))
    assert free.pool_bytes <= plan.pool_bytes


def test_pins_are_honoured():
    graph = chain(12)
    budget = int(pool(graph, "live") * 0.8)
    plan = solve(graph, budget, "local", Options(storage="live", keep=(2, 3, 4),
                                                  effort=0.2))
    assert not {2, 3, 4} & set(plan.schedule.recomputed())
    plan = solve(graph, budget * 2, "local", Options(storage="live", recompute=(6,),
                                                      effort=0.2))
    assert 6 in plan.schedule.recomputed()


def test_a_warm_start_is_used():
    graph = mxnet_graph(3, 8)
    recompute = {i: {} for i, op in enumerate(graph.ops) if not op.is_backward}
    schedule = expand(graph, recompute)
    budget = plan_storage(graph, schedule, "best").pool_bytes
    plan = solve(graph, budget, "local", Options(warm_start=recompute, effort=0.01))
    assert plan.pool_bytes <= budget


def test_interrupted_search_returns_the_best_so_far():
    graph = chain(40)

    def stop(progress):
        if progress.overhead is not None:
            raise KeyboardInterrupt
    plan = solve(graph, int(pool(graph, "live") * 0.6), "local",
                 Options(storage="live", progress=stop, effort=50, time_limit_s=60))
    assert plan.status is Status.INTERRUPTED
    assert plan.total_bytes <= plan.budget_bytes


@pytest.mark.parametrize("watched", [True, False])
def test_ctrl_c_ends_the_search_with_the_best_so_far(watched, capfd):
    graph = chain(40)
    timer = threading.Timer(1.0, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    plan = solve(graph, int(pool(graph, "live") * 0.6), "local", Options(
        storage="live", effort=1000, time_limit_s=60,
        progress=(lambda progress: None) if watched else None))
    timer.join()
    assert plan.status is Status.INTERRUPTED
    assert plan.total_bytes <= plan.budget_bytes
    # A KeyboardInterrupt inside the callback would be printed and forgotten by ctypes.
    assert capfd.readouterr().err == ""
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_time_limit_is_kept_and_said():
    graph = chain(40)
    plan = solve(graph, int(pool(graph, "live") * 0.6), "local",
                 Options(storage="live", effort=1000, time_limit_s=0.5))
    assert plan.status is Status.TIME_LIMIT


def test_too_little_time_shortens_every_phase():
    """A search with a thousand times the work that fits its time still ends with cold annealing."""
    graph = chain(40)
    budget = int(pool(graph, "live") * 0.5)
    usual = solve(graph, budget, "local", Options(storage="live"))
    hurried = solve(graph, budget, "local",
                    Options(storage="live", effort=1000, time_limit_s=1.0))
    assert usual.status is not Status.TIME_LIMIT
    assert hurried.overhead <= usual.overhead * (1 + 1e-9)


@pytest.mark.parametrize("method", ["auto", "sublinear"])
def test_progress_tells_the_total_that_the_budget_is_on(method):
    graph = chain(20)
    graph = replace(graph, ops=tuple(op.changed(workspace_bytes=7) for op in graph.ops))
    seen = []
    budget = int(pool(graph, "live") * 0.7) if method == "auto" else None
    plan = solve(graph, budget, method, Options(
        storage="live", fixed_bytes={"parameters": 1000}, progress=seen.append))
    assert seen[-1].total_bytes == plan.total_bytes == plan.pool_bytes + 1007


def test_errors_in_the_progress_callback_come_through():
    def fail(_):
        raise ZeroDivisionError
    with pytest.raises(ZeroDivisionError):
        solve(chain(20), 150, "local", Options(storage="live", progress=fail))


def test_users_solver_is_called_by_name():
    def keep_all(graph, budget_bytes, options):
        return build_plan(graph, unplanned(graph), "mine", options, budget_bytes)
    register("mine", keep_all)
    assert "mine" in methods()
    graph = chain(4)
    assert solve(graph, None, "mine", Options(storage="live")).method == "mine"
    with pytest.raises(InfeasibleBudget, match="f2"):
        solve(graph, 20, "mine", Options(storage="live"))


@pytest.mark.parametrize("options, method, message", [
    (Options(storage="disk"), "local", "storage"), (Options(variants="some"), "local", "variants"),
    (Options(), "magic", "unknown method"), (Options(time_limit_s=0), "local", "time_limit"),
    (Options(keep=(1,), recompute=(1,)), "local", "both"), (Options(effort=-1), "local", "effort"),
    (Options(objective="fun"), "local", "objective"),
    (Options(max_overhead=-1), "local", "overhead")])
def test_bad_options(options, method, message):
    with pytest.raises(InputError, match=message):
        solve(chain(3), 10, method, options)


@pytest.mark.parametrize("method", EXACT)
def test_methods_that_can_find_the_optimum_of_a_short_chain(method):
    graph = chain(6)
    options = Options(storage="live")
    budget = int(pool(graph, "live") * 0.8)
    best = solve(graph, budget, "brute", options)
    assert solve(graph, budget, method, options).overhead == pytest.approx(best.overhead)


@pytest.mark.parametrize("method", ("auto", "local", "milp"))
def test_ops_run_again_once_only_where_that_is_asked(method):
    """A long chain in the least memory runs its first ops many times, unless told not to."""
    graph = chain(7)
    runs = {}
    for limit in (0, 1, 2):
        plan = solve(graph, None, method, Options(storage="live", objective="memory", effort=0.1,
                                                  max_clones=limit))
        again = plan.schedule.recomputed()
        runs[limit] = max(again.count(op) for op in again)
        validate(graph, plan.schedule)
    assert runs[1] == 1 and runs[2] <= 2 < runs[0]
    with pytest.raises(InputError, match="max_clones must not be negative"):
        solve(graph, None, method, Options(max_clones=-1))


def wrong_answers():
    """Answers of a careless method, with a word of what is said about each."""
    def changed(change):
        def method(graph, budget_bytes, options):
            right = build_plan(graph, expand(graph, {0: {}}), "wrong", options, budget_bytes)
            return change(right)
        return method

    def steps(change):
        return changed(lambda plan: replace(plan, schedule=replace(
            plan.schedule, steps=change(plan.schedule.steps))))

    return [
        (lambda *_: None, "a NoneType in place of a Plan"),
        (changed(lambda plan: plan.schedule), "a Schedule in place of a Plan"),
        (changed(lambda plan: planned_as(plan, pool_bytes=plan.pool_bytes - 8)), "bytes stated"),
        (changed(lambda plan: planned_as(plan, pool_bytes=0.5)), "pool_bytes cannot be 0.5"),
        (changed(lambda plan: unplanned_as(plan, pool_bytes=1)), "unplanned pool: 1"),
        (changed(lambda plan: replace(plan, graph=mxnet_graph(3))), "another graph"),
        (changed(lambda plan: replace(plan, schedule=None)), "schedule cannot be None"),
        (changed(lambda plan: replace(plan, schedule=replace(plan.schedule, variants=(7,)))),
         "a variant does not exist"),
        (steps(lambda all: all[:-1]), "an op never runs"),
        (steps(lambda all: (*all, Step(0, (999,)))), "."),
        (steps(lambda all: (*all, Step(999, ()))), "an op that does not exist"),
        (steps(lambda all: (Step(0, "x"), *all[1:])), "sources cannot be 'x'")]


@pytest.mark.parametrize("number", range(12))
def test_a_wrong_plan_of_a_registered_method_never_leaves(number, monkeypatch):
    from memonger import solve as package
    monkeypatch.setattr(package, "REGISTERED", dict(package.REGISTERED))
    answer, message = wrong_answers()[number]
    register("wrong", answer)
    graph = mxnet_graph(1)
    with pytest.raises(InvalidPlan, match="method 'wrong' did not give a plan.*" + message):
        solve(graph, None, "wrong", Options(objective="memory"))


def test_what_is_to_be_kept_is_kept_by_any_method(monkeypatch):
    from memonger import solve as package
    monkeypatch.setattr(package, "REGISTERED", dict(package.REGISTERED))
    register("again", lambda graph, budget_bytes, options: build_plan(
        graph, expand(graph, {0: {}}), "again", options, budget_bytes))
    graph = mxnet_graph(1)
    again = solve(graph, None, "again").schedule.recomputed()
    assert again == (0,)
    with pytest.raises(InvalidPlan, match="%s runs again" % graph.ops[0].name):
        solve(graph, None, "again", Options(keep=(0,)))
