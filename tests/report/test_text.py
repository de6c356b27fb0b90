"""Texts: golden files for whole tables, exact checks for single words."""
from __future__ import annotations

from dataclasses import replace

import pytest
from footprints import pair, plan_with, unplanned_as
from report.graphs import plan_of, resnet, tiny

from memonger.graph.imported import single_output_graph
from memonger.graph.offers import Offer, offering
from memonger.graph.schedule import Schedule, expand
from memonger.graph.types import Implementation
from memonger.memory.storage import plan_storage
from memonger.plans.frontier import frontier, knee
from memonger.plans.measurement import Measurement
from memonger.plans.plan import UNIT_TIMES, Status
from memonger.plans.verification import Difference, Verification
from memonger.report import formatting as words
from memonger.report import text
from memonger.report.charts.frontier import frontier_table
from memonger.report.facts import Facts
from memonger.report.measured import measurement_table


@pytest.fixture(scope="module")
def plan():
    return plan_of(resnet((2, 2), 16, 64), budget_bytes=52 * 10**6, bound=0.062,
                   minimum_total_bytes=40_000_000, options={"budget": "52MB"},
                   notes=("fused RNN ops stay as they are",))


def test_summary(plan, golden):
    golden("summary.txt", text.summary(plan, "plan.json") + "\n")
    assert str(plan) == text.summary(plan) and "next:" not in str(plan)


def test_the_columns_add_up_to_the_total(plan):
    """Parts outside the pool that a plan changes stand alone, all others together."""
    outside = plan.fixed_bytes
    odd = plan.changed(
        planned=replace(plan.planned, outside_bytes={**outside, "workspace": 5 << 20}),
        unplanned=replace(plan.unplanned, outside_bytes={**outside, "layout_copies": 40 << 20}))
    for made in (plan, odd):
        names, *rows = text.summary_rows(Facts(made))[:3]
        last = names.index("step time")
        for row in rows:
            total, *parts = [float(cell.split()[0]) for cell in row[1:last]]
            assert all(cell.endswith((" MiB", "0 B")) for cell in row[1:last])
            assert sum(parts) == pytest.approx(total, abs=0.2)
    assert names[1:last] == ["total", "pool", "copies in other layouts", "workspace", "the rest"]
    assert "40.0 MiB of copies in other layouts, less 5.00 MiB of workspace" in text.summary(odd)


def test_the_hints_quote_the_name_of_the_file(plan):
    assert "memonger verify 'my plan.json' ·" in text.summary(plan, "my plan.json")


def test_times_of_one_unit_an_op_are_no_seconds():
    """Without the plugin ResNet-50 was said to take 525 s a step."""
    base = plan_of(resnet((2, 2), 16, 64))
    ops = tuple(op.changed(time_s=1.0) for op in base.graph.ops)
    units = base.changed(graph=replace(base.graph, ops=ops), costs=UNIT_TIMES)
    row = next(line for line in text.summary(units).splitlines() if line.startswith("unplanned"))
    assert row.split()[-1] == str(len(ops)) and "MiB" in row


def test_the_peak_counts_every_byte_alive(plan):
    facts = Facts(plan)
    for line in (facts.timeline, facts.baseline_timeline):
        assert sum(piece.bytes for piece in line.at_peak) == line.peak_live_bytes


def test_a_measured_plan_keeps_measured_and_predicted_apart(plan):
    measured = {"allocated_bytes": 2**28, "step_s": 0.02, "device": "cpu(0)", "overhead": 0.1,
                "original": {"allocated_bytes": 2**29, "step_s": 0.018}}
    shown = str(plan.with_measured(measured))
    assert ("measured: process 256 MiB (unplanned 512 MiB), step 20.0 ms (unplanned 18.0 ms, "
            "+10.0 %) on cpu(0)") in shown
    assert shown.count("256 MiB") == 1


def test_variants_are_counted_by_name():
    graph = tiny()
    relu = graph.op_index["relu0"]
    masked = Implementation(graph.ops[relu].inputs, graph.ops[relu].outputs, time_s=1e-5)
    graph = offering(graph, [Offer("mask", relu, ((relu, masked),))])
    shown = plan_of(graph, {}, schedule=Schedule(expand(graph, {}).steps, (0,)))
    assert "1 variant (-1.6 %; mask: 1)" in str(shown)
    assert Facts(shown).by_name["relu0"].group == "variant"


def test_other_worlds_and_statuses_are_told(plan):
    shown = str(plan.changed(status=Status.TIME_LIMIT, planning_s=6.1))
    assert "a longer time limit may find one), found in" in shown
    assert "6.10 s" in shown


def test_graphs_of_other_planners_keep_their_units():
    graph = single_output_graph(["a", "b", "c"], [5, 6, 7000], [1.0, 2.5, 3.0],
                                [True, True, False], [(0, 1), (1, 2), (0, 2)], "toy")
    plan = plan_with(pair(7011, 7011), graph, expand(graph, {}), status=Status.OPTIMAL,
                     method="milp", budget_bytes=8000, storage="live")
    shown = str(plan)
    assert "7,011" in shown and "8,000" in shown and "6.5" in shown
    assert "KiB" not in shown and "not counted" not in shown


