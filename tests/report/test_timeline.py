"""The timeline and the frontier as pictures."""
from __future__ import annotations

import subprocess
import sys
import xml.etree.ElementTree as xml

import pytest
from footprints import planned_as, unplanned_as
from report.graphs import plan_of, resnet, tiny

from memonger.report.charts.figures import spread
from memonger.report.charts.frontier import draw_frontier, frontier_figure
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
from matplotlib.text import Text


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


def lines_of(figure):
    return {line.get_label().split(":")[0]: line for line in figure.axes[0].lines}


def test_what_is_drawn(plan):
    facts = Facts(plan)
    lines = lines_of(timeline_figure(plan))
    mib = 2.0 ** 20
    assert max(lines["live, unplanned"].get_ydata()) * mib \
        == facts.baseline_timeline.peak_live_bytes
    assert max(lines["live with this plan"].get_ydata()) * mib == facts.timeline.peak_live_bytes
    assert lines["budget, pool"].get_color() == BUDGET
    assert lines["budget, pool"].get_ydata()[0] * mib == pool_budget(plan)
    assert "measured with this plan" not in lines


def texts_of(figure):
    return [text.get_text() for text in figure.axes[0].texts]


def test_the_peak_names_its_tensors(plan):
    texts = texts_of(timeline_figure(plan))
    assert any(text.startswith("peak: 34.5 MiB at ") for text in texts)
    words = next(text for text in texts if text.startswith("alive at the peak")).splitlines()
    alive = Facts(plan).timeline.at_peak
    assert all(piece.tensor in line for piece, line in zip(alive, words[1:1 + TOP]))
    assert words[1 + TOP].endswith("in %d smaller" % (len(alive) - TOP))


def test_labels_lie_in_the_picture_and_apart(plan):
    both = plan.with_measured({"allocated_bytes": plan.total_bytes + 5, "original": {
        "allocated_bytes": plan.baseline_total_bytes}})
    figure = timeline_figure(both)
    axes, renderer = figure.axes[0], figure.canvas.get_renderer()
    figure.draw(renderer)
    pieces = [*axes.texts, axes.title, axes._left_title, axes.xaxis.label, axes.get_legend()]
    boxes = [piece.get_window_extent(renderer) if not hasattr(piece, "arrow_patch")
             else Text.get_window_extent(piece, renderer)
             for piece in pieces if getattr(piece, "get_text", lambda: "key")()]
    whole, inside = figure.bbox, axes.get_window_extent(renderer)
    for number, box in enumerate(boxes):
        assert whole.x0 <= box.x0 and box.x1 <= whole.x1, pieces[number]
        assert whole.y0 <= box.y0 and box.y1 <= whole.y1, pieces[number]
        if "live, unplanned" not in str(pieces[number]):
            assert not inside.overlaps(box), "a label lies over the data"
        assert not any(box.overlaps(other) for other in boxes[:number])


def test_the_title_says_what_is_saved(plan):
    title = timeline_figure(plan).axes[0].get_title(loc="left")
    assert title == "resnet-14: 49.4 MiB instead of 64.0 MiB within a budget of 49.6 MiB, " \
        "22.7 % saved"
    assert timeline_figure(plan_of(tiny())).axes[0].get_title(loc="left") \
        == "tiny: 17.0 MiB, nothing saved"


def test_the_axis_ends_just_above_the_largest_line(plan):
    assert timeline_figure(plan).axes[0].get_ylim()[1] * 2.0 ** 20 \
        == pytest.approx(1.05 * plan.baseline_pool_bytes)


def test_labels_are_moved_apart_and_no_further():
    assert spread([5.0, 1.0], 1.0, 10.0) == [5.0, 1.0]
    assert spread([9.9, 9.8, 9.7], 1.0, 10.0) == pytest.approx([9.9, 8.9, 7.9])
    assert spread([0.1, 0.2], 1.0, 10.0) == pytest.approx([0.0, 1.0])


def test_a_measured_line_is_drawn_where_there_is_one(plan):
    measured = plan.with_measured({"allocated_bytes": plan.total_bytes + 5})
    assert measured_pool(measured) == plan.pool_bytes + 5
    assert measured_pool(measured, original=True) is None
    assert lines_of(timeline_figure(measured))["measured with this plan"].get_color() \
        == MEASURED


def test_the_unplanned_measurement_is_less_what_the_unplanned_network_has_outside(plan):
    measured = {"allocated_bytes": 30, "original": {"allocated_bytes": 100}}
    both = unplanned_as(planned_as(plan, outside_bytes={"workspace": 10}),
                        outside_bytes={"workspace": 70}).changed(measured=measured)
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


def test_labels_of_the_frontier_lie_in_the_picture_and_apart(plan):
    graph = plan.graph
    cheap = sorted(set(plan.schedule.recomputed()))
    figure = frontier_figure([
        plan_of(graph, {op: {} for op in cheap[:count]}, budget_bytes=10**8, bound=0.001 * count)
        for count in (0, 8, 16, len(cheap))])
    renderer = figure.canvas.get_renderer()
    figure.draw(renderer)
    boxes = [text.get_window_extent(renderer) for text in figure.axes[0].texts]
    assert len(boxes) == 4 and figure.axes[0].get_legend() is None
    for number, box in enumerate(boxes):
        assert figure.bbox.x0 <= box.x0 and box.x1 <= figure.bbox.x1
        assert figure.bbox.y0 <= box.y0 and box.y1 <= figure.bbox.y1
        assert not any(box.overlaps(other) for other in boxes[:number])


def test_matplotlib_is_named_when_missing(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(RenderError, match="pip install matplotlib"):
        draw_timeline(plan_of(tiny()), str(tmp_path / "memory.png"))


def test_reports_load_matplotlib_only_when_they_draw():
    code = ("import sys, memonger.report.html, memonger.report.text\n"
            "import memonger.report.charts.timeline\n"
            "sys.exit('matplotlib' in sys.modules or 'mxnet' in sys.modules)")
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
