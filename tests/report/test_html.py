"""The HTML report: its content, its size, and its behaviour in a browser."""
from __future__ import annotations

import json
import os
import re
import shutil
import sys
from dataclasses import replace
from html.parser import HTMLParser

import pytest
from footprints import pair, plan_with
from report.browser import CHROMIUM, Browser
from report.graphs import lstm, plan_of, resnet

from memonger.graph.imported import single_output_graph
from memonger.graph.schedule import expand
from memonger.plans.plan import UNIT_TIMES, Status
from memonger.report import html, page_data
from memonger.report.charts.timeline import draw_timeline
from memonger.report.diagram.dot import dot_text
from memonger.report.diagram.model import LEGEND, draw
from memonger.report.facts import Facts

needs_dot = pytest.mark.skipif(shutil.which("dot") is None, reason="Graphviz is not installed")


@pytest.fixture(scope="module")
def plan():
    return plan_of(resnet((2, 3), 16, 64), budget_bytes=52 * 10**6, bound=0.05,
                   minimum_total_bytes=40 * 10**6, notes=("a <note> & more",),
                   options={"budget": "52MB", "shapes": {"data": (16, 3, 64, 64)},
                            "keep": ("fc*",), "method": "auto"})


@pytest.fixture(scope="module")
def sweep(plan):
    graph = plan.graph
    cheap = sorted(set(plan.schedule.recomputed()))
    return [plan_of(graph, {op: {} for op in cheap[:count]}, budget_bytes=10**8)
            for count in (0, 8, 16, 24, len(cheap))]


def data_of(text: str):
    return json.loads(re.search(r'id="data">(.*?)</script>', text, re.S).group(1))


class Balance(HTMLParser):
    """Checks that tags close in order; collects ids."""

    VOID = {"meta", "input", "br", "link"}

    def __init__(self):
        super().__init__()
        self.open, self.ids, self.links = [], [], []

    def handle_starttag(self, tag, attributes):
        values = dict(attributes)
        self.ids += [values["id"]] if "id" in values else []
        self.links += [values[k] for k in ("src", "href") if values.get(k)]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        pass

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_the_page_is_one_sound_file(plan, tmp_path):
    path = tmp_path / "plan.html"
    plan.report(str(path))
    text = path.read_text(encoding="utf-8")
    assert text == html.page(plan)
    parser = Balance()
    parser.feed(text)
    assert parser.open == []
    assert {"summary", "timeline", "network", "table", "frontier", "about"} <= set(parser.ids)
    assert all(link.startswith("#") for link in parser.links)
    assert not re.search(r"<!--[A-Z]+-->", text)
    assert "a &lt;note&gt; &amp; more" in text


