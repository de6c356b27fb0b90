"""The timeline and the frontier as pictures."""
from __future__ import annotations

import subprocess
import sys
import xml.etree.ElementTree as xml
from dataclasses import replace

import pytest
from report.graphs import plan_of, resnet, tiny

from memonger.report.charts.frontier import draw_frontier
from memonger.report.charts.timeline import (
    BUDGET,
    MEASURED,
    TOP,
    common_steps,
    draw_timeline,
    measured_pool,
    pool_budget,
    timeline_figure,
)
from memonger.report.facts import Facts
from memonger.util.errors import RenderError

pytest.importorskip("matplotlib")


@pytest.fixture(scope="module")
def plan():
    return plan_of(resnet((2, 2), 16, 64), budget_bytes=52 * 10**6)


@pytest.mark.parametrize("ending, start", [("svg", b"<?xml"), ("png", b"\x89PNG"),
                                           ("pdf", b"%PDF")])
def test_files_of_every_kind(plan, tmp_path, ending, start):
    path = tmp_path / ("memory." + ending)
    draw_timeline(plan, str(path))
    first = path.read_bytes()
    assert first.startswith(start)
    if ending == "svg":
        xml.fromstring(first)
        draw_timeline(plan, str(path))
        assert path.read_bytes() == first


def test_other_endings_are_refused(plan, tmp_path):
    with pytest.raises(RenderError, match=r"\.svg, \.png, \.pdf"):
        draw_timeline(plan, str(tmp_path / "memory.gif"))


def levels_of(figure):
    return {line.get_label(): line for line in figure.axes[0].lines}


def test_what_is_drawn(plan):
    facts = Facts(plan)
    axes = timeline_figure(plan).axes[0]
    mib = 2.0 ** 20
    highest = [max(line.get_ydata()) * mib for line in axes.lines]
    assert facts.baseline_timeline.peak_live_bytes in highest
    assert facts.timeline.peak_live_bytes in highest
    levels = levels_of(axes.figure)
    assert levels["pool, unplanned"].get_ydata()[0] * mib == plan.baseline_pool_bytes
    assert levels["budget"].get_color() == BUDGET
    assert levels["budget"].get_ydata()[0] * mib == pool_budget(plan)
    assert "measured, planned" not in levels
    assert axes.get_ylim()[1] * mib == pytest.approx(1.05 * plan.baseline_pool_bytes)
    assert axes.get_legend() is None  # it stands below the data


def test_names_of_lines_do_not_meet(plan):
    from matplotlib.text import Text
    for figure in (timeline_figure(plan), timeline_figure(plan_of(tiny()))):
        figure.canvas.draw()
        names = [Text.get_window_extent(text) for text in figure.axes[0].texts  # not the arrow
                 if text.get_text().startswith(("pool,", "budget", "measured"))]
        assert len(names) > 1
        assert not any(a.overlaps(b) for a in names for b in names if a is not b)
        page = figure.bbox
        assert all(page.x0 <= box.x0 and box.x1 <= page.x1 for box in names)


def test_the_peak_names_its_tensors(plan):
    texts = [text.get_text() for text in timeline_figure(plan).axes[0].texts]
    alive = Facts(plan).timeline.at_peak
    assert any(text.startswith("peak of live bytes: 34.5 MiB at ") for text in texts)
    told = next(text for text in texts if text.startswith("alive at the peak")).replace("\n", " ")
    assert all(block.tensor in told for block in alive[:TOP])
    assert told.endswith("in %d smaller" % (len(alive) - TOP))


def test_a_measured_line_is_drawn_where_there_is_one(plan):
    measured = plan.with_measured({"allocated_bytes": plan.total_bytes + 5})
    assert measured_pool(measured) == plan.pool_bytes + 5
    assert measured_pool(measured, original=True) is None
    assert levels_of(timeline_figure(measured))["measured, planned"].get_color() == MEASURED


def test_the_unplanned_measurement_is_less_what_the_unplanned_network_has_outside(plan):
    both = replace(plan, fixed_bytes={"workspace": 10}, baseline_fixed_bytes={"workspace": 70},
                   measured={"allocated_bytes": 30, "original": {"allocated_bytes": 100}})
    assert measured_pool(both) == 20
    assert measured_pool(both, original=True) == 30


def test_the_axis_is_that_of_the_unplanned_step(plan):
    facts = Facts(plan)
    x = common_steps(facts)(facts.timeline)
    assert len(x) == len(facts.timeline) and x == sorted(x)
    assert [v for v in x if v == int(v)] == list(range(len(plan.graph.ops)))


def test_frontier_pictures(plan, tmp_path):
    graph = plan.graph
    cheap = sorted(set(plan.schedule.recomputed()))
    plans = [plan_of(graph, {op: {} for op in cheap[:count]}, budget_bytes=10**8)
             for count in (0, 8, 16, 24, len(cheap))]
    path = tmp_path / "frontier.svg"
    draw_frontier(plans, str(path))
    assert "knee" in path.read_text()
    with pytest.raises(RenderError, match="no plan to draw"):
        draw_frontier([], str(path))


def test_matplotlib_is_named_when_missing(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(RenderError, match="pip install matplotlib"):
        draw_timeline(plan_of(tiny()), str(tmp_path / "memory.png"))


def test_reports_load_matplotlib_only_when_they_draw():
    code = ("import sys, memonger.report.html, memonger.report.text\n"
            "import memonger.report.charts.timeline\n"
            "sys.exit('matplotlib' in sys.modules or 'mxnet' in sys.modules)")
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
