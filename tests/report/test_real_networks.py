"""Reports of real networks through the commands, and MXNet's own drawing of planned symbols."""
from __future__ import annotations

import json
import re
import shutil

import pytest
from report.browser import CHROMIUM, Browser

import memonger
from memonger.cli import main
from memonger.planning.sweeping import sweep_like
from memonger.plans.frontier import frontier
from memonger.report import html
from memonger.report.charts.frontier import frontier_figure, frontier_table
from memonger.report.diagram.model import draw
from memonger.report.diagram.repeated_blocks import find_repeats
from memonger.report.explain import explain
from memonger.report.facts import Facts

mx = pytest.importorskip("mxnet")


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """Folder with a small residual network and a plan of it."""
    from memonger.zoo import nets
    folder = tmp_path_factory.mktemp("real")
    net = nets.build("dmlc_resnet50", 32, image=64)
    net.symbol.save(str(folder / "small-symbol.json"))
    plan = memonger.plan(net.symbol, method="sublinear", shapes=net.shapes)
    plan.save(str(folder / "plan.json"))
    return folder


def test_plot_network_draws_planned_symbols_as_before(small):
    pytest.importorskip("graphviz")
    plan = memonger.load_plan(str(small / "plan.json"))
    assert "recompute" in plan.decisions.values()
    shapes = dict(plan.options["shapes"])
    before = mx.viz.plot_network(mx.sym.load_json(plan.record.original_json), shape=shapes)
    assert mx.viz.plot_network(plan.symbol, shape=shapes).source == before.source


def test_the_report_command_draws_everything(small, capsys):
    names = ["report.html", "graph.dot", "memory.svg"]
    html, graph, memory = (str(small / name) for name in names)
    assert main(["report", str(small / "plan.json"), "-o", html, "--graph", graph, "--clones",
                 "--timeline", memory]) == 0
    assert capsys.readouterr().out == "wrote %s, %s, %s\n" % (html, graph, memory)
    assert "leakyrelu0#1" in (small / "graph.dot").read_text()
    assert (small / "memory.svg").read_text().startswith("<?xml")


def test_every_op_is_explained(small):
    plan = memonger.load_plan(str(small / "plan.json"))
    for name in list(plan.decisions)[::9]:
        assert explain(plan, name).startswith(name + " (")
    again = next(n for n, d in plan.decisions.items() if n.startswith("batchnorm")
                 and d == "recompute")
    assert "updated once all the same" in plan.explain(again)


@pytest.fixture(scope="module")
def with_variants():
    """A plan that is faster than none, with variants in the place of ops."""
    from memonger.zoo import nets
    net = nets.build("resnet50", 32, image=128)
    return memonger.plan(net.symbol, budget="70%", costs="reference", time_limit=0.3,
                         shapes=net.shapes)


def test_blocks_begin_where_residual_units_begin(with_variants):
    graph = with_variants.graph
    ops = [i for i, op in enumerate(graph.ops) if not op.is_backward]
    assert [(graph.ops[ops[repeat.first]].name, repeat.count)
            for repeat in find_repeats(graph, ops)] == [
        ("resnet50_v1_stage%d_conv4_fwd" % stage, count)
        for stage, count in ((1, 2), (2, 3), (3, 5), (4, 2))]


def test_ops_inside_variants_say_whose(with_variants):
    facts = Facts(with_variants)
    absorbed = [fact for fact in facts.ops if fact.group == "absorbed"]
    assert absorbed and all(fact.decision == "keep" and not facts.runs[fact.op]
                            for fact in absorbed)
    hosts = {name for name, fact in facts.by_name.items() if fact.group.startswith("variant")}
    assert {fact.why.split()[-1] for fact in absorbed} <= hosts
    assert "part of the variant of" in html.page(with_variants)
    assert "no run of its own: its work is part of" in explain(with_variants, absorbed[0].name)


