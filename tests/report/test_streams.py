"""Plans of several streams in words: what runs where, and what is waited for."""
from __future__ import annotations

import shutil

import pytest
from offloaded import chain_of_two_streams, slower_copies

from memonger.graph.in_use import graph_in_use
from memonger.graph.schedule import Schedule, expand
from memonger.graph.types import Graph
from memonger.memory.timeline import timeline
from memonger.plans.plan import Plan
from memonger.report.diagram.model import draw
from memonger.report.explain import explain
from memonger.report.facts import Facts
from memonger.report.html import page
from memonger.report.page_data import page_data
from memonger.report.text import summary
from memonger.solve.options import Options
from memonger.solve.result import build_plan


def moved(graph: Graph) -> Plan:
    steps = expand(graph_in_use(graph, Schedule((), (0,))), {}).steps
    return build_plan(graph, Schedule(steps, (0,)), "local", Options(storage="live"), 64)


def test_a_plan_says_what_streams_run_and_what_compute_waits():
    graph = chain_of_two_streams()
    for plan, waits_s, copies_s in ((moved(graph), 0, 2), (moved(slower_copies(graph, 4)), 5, 8)):
        assert "streams: compute runs 8.00 s and waits %.2f s for other streams, copy runs %.2f s" \
            % (waits_s, copies_s) in summary(plan)


def test_an_op_says_where_its_copies_run():
    hidden, slow = (str(explain(moved(graph), "a")) for graph in (
        chain_of_two_streams(), slower_copies(chain_of_two_streams(), 4)))
    on_copy = "%s0:a runs on stream copy from %s s to %s s of the step"
    assert on_copy % ("store", "2.00", "3.00") + ", beside compute" in hidden
    assert on_copy % ("fetch", "6.00", "7.00") + ", beside compute" in hidden
    assert on_copy % ("store", "2.00", "6.00") + "; wait0:a waits 2.00 s for it" in slow
    assert on_copy % ("fetch", "8.00", "12.0") + "; a' waits 3.00 s for it" in slow


def test_the_timeline_has_the_clocks_times():
    plan = moved(chain_of_two_streams())
    line = timeline(plan.graph, plan.schedule, "live")
    assert line.times == plan.schedule.times(plan.graph) and line.times.total_s == 8.0


def test_the_host_has_a_colour_a_curve_and_a_bar_for_each_transfer():
    plan = moved(chain_of_two_streams())
    facts, data = Facts(plan), page_data(Facts(plan))
    line = facts.timeline
    assert {"a", "store0:a"} <= {fact.name for fact in facts.ops if fact.group == "host"}
    assert facts.by_name["b"].group != "host"
    assert max(line.host_bytes) == plan.host_bytes > 0
    assert len(line.host_bytes) == len(line) and line.host_bytes[-1] == 0
    assert [name for _, _, name in data["transfers"]] == ["store0:a", "fetch0:a"]
    assert all(start < end for start, end, _ in data["transfers"])
    assert "host" in draw(plan).legend


@pytest.mark.skipif(shutil.which("dot") is None, reason="Graphviz is not installed")
def test_the_page_says_what_was_moved():
    assert "moved to the host and back" in page(moved(chain_of_two_streams()))


def test_a_plan_without_a_host_has_none_of_these():
    plan = build_plan(graph := chain_of_two_streams(), expand(graph, {}), "local",
                      Options(storage="live"), None)
    data = page_data(Facts(plan))
    assert data["transfers"] == [] and not any(data["planned"]["host"])
    assert "host" not in draw(plan).legend
