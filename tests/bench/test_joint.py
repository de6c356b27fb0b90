"""MONeT's joint instances: the check, the search against brute force, the table."""
from __future__ import annotations

import itertools
import random
from dataclasses import replace

import pytest

from memonger.bench import peers
from memonger.bench.joint import JointPlan, check, parse_instance, read_instance
from memonger.bench.joint_peers import (
    JOINT_CASES,
    JointCase,
    JointRow,
    joint_table,
    run_joint,
)
from memonger.bench.joint_search import search_joint
from memonger.errors import InputError, InvalidPlan, SolverError

#: a -> b (in place) -> c (convolution of two algorithms) -> loss, and the gradients of c, b, a.
FORWARD = [
    # size local fixed is_mask convolution in_place_of, times, workspaces, local tensors, masks
    (10, 0, 2, 0, -1, -1, [5], [5], [5], [0], [0], [0], [], [], [([], [])]),
    (10, 10, 2, 0, -1, 0, [3], [2], [1], [0], [0], [-10], [0], [], [([0], [])]),
    (10, 10, 2, 0, 0, -1, [9, 4, -100], [9, 4, -100], [9, 4, -100], [0, 12, 0], [0, 12, 0],
     [0, 12, 0], [1], [], [([1], [])]),
    (1, 0, 2, 0, -1, -1, [1], [1], [1], [0], [0], [0], [2], [], [([2], [])]),
]
BACKWARD = [
    (10, 1, 3, 0, -1, -1, [4, 6], [4], [4], [0, 0], [0], [0], [], [],
     [([2], [2]), ([1], [1])]),
    (10, 10, 4, 0, -1, -1, [7], [7], [7], [1], [1], [1], [4], [], [([1, 4], [1])]),
    (0, 10, 4, 0, -1, -1, [2], [2], [2], [0], [0], [0], [5], [], [([0, 5], [0])]),
]


def written(forward=FORWARD, backward=BACKWARD, choose=1, in_place=1):
    """The text of an instance."""
    numbers = [len(forward) + len(backward), len(forward), len(backward) + 1, choose, in_place]
    for *head, variants in (*forward, *backward):
        numbers += head[:6]
        for vector in head[6:]:
            numbers += [len(vector), *vector]
        numbers.append(len(variants))
        for needs, released in variants:
            numbers += [len(needs), *needs, len(released), *released]
    return " ".join(map(str, numbers))


def plans(instance):
    """Every plan in which no node runs needlessly and nothing is held that nobody reads."""
    nodes, stages = range(instance.num_forward), range(instance.num_stages)
    read = sorted({v for node in instance.nodes for needs in node.needs for v in needs
                   if v in nodes})
    subsets = [frozenset(v for i, v in enumerate(read) if bits >> i & 1)
               for bits in range(2 ** len(read))]
    variants = [range(len(instance.backward(t).needs)) if t else (0,) for t in stages]
    for held in itertools.product(subsets, repeat=len(stages)):
        for chosen in itertools.product(*variants):
            runs = [running(instance, t, held[t - 1] if t else frozenset(), held[t], chosen[t])
                    for t in stages]
            for ways in itertools.product(*(how_to_run(instance, some) for some in runs)):
                yield JointPlan((frozenset(), *held), tuple(chosen), tuple(runs),
                                tuple(algorithms for algorithms, _ in ways),
                                tuple(in_place for _, in_place in ways))


def running(instance, stage, before, after, variant):
    """The fewest nodes that have to run in a stage."""
    nodes = range(instance.num_forward)
    wanted = set(after - before) if stage else set(nodes)
    if stage:
        wanted |= {v for v in instance.backward(stage).needs[variant]
                   if v in nodes and v not in after}
    for v in reversed(nodes):
        if v in wanted:
            wanted |= {u for u in instance.nodes[v].needs[0] if u not in before}
    return frozenset(wanted)