def test_frontiers_below_no_plan_are_drawn_at_the_plans_own_prices(with_variants, tmp_path):
    plans = sweep_like(with_variants, 0.5, budgets=("90%", "80%"))
    assert plans[-1] is with_variants and with_variants.overhead < 0
    assert {(plan.costs, plan.graph.time_s) for plan in plans} == {
        (with_variants.costs, with_variants.graph.time_s)}
    best = frontier(plans)
    assert len(best) > 1 and any(plan.overhead < 0 for plan in best)
    assert max(map(len, frontier_table(plans).splitlines())) <= 100
    figure = frontier_figure(plans)
    low, high = figure.axes[0].get_ylim()
    assert all(low < 100 * plan.overhead < high for plan in plans)


@pytest.mark.slow
def test_sweeps_are_drawn(small, capsys):
    plot, html, plan = (str(small / name) for name in ("frontier.svg", "sweep.html", "auto.json"))
    arguments = ["plan", str(small / "small-symbol.json"), "--shape", "data=32,3,64,64",
                 "--time-limit", "2"]
    assert main([*arguments, "--sweep", "--plot", plot]) == 0
    assert "of unplanned" in capsys.readouterr().out
    assert main([*arguments, "--budget", "80%", "-o", plan]) == 0
    assert main(["report", plan, "--sweep", "-o", html]) == 0
    data = re.search(r'id="data">(.*?)</script>', (small / "sweep.html").read_text(), re.S)
    assert len(json.loads(data.group(1))["frontier"]["points"]) >= 2


def test_plot_without_sweep_is_a_usage_error(small):
    assert main(["plan", str(small / "small-symbol.json"), "--plot", "x.svg"]) == 2
    assert main(["report", str(small / "plan.json"), "--sweep", "--graph", "x.svg"]) == 2


#: Network, options of its builder, and the most nodes that its collapsed diagram may have.
NETWORKS = [("dmlc_resnet50", {}, 80), ("resnet152", {}, 110), ("densenet121", {}, 80),
            ("dmlc_lstm", {"steps": 200, "layers": 1}, 30), ("unet", {}, 35)]


@pytest.mark.slow
@pytest.mark.parametrize("name, options, nodes", NETWORKS)
def test_networks_of_every_kind_are_readable(name, options, nodes, tmp_path):
    from memonger.zoo import nets
    net = nets.build(name, **options)
    plan = memonger.plan(net.symbol, budget="80%", shapes=net.shapes, time_limit=10)
    path = str(tmp_path / "plan.json")
    plan.save(path)
    loaded = memonger.load_plan(path)
    assert loaded == plan
    drawing = draw(loaded)
    assert len(drawing.nodes) <= nodes
    assert any(cluster.kind == "repeat" for cluster in drawing.clusters)
    forward = [op for op in plan.graph.ops if not op.is_backward]
    expanded = draw(loaded, collapse=False)
    # An op whose work is part of another op's variant does not run, and is not drawn.
    run = {step.op for step in plan.schedule.steps if not plan.graph.ops[step.op].is_backward}
    assert sum(node.key[0] == "forward" for node in expanded.nodes) == len(run)
    page = tmp_path / "plan.html"
    endings = ["svg", "png", "pdf", "dot"] if shutil.which("dot") else ["dot"]
    for ending in endings:
        assert main(["report", path, "--graph", str(tmp_path / ("graph." + ending))]) == 0
    assert main(["report", path, "-o", str(page), "--timeline", str(tmp_path / "m.png")]) == 0
    assert main(["explain", path, forward[len(forward) // 2].name]) == 0
    assert page.stat().st_size < 1_000_000
    if CHROMIUM is not None:
        with Browser(str(tmp_path / "profile")) as browser:
            browser.open(str(page))
            assert browser.run("document.querySelectorAll('#ops tbody tr').length") > 50
            browser.click("#ops th:nth-child(4)")
            assert browser.errors == []