def test_ops_with_paths_are_told_by_module(plan):
    assert data_of(html.page(plan))["modules"] == []  # names of MXNet's ops have none
    graph = resnet((3, 3), 4, 32, 8)
    ops = tuple(replace(op, name="net.stage%d/%s" % (number * 3 // len(graph.ops), op.name)
                        if op.forward_op < 0 else op.name) for number, op in enumerate(graph.ops))
    data = data_of(html.page(plan_of(replace(graph, ops=ops))))
    labels = [name for name, _, _ in data["modules"]]
    assert {"net.stage0", "net.stage1"} <= set(labels) and "net" not in labels
    assert len({colour for _, colour, _ in data["modules"]}) == len(labels)
    for step, live in enumerate(data["planned"]["live"]):
        assert sum(part[step] for _, _, part in data["modules"]) == pytest.approx(live, abs=9)


def test_the_data_agree_with_the_plan(plan, sweep):
    data = data_of(html.page(plan, sweep))
    facts = Facts(plan)
    assert data["ops"]["name"] == list(plan.decisions)
    decisions = data["ops"]["decision"]
    assert [decisions["of"][i] for i in decisions["at"]] == list(plan.decisions.values())
    assert max(data["planned"]["live"]) == facts.timeline.peak_live_bytes // 1024
    assert len(data["planned"]["x"]) == len(plan.schedule.steps)
    assert data["pool"]["unplanned"] == round(facts.baseline_timeline.pool_bytes / 1024, 2)
    assert data["pool"]["budget"] == round(
        (plan.budget_bytes - sum(plan.fixed_bytes.values())) / 1024, 2)
    totals = [point[0] for point in data["frontier"]["points"]]
    assert totals == sorted(totals) and len(totals) >= 3
    assert sum(point[3] for point in data["frontier"]["points"]) == 1


def test_planned_and_unplanned_steps_share_an_axis(plan):
    line = data_of(html.page(plan))["planned"]
    assert line["x"] == sorted(line["x"])
    base = [op.name for op in plan.graph.ops]
    for x, name in zip(line["x"], line["names"]):
        if "#" not in name:
            assert base[int(x)] == name


def test_the_command_line_is_spelled_out(plan):
    assert html.command_line(plan) == (
        "memonger plan resnet-17-symbol.json --shape data=16,3,64,64 --budget 52MB "
        "--keep 'fc*' -o plan.json")
    options = {"optimizer": "sgd", "optimizer_params": {"momentum": 0.9}, "costs": "v100",
               "max_clones": 1}
    assert html.command_line(plan.changed(options=options)) == (
        "memonger plan %s-symbol.json --costs v100 --max-clones 1 --optimizer sgd,momentum=0.9 "
        "-o plan.json" % plan.graph.name)
    ready = plan.changed(options={"network": "vgg16", "share": 0.75, "shapes": {}})
    assert html.command_line(ready) == 'memonger.zoo.load("vgg16", "75%")'
    page = re.sub("</?span>", "", html.page(plan))
    assert html.escape(html.command_line(plan)) in page
    assert {"memonger", "Python", "numpy"} <= set(dict(html.versions(plan.graph)))


def test_data_cannot_end_the_script(plan):
    ops = list(plan.graph.ops)
    ops[0] = replace(ops[0], name="</script><!--DATA--><b>")
    graph = replace(plan.graph, ops=tuple(ops), name="</title>")
    text = html.page(replace(plan, graph=graph))
    assert data_of(text)["ops"]["name"][0] == "</script><!--DATA--><b>"
    assert text.count("</script>") == 2


def test_large_networks_stay_under_a_megabyte(tmp_path, monkeypatch):
    # "live" needs no assignment of buffers, which is slow where the library is not built.
    plan = plan_of(lstm(300, 1, 4, 16), {}, storage="live")
    assert len(plan.graph.ops) > 8000
    path = tmp_path / "plan.html"
    plan.report(str(path))
    assert path.stat().st_size < 1_000_000
    data = data_of(path.read_text())
    assert len(data["ops"]["name"]) <= page_data.MAX_OPS + 20
    assert sum(data["ops"]["makes"]) >= 0.9 * sum(
        f.size_bytes for f in Facts(plan).ops) / 1024 - len(plan.decisions)
    assert max(data["planned"]["live"]) == plan.timeline().peak_live_bytes // 1024
    assert data["planned"]["peak"] >= 0


@needs_dot
def test_the_legend_stands_above_the_diagram_where_it_wraps(plan):
    text = html.page(plan)
    legend, svg = text[text.index('id="colours"'):].split('<div id="diagram">')
    drawing = draw(plan)
    assert drawing.legend and all(LEGEND[group][1] in legend for group in drawing.legend)
    assert "a line is as thick as" in legend
    picture = svg[:svg.index("</svg>")]
    assert "as thick as" not in picture and drawing.title not in picture


def test_a_page_without_graphviz_says_what_to_install(plan, tmp_path, monkeypatch):
    data = data_of(html.page(plan))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setitem(sys.modules, "pygraphviz", None)
    text = html.page(plan)
    assert re.search('<p id="diagram">No diagram: .*apt install graphviz', text)
    assert data_of(text) == data


@needs_dot
def test_a_huge_diagram_stays_out(plan, monkeypatch):
    monkeypatch.setattr(html, "MAX_DIAGRAM_BYTES", 10)
    assert "memonger report plan.json --graph" in html.page(plan)


@pytest.mark.parametrize("graph, shown", [
    (single_output_graph(["a", "b"], [5, 6], [1, 2], [True, False], [(0, 1)], "toy"),
     [("a", "node  5")]), (single_output_graph([], [], [], [], []), [])], ids=["toy", "empty"])
def test_plans_of_other_planners_graphs_and_of_nothing_have_every_form(graph, shown, tmp_path):
    plan = plan_with(pair(11, 11), graph, expand(graph, {}), status=Status.OPTIMAL, method="milp",
                     storage="live")
    assert data_of(html.page(plan))["plain"] is True and str(plan)
    drawing = draw(plan)
    assert [node.lines for node in drawing.nodes] == shown
    assert dot_text(drawing).startswith("digraph plan {")
    pytest.importorskip("matplotlib")
    draw_timeline(plan, str(tmp_path / "memory.svg"))


def test_times_of_one_unit_an_op_are_no_seconds_on_the_page(plan):
    data = data_of(html.page(plan.changed(costs=UNIT_TIMES)))
    assert data["plain_times"] is True and data["plain"] is False
    assert data_of(html.page(plan))["plain_times"] is False


def test_cards_say_what_was_measured_beside_what_was_predicted(plan):
    assert "measured:" not in html.page(plan)
    alone = html.page(plan.with_measured({"allocated_bytes": 30 << 20, "step_s": 0.1}))
    assert '<span class="measured">measured: 30.0\u00a0MiB</span>' in alone
    assert '<span class="measured">measured: 100\u00a0ms</span>' in alone
    both = html.page(plan.with_measured({
        "allocated_bytes": 30 << 20, "step_s": 0.1, "overhead": 0.25,
        "original": {"allocated_bytes": 60 << 20, "step_s": 0.08}}))
    shown = both.replace("\u00a0", " ")  # no line ends between a number and its unit
    assert "measured: 60.0 MiB → 30.0 MiB<" in shown
    assert "measured: +25.0 %, 80.0 ms → 100 ms<" in shown
    assert "less in total, predicted<" in both


def test_what_a_trial_measured_is_not_called_predicted(plan):
    predicted = plan.planned.pool_bytes - (8 << 20)
    tried = plan.changed(options={**plan.options, "mode": "inductor"}, planned=replace(
        plan.planned, predicted_pool_bytes=predicted)).with_measured(
            {"allocated_bytes": 30 << 20, "step_s": 0.1})
    shown, before = html.page(tried).replace("\u00a0", " "), html.page(plan)
    assert "less in total; with this plan as measured in a trial<" in shown
    assert "less in total, predicted" not in shown
    assert "<h3>with this plan, predicted: " in shown and "<h3>with this plan: " in before
    pool = data_of(shown)["pool"]
    assert pool["tried"] == round(plan.pool_bytes / 1024, 2)
    assert data_of(shown)["with_plan"] == "with this plan, predicted"
    assert data_of(before)["pool"]["tried"] is None
    assert "tried: with this plan the step took " in str(tried)


def test_notebooks_get_a_table_and_a_picture(plan):
    shown = plan._repr_html_()
    assert shown.count("<table") == 1 and shown.count("<svg") == 1
    assert "52MB" in shown and len(shown) < 20_000
    parser = Balance()
    parser.feed(shown)
    assert parser.open == []


# ---------------------------------------------------------------------- in a browser
@pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed")
def test_a_narrow_page_scrolls_downwards_only(plan, sweep, tmp_path):
    path = tmp_path / "plan.html"
    html.write_html(plan, str(path), sweep)
    with Browser(str(tmp_path / "profile"), 420) as browser:
        browser.call("Emulation.setDeviceMetricsOverride", width=420, height=800,
                     deviceScaleFactor=1, mobile=False)
        for scheme, page in (("light", "rgb(255, 255, 255)"), ("dark", "rgb(24, 26, 27)")):
            browser.call("Emulation.setEmulatedMedia",
                         features=[{"name": "prefers-color-scheme", "value": scheme}])
            browser.open(os.path.abspath(str(path)))
            assert browser.run("getComputedStyle(document.body).backgroundColor") == page
            _check_narrow_page(browser)
        assert browser.errors == []


def _check_narrow_page(browser):
    assert browser.run("document.documentElement.scrollWidth") == 420
    assert browser.run("[...document.querySelectorAll('nav a')].every("
                       "a => a.getBoundingClientRect().right <= 420)")
    assert browser.run("[...document.querySelectorAll('table.summary td + td')].every("
                       "cell => cell.getBoundingClientRect().height < 40)")
    assert browser.run("(box => box.scrollWidth <= box.clientWidth)("
                       "document.querySelector('.scroll'))"), "the table of ops is cut"
    if shutil.which("dot"):
        _check_first_node(browser)
    left, top, width, height = browser.place("#memory")
    before = browser.run("window.scrollY")
    browser.mouse("mouseWheel", left + width / 2, top + height / 2, deltaX=0, deltaY=120)
    browser.run("new Promise(resolve => setTimeout(resolve, 300))")
    assert "0 to" in browser.run("document.getElementById('range').textContent")
    assert browser.run("window.scrollY") >= before


def _check_first_node(browser):
    middle, left, right = browser.run(
        "(input => { const a = input.getBoundingClientRect(),"
        " b = document.getElementById('diagram').getBoundingClientRect();"
        " return [a.left + a.width / 2, b.left, b.right]; })("
        "document.querySelector('#diagram ellipse') || document.querySelector('#diagram g'))")
    assert left < middle < right  # the network's first node is in sight


@pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed")
@pytest.mark.parametrize("count, words", [
    (0, "Only this plan is known"), (2, "Too few plans for a curve"), (5, "no other plan beats")])
def test_a_curve_needs_three_points(plan, sweep, tmp_path, count, words):
    path = tmp_path / "plan.html"
    html.write_html(plan, str(path), sweep[:count])
    with Browser(str(tmp_path / "profile")) as browser:
        browser.open(os.path.abspath(str(path)))
        assert words in browser.run("document.getElementById('curve-words').textContent")
        assert browser.run("document.getElementById('curve').getClientRects().length") \
            == (count > 2)
        assert browser.errors == []


@pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed")
def test_the_page_works_in_a_browser(plan, sweep, tmp_path):
    measured = plan.with_measured({"allocated_bytes": plan.total_bytes + 10**6, "step_s": 0.1})
    path = tmp_path / "plan.html"
    html.write_html(measured, str(path), sweep)
    with Browser(str(tmp_path / "profile")) as browser:
        browser.open(os.path.abspath(str(path)))
        _check_table(browser, plan)
        _check_timeline(browser)
        if shutil.which("dot"):
            _check_diagram(browser)
        assert "that no other plan beats" in browser.run(
            "document.getElementById('curve-words').textContent")
        assert browser.run("performance.getEntriesByType('resource').length") == 0
        assert browser.errors == []


def _rows(browser):
    return browser.run("[...document.querySelectorAll('#ops tbody tr')]"
                       ".map(r => r.firstChild.textContent)")


def _check_table(browser, plan):
    assert browser.run("document.querySelector('h1').textContent") == plan.graph.name
    assert _rows(browser) == list(plan.decisions)
    browser.click("#ops th:nth-child(4)")
    sizes = {fact.name: fact.size_bytes for fact in Facts(plan).ops}
    shown = [sizes[name] for name in _rows(browser)]
    assert shown == sorted(shown, reverse=True)
    browser.click("#ops th:nth-child(1)")
    assert _rows(browser) == sorted(plan.decisions)
    browser.run("document.getElementById('filter').value = 'stage2_unit1_bn';"
                "document.getElementById('filter').dispatchEvent(new Event('input'))")
    assert _rows(browser) == sorted(f.name for f in Facts(plan).ops
                                    if "stage2_unit1_bn" in f.name + f.why)
    browser.run("document.getElementById('filter').value = '';"
                "document.getElementById('decision').value = 'recompute';"
                "document.getElementById('decision').dispatchEvent(new Event('change'))")
    assert len(_rows(browser)) == len(set(plan.schedule.recomputed()))


def _near(picture, colour):
    """How many pixels have this colour, or nearly."""
    return int((abs(picture - list(colour)).max(axis=2) < 12).sum())


def _check_timeline(browser):
    whole = browser.run("document.getElementById('range').textContent")
    assert whole == "steps 0 to %d" % browser.run("data.unplanned.x.length"), \
        "the last step is drawn, too"
    left, top, width, height = browser.place("#memory")
    picture = browser.screenshot()
    assert _near(picture, (0x9e, 0xca, 0xe1)) > 5000, "activations are drawn"
    assert _near(picture, (0xfd, 0xae, 0x6b)) > 500, "recomputed values are drawn"
    assert _near(picture, (0x23, 0x8b, 0x45)) > 200, "the budget line is drawn"
    assert _near(picture, (0xe7, 0x29, 0x8a)) > 200, "the measured line is drawn"
    browser.mouse("mouseMoved", left + width * 0.5, top + height * 0.5)
    tip = browser.run("document.getElementById('tip').textContent")
    assert "unplanned:" in tip and "with this plan:" in tip and "MiB" in tip
    browser.drag(left + width * 0.4, top + 50, left + width * 0.6, top + 60)
    zoomed = browser.run("document.getElementById('range').textContent")
    assert zoomed != whole
    browser.click("#reset")
    assert browser.run("document.getElementById('range').textContent") == whole
    browser.click("#show-planned")
    browser.place("#memory")
    assert _near(browser.screenshot(), (0xfd, 0xae, 0x6b)) < 500
    browser.click("#show-planned")


def _check_diagram(browser):
    before = browser.place("#diagram svg")
    browser.click("#larger")
    after = browser.place("#diagram svg")
    assert after[2] == pytest.approx(before[2] * 1.25, rel=0.01)
    assert browser.run("document.querySelector('#diagram svg').textContent").count("conv0") >= 1