def how_to_run(instance, runs):
    """Algorithms and in-place execution of some nodes, all combinations."""
    convolutions = sorted(v for v in runs if instance.nodes[v].is_convolution)
    overwriting = sorted(v for v in runs if instance.nodes[v].in_place_of >= 0)
    for algorithms in itertools.product((0, 1), repeat=len(convolutions)):
        for flags in itertools.product((False, True), repeat=len(overwriting)):
            yield (dict(zip(convolutions, algorithms)),
                   frozenset(v for v, flag in zip(overwriting, flags) if flag))


def least(instance, budget):
    """The cheapest of all plans that pass the check."""
    best = None
    for plan in plans(instance):
        try:
            cost = check(instance, plan, budget)
        except InvalidPlan:
            continue
        best = cost if best is None else min(best, cost)
    return best


@pytest.mark.parametrize("text, words", [
    ("1 2", "cut short"), ("3 4 5 0 0", "contradict"), ("a b", "integers"),
    (written() + " 1", "more numbers"), (written()[:-2], "cut short")])
def test_damaged_instances_are_refused(text, words):
    with pytest.raises(InputError, match=words):
        parse_instance(text)


def test_a_node_that_does_not_exist_is_refused():
    backward = [BACKWARD[0][:-1] + ([([99], []), ([1], [])],), *BACKWARD[1:]]
    with pytest.raises(InputError, match="does not exist"):
        parse_instance(written(backward=backward))


def small(forward=FORWARD, backward=BACKWARD):
    """Three forward nodes and the loss, two gradients: small enough for brute force."""
    return parse_instance(written(forward, backward))


def brute_force_instance(seed=0):
    """a, b that may overwrite it, a convolution as the loss; two gradients."""
    roll = random.Random(seed)
    forward = [FORWARD[0], FORWARD[1], FORWARD[2][:13] + ([], [([1], [])])]
    backward = [BACKWARD[0][:-1] + ([([1], [1]), ([0], [0])],),
                (0, 10, 4, 0, -1, -1, [2], [2], [2], [0], [0], [0], [], [], [([0, 3], [0])])]
    if seed:
        forward = [(roll.randint(1, 20), *row[1:6], [roll.randint(1, 9)], [roll.randint(1, 9)],
                    *row[8:]) if row[4] < 0 else row for row in forward]
        forward[1] = (*forward[1][:8], [roll.randint(1, 9)], *forward[1][9:11],
                      [-forward[0][0]], *forward[1][12:])
    return parse_instance(written(forward, backward))


@pytest.mark.parametrize("budget", [20, 26, 28, 30, 34, 38, 50])
@pytest.mark.parametrize("seed", range(6))
def test_search_finds_the_optimum_of_a_tiny_instance(budget, seed):
    instance = brute_force_instance(seed)
    found = search_joint(instance, budget, 5.0, work=20000)
    assert found.cost == least(instance, budget)


def test_same_work_gives_the_same_plan():
    instance = small()
    first, again = (search_joint(instance, 45, 60.0, work=20000) for _ in range(2))
    assert first.plan == again.plan and first.evaluations == again.evaluations


def test_nothing_fits():
    found = search_joint(small(), 5, 2.0, work=2000)
    assert found.plan is None and found.cost is None and found.overflow_kb > 0


def test_library_refuses_contradictions():
    instance = small()
    nodes = list(instance.nodes)
    nodes[1] = replace(nodes[1], needs=(frozenset({3}),))  # reads what comes later
    with pytest.raises(SolverError, match="contradicts"):
        search_joint(replace(instance, nodes=tuple(nodes)), 100, 1.0, work=100)


@pytest.mark.parametrize("seed", range(30))
def test_a_plan_that_is_altered_is_found_out(seed):
    instance, budget = small(), 42
    plan = search_joint(instance, budget, 5.0, work=5000).plan
    assert plan is not None
    roll = random.Random(seed)
    stage = roll.randrange(instance.num_stages)
    runs = list(plan.runs)
    removed = roll.choice(sorted(runs[stage])) if runs[stage] else None
    if removed is None:
        held = list(plan.held)
        held[stage + 1] = frozenset(range(instance.num_forward))
        altered = replace(plan, held=tuple(held))
    else:
        runs[stage] = runs[stage] - {removed}
        altered = replace(plan, runs=tuple(runs))
    with pytest.raises(InvalidPlan):
        check(instance, altered, budget)