# ---------------------------------------------------------------------- the other calls
def test_estimate_table(golden):
    sizes = {"parameters": 10 * 2**20, "gradients": 10 * 2**20, "aux": 0, "pool": 100 * 2**20}
    golden("estimate.txt", text.estimate_table(sizes, 10**8) + "\n")
    assert text.estimate_table(sizes).splitlines()[-1].split() == ["total", "120", "MiB"]
    assert "fits" in text.estimate_table(sizes, 2 * 10**8)


def test_verification_table(golden):
    same = Difference(1, "gradient fc1_weight", True, 0.0, 0.0, 0.0, 1e-6)
    close = Difference(1, "gradient conv0_weight", False, 1e-9, 2e-8, 1e-9, 1e-6)
    far = Difference(2, "aux bn0_moving_mean", False, 0.5, 0.25, 0.5, 2e-5)
    rounded = Difference(2, "aux bn0_moving_mean", False, 0.5, 0.25, 0.4, 1.2)
    tables = [text.verification_table(found) for found in (
        Verification((same, same), 2), Verification((same, close), 2),
        Verification((same, close, far), 2, 1e-5, "float64", (same, far)),
        Verification((same, far), 2, 1e-5, "rounding"),
        Verification((same, rounded), 2, 1e-5, "float64", (same, close)),
        Verification((same, same), 2, lost_casts={"amp_cast": 2}),
        Verification((same, same), 2, control=(same, same), control_threads=(2, 1)),
        Verification((same, close), 2, control=(close, far), control_threads=(1, 2)),
        Verification((same, same), 2, in_double=(same, close), beside=(same, rounded)))]
    golden("verification.txt", "\n\n".join(tables) + "\n")


def test_measurement_table(golden):
    original = Measurement(2**29, 0.018, (0.017, 0.018, 0.025), "cpu(0)")
    planned = Measurement(2**28, 0.02, (0.019, 0.02, 0.04), "cpu(0)", original)
    golden("measurement.txt", "%s\n\n%s\n" % (measurement_table(planned, original),
                                             measurement_table(original)))


@pytest.mark.parametrize("share, words", [(1.4, None), (1.6, "times"), (20, "than what MXNet")])
def test_a_process_that_takes_far_more_than_predicted_is_told(share, words):
    graph = single_output_graph(list("ab"), [1] * 2, [0.2] * 2, [True] * 2, [])
    size = 2**29 if share < 2 else 2**20
    plan = plan_with(pair(size, size), graph, expand(graph, {}))
    found = measurement_table(Measurement(int(share * size), 0.02, (0.02,), "cpu(0)"),
                              predicted=plan)
    if words is None:
        assert "predicted" not in found
    else:
        assert "takes %.1f times" % share in found and words in found


@pytest.mark.parametrize("costs, pools, words", [
    ("roofline: reference", "executor", "it is for another device"),
    ("roofline: cpu", "executor", "please report this network"),
    ("profile: a CPU", "executor", "please report this network"),
    ("roofline: reference", "cached_op", "the steps ran in an executor")])
def test_why_far_more_is_taken_depends_on_what_the_plan_is_for(costs, pools, words):
    graph = replace(single_output_graph(list("ab"), [1] * 2, [0.2] * 2, [True] * 2, []),
                    pools=pools)
    plan = plan_with(pair(2**29, 2**29), graph, expand(graph, {}), costs=costs)
    found = measurement_table(Measurement(2**30, 0.02, (0.02,), "cpu(0)"),
                              predicted=plan)
    assert "takes 2.0 times the 512 MiB that were predicted: " + words in found


def test_a_step_that_takes_far_longer_than_predicted_is_told(plan):
    measured = Measurement(plan.total_bytes, 9.0, (9.0,), "cpu(0)")
    step_s = plan.graph.time_s * (1 + plan.overhead)
    for costs, advice in (("roofline: this CPU", "on this device; a busy machine is slower, too"),
                          ("profile: this CPU", "profile again, on an idle machine")):
        found = measurement_table(measured, predicted=plan.changed(costs=costs))
        assert "a step takes %.1f times the" % (9.0 / step_s) in found and advice in found
    close = replace(measured, step_s=1.4 * step_s, steps_s=(1.4 * step_s,))
    assert "a step takes" not in measurement_table(close, predicted=plan)


@pytest.mark.parametrize("taken_mb, told", [(400, False), (420, True), (700, False)])
def test_a_process_that_takes_a_little_more_than_the_budget_is_told(plan, taken_mb, told):
    plan = plan.changed(budget_bytes=400 * 10**6, planned=replace(
        plan.planned, pool_bytes=390 * 10**6, outside_bytes={}))
    found = measurement_table(Measurement(taken_mb * 10**6, 0.01, (0.01,), "cpu(0)"),
                              predicted=plan)
    assert ("that is above the budget of 381 MiB, where 372 MiB were predicted: MXNet's code"
            in found) == told
    assert ("that were predicted, above the budget: " in found) == (taken_mb == 700)


def test_an_allocator_that_takes_more_than_the_budget_is_told(plan):
    live = plan.changed(graph=replace(plan.graph, pools="units"), budget_bytes=plan.total_bytes,
                        costs="roofline: this CPU")
    measured = Measurement(plan.total_bytes + 1, 0.01, (0.01,), "cpu")
    found = measurement_table(measured, predicted=live, holder="allocator")
    assert "that is above the budget of" in found and "memonger profile measures" in found


# ---------------------------------------------------------------------- frontiers
def sweep(points):
    """Plans with these (pool, overhead); the graph's step takes 1 s in five equal ops."""
    graph = single_output_graph(list("abcde"), [1] * 5, [0.2] * 5, [True] * 5, [])
    plans = []
    for pool, overhead in points:
        times = expand(graph.with_times([0.2 * (1 + overhead)] * 5), {})
        plan = plan_with(pair(pool, 1000), graph, times, budget_bytes=pool)
        plans.append(_Fixed(plan, overhead))
    return plans


class _Fixed:
    """A plan whose overhead is given."""

    def __init__(self, plan, overhead):
        self._plan, self.overhead = plan, overhead

    def __getattr__(self, name):
        return getattr(self._plan, name)


def test_frontier_leaves_out_beaten_plans():
    plans = sweep([(800, 0.1), (500, 0.2), (600, 0.3), (500, 0.4), (1000, 0.0)])
    assert [(p.pool_bytes, p.overhead) for p in frontier(plans)] == [
        (500, 0.2), (800, 0.1), (1000, 0.0)]


def test_the_knee_is_where_the_curve_bends():
    plans = sweep([(1000, 0.0), (800, 0.01), (600, 0.02), (400, 0.03), (300, 0.3), (250, 0.9)])
    assert knee(plans).pool_bytes == 400
    assert knee(plans[:2]) is None


def test_frontier_table(golden):
    plans = sweep([(1000, 0.0), (800, 0.01), (600, 0.02), (620, 0.5), (400, 0.03), (250, 0.9)])
    golden("frontier.txt", frontier_table(plans) + "\n")
    assert frontier_table([]) == "no plan"
    in_bytes = [_Fixed(replace(
        plan._plan, graph=replace(plan.graph, pools="allocator"), footprints=pair(
            plan.pool_bytes, plan.baseline_pool_bytes, {"inputs": 1000})), plan.overhead)
        for plan in plans]
    header, least = (line.split() for line in frontier_table(in_bytes).splitlines()[:2])
    assert header[:6] == ["total", "of", "unplanned", "in", "the", "step"]
    assert least[:6] == ["1.22", "KiB", "62.5", "%", "250", "B"]


def test_a_plan_that_serves_two_budgets_is_not_called_beaten():
    text = frontier_table(sweep([(800, 0.1), (800, 0.1), (900, 0.2)]))
    assert text.count("(the same again)") == text.count("(beaten by another plan)") == 1


# ---------------------------------------------------------------------- words
@pytest.mark.parametrize("time_s, expected", [
    (0, "0.00 s"), (0.214, "214 ms"), (1.2, "1.20 s"), (35e-6, "35.0 us"), (3e-8, "0.03 us")])
def test_times_in_words(time_s, expected):
    assert words.format_time(time_s) == expected


def test_extra_time_that_rounds_to_nothing_has_one_sign():
    assert words.format_extra(-0.0004) == words.format_extra(0.0004) == "+0.0 %"
    assert words.format_extra(-0.0006) == "-0.1 %"


@pytest.mark.parametrize("number, expected", [
    (1, "1st"), (2, "2nd"), (3, "3rd"), (4, "4th"), (11, "11th"), (112, "112th"), (121, "121st")])
def test_ordinals(number, expected):
    assert words.ordinal(number) == expected


def test_tables_align_and_have_no_trailing_blanks():
    shown = words.table([["a", "bb", ""], ["only"], ["ccc", "d", "e"]], "<><", gap=1)
    assert shown == "a   bb\nonly\nccc  d e"


def test_facts_of_ops_agree_with_the_plan(plan):
    facts = Facts(plan)
    assert {f.name: f.decision for f in facts.ops} == plan.decisions
    kept = facts.by_name["conv0"]
    assert (kept.group, kept.held_bytes) == ("keep", kept.size_bytes)
    again = facts.by_name["relu0"]
    assert again.why == "recomputed for pooling0_backward instead of waiting in memory"
    assert again.held_bytes == 0
    assert facts.by_name["softmax"].group == "pinned"


def test_the_unplanned_timeline_has_the_pool_that_the_plan_states(plan):
    graph = plan.graph
    for model in ("best", "stock"):
        pool_bytes = plan_storage(graph, expand(graph, {}), model).pool_bytes
        facts = Facts(unplanned_as(plan, pool_bytes=pool_bytes))
        assert facts.baseline_timeline.pool_bytes == pool_bytes