@pytest.mark.parametrize("change, words", [
    (lambda plan: replace(plan, held=(frozenset({0}), *plan.held[1:])), "before anything"),
    (lambda plan: replace(plan, variants=plan.variants[1:]), "number of stages"),
    (lambda plan: replace(plan, variants=(0, 7, *plan.variants[2:])), "no such variant"),
    (lambda plan: replace(plan, algorithms=({2: 2}, *plan.algorithms[1:])), "no such algorithm"),
    (lambda plan: replace(plan, in_place=(frozenset({0}), *plan.in_place[1:])), "in place")])
def test_the_check_says_what_is_wrong(change, words):
    instance = small()
    plan = search_joint(instance, 60, 5.0, work=5000).plan
    with pytest.raises(InvalidPlan, match=words):
        check(instance, change(plan), 60)


def test_the_check_counts_memory():
    instance = small()
    found = search_joint(instance, 60, 5.0, work=5000)
    assert check(instance, found.plan, 60) == found.cost
    with pytest.raises(InvalidPlan, match="the budget is 20 KB"):
        check(instance, found.plan, 20)


def test_table_shows_the_difference():
    case = JointCase("x.txt", 5.5, 1000)
    rows = [JointRow(case, 1005, 1.0), JointRow(case, 1006, 1.0), JointRow(case, None, 1.0),
            JointRow(replace(case, allowed_percent=-1), 1000, 1.0)]
    assert [row.reached for row in rows] == [True, False, False, False]
    text = joint_table(rows)
    assert "| x | 5.5 | 1005 | 1000 | +0.50 | 1.0 | yes |" in text and "none found" in text


def test_the_command_takes_a_folder(monkeypatch, tmp_path, capsys):
    from memonger.bench.run import main
    (tmp_path / "monet").mkdir()
    (tmp_path / "monet" / "tiny.txt").write_text(written())
    monkeypatch.setattr(peers, "JOINT_CASES", (JointCase("tiny.txt", 1.0, 1, 0.2),))
    assert main(["peers", str(tmp_path)]) == 0
    assert "| tiny | 1 |" in capsys.readouterr().out
    with pytest.raises(InputError, match="FOLDER"):
        peers.compare(given=str(tmp_path / "monet"))


def available():
    try:
        return bool(peers.folder(kind="monet"))
    except InputError:
        return False


@pytest.mark.skipif(not available(), reason="MONeT's instances are not here")
def test_published_optimum_in_seconds():
    case = JointCase("vgg16_176_inplace_conv_multiway_newnode.txt", 8, 138333, 4.0)
    assert run_joint(case, peers.folder(kind="monet")).cost == 138333


@pytest.mark.slow
@pytest.mark.skipif(not available(), reason="MONeT's instances are not here")
@pytest.mark.parametrize("case", JOINT_CASES, ids=lambda c: "%s-%g" % (c.file, c.budget_gb))
def test_published_values_are_reached(case):
    assert run_joint(case, peers.folder(kind="monet")).reached


@pytest.mark.slow
@pytest.mark.skipif(not available(), reason="MONeT's instances are not here")
@pytest.mark.parametrize("seed", [1, 3])
def test_unet_at_5_gb_is_not_a_matter_of_luck(seed):
    # As much work as 40 seconds allow. Without values carried on to where smaller ones are made
    # from them, and without improving the better half of the starts, most seeds end at 129598.
    instance = read_instance(
        str(peers.folder(kind="monet") / "un_11_inplace_conv_multiway_newnode.txt"))
    found = search_joint(instance, 5 * 1024 * 1024, 600.0, work=400_000_000, seed=seed)
    assert found.cost <= 1.005 * 128723
