"""Diagrams: what is drawn, the repeated blocks, and the ways to render."""
from __future__ import annotations

import re
import shutil
import sys
import xml.etree.ElementTree as xml
from dataclasses import replace

import pytest
from report.graphs import cheap_ops, lstm, plan_of, resnet, tiny, unet

from memonger.graph.imported import single_output_graph
from memonger.report.diagram.dot import dot_text, quoted
from memonger.report.diagram.folding import folded
from memonger.report.diagram.model import draw
from memonger.report.diagram.render import diagram, picture, render
from memonger.report.diagram.repeated_blocks import find_repeats, name_pattern
from memonger.util.errors import RenderError

needs_dot = pytest.mark.skipif(shutil.which("dot") is None, reason="Graphviz is not installed")


def forward(graph):
    return [i for i, op in enumerate(graph.ops) if not op.is_backward]


def repeated(graph):
    """Name of the first op, length and number of each repeated block."""
    ops = forward(graph)
    return [(graph.ops[ops[r.first]].name, r.period, r.count) for r in find_repeats(graph, ops)]


# ---------------------------------------------------------------------- repeated blocks
def test_units_of_a_residual_network_repeat():
    assert repeated(resnet((3, 8, 36, 3), 2, 32, 4)) == [
        ("stage1_unit2_bn1", 10, 2), ("stage2_unit2_bn1", 10, 7),
        ("stage3_unit2_bn1", 10, 35), ("stage4_unit2_bn1", 10, 2)]


def test_steps_of_an_lstm_repeat_over_all_layers():
    assert repeated(lstm(40, 1, 2, 8)) == [("l0_t0_i2h", 13, 40)]
    assert repeated(lstm(40, 2, 2, 8)) == [("l0_t0_i2h", 26, 40)]


def test_levels_of_a_unet_repeat():
    assert repeated(unet(4, 1, 32, 4)) == [("down0_conv0", 5, 4), ("up3", 6, 4)]


def test_blocks_with_other_wiring_do_not_repeat():
    kinds, graph = 25, resnet((1,), 2, 32, 4)
    assert repeated(graph) == []
    chain = single_output_graph([str(i) for i in range(kinds)], [1] * kinds, [1] * kinds,
                                [True] * kinds, [(i, i + 1) for i in range(kinds - 1)])
    assert len(repeated(chain)) == 1
    skips = [(k, k + 2) for k in (1, 2, 5, 9, 10, 16, 17, 18, 22)]
    skip = single_output_graph([str(i) for i in range(kinds)], [1] * kinds, [1] * kinds,
                               [True] * kinds,
                               [(i, i + 1) for i in range(kinds - 1)] + skips)
    assert repeated(skip) == []


def test_name_patterns():
    assert name_pattern(["stage3_unit2_bn1", "stage3_unit36_bn1"]) == "stage3_unit*_bn1"
    assert name_pattern(["a1", "a1"]) == "a1"
    assert name_pattern(["down4_conv0", "up3_conv0"]) == "*_conv0"
    assert name_pattern(["l_unit0_conv1", "r_unit0_conv1"]) == "*_unit0_conv1"
    assert name_pattern(["conv", "conv_1_b"]) == "conv*"


# ---------------------------------------------------------------------- what is drawn
@pytest.fixture(scope="module")
def plan():
    return plan_of(resnet((2, 4), 16, 64))


def names(drawing, kind="forward"):
    return [node.lines[0] for node in drawing.nodes if node.key[0] == kind]


def test_expanded_diagrams_show_every_forward_op(plan):
    drawing = draw(plan, collapse=False)
    assert names(drawing) == list(plan.decisions)
    colour = {node.lines[0]: node.group for node in drawing.nodes}
    for op, decision in plan.decisions.items():
        assert (colour[op] == "recompute") == (decision == "recompute")
    assert colour["softmax"] == "pinned"
    assert colour["fc1"] == "free"


def test_expanded_edges_are_those_of_the_graph(plan):
    graph, drawing = plan.graph, draw(plan, collapse=False)
    label = [node.lines[0] for node in drawing.nodes]
    drawn = {(label[e.source], label[e.target]) for e in drawing.edges}
    expected = {(graph.ops[graph.tensors[t].producer].name, graph.ops[op].name)
                for op in forward(graph) for t in graph.ops[op].inputs
                if graph.tensors[t].producer >= 0}
    assert drawn == expected | {("data", "conv0"), ("softmax_label", "softmax")}


def test_collapsed_diagrams_count_their_blocks(plan):
    drawing = draw(plan)
    assert [c.label for c in drawing.clusters if c.kind == "repeat"] == ["3 x stage2_unit*"]
    shown = {op for node in drawing.nodes if node.key[0] == "forward" for op in [node.key[1]]}
    assert len(names(drawing)) == len(plan.decisions) - 20
    assert shown <= set(forward(plan.graph))


def test_blocks_with_mixed_decisions_say_so():
    graph = resnet((1, 4), 4, 32, 8)
    chosen = {op: {} for op in cheap_ops(graph)
              if not graph.ops[op].name.startswith("stage2_unit3")}
    drawing = draw(plan_of(graph, chosen))
    mixed = [node for node in drawing.nodes
             if len(node.groups) > 1 and "recompute" in dict(node.groups)]
    assert len(mixed) >= 6
    assert all(dict(node.groups)["recompute"] == 2 for node in mixed)
    assert all("2 recomputed, 1" in node.lines[-1] for node in mixed)
    text = dot_text(drawing)
    assert "striped" not in text, "words would lie on the borders of colours"
    boxes = [line for line in text.splitlines() if "2 recomputed, 1" in line and "<TABLE" in line]
    assert len(boxes) == len(mixed)
    for line in boxes:
        words, bar = line.split("<BR/>2 recomputed, 1", 1)
        assert "BGCOLOR" not in words and 'BGCOLOR="#fdae6b" WIDTH="84"' in bar


def test_parameters_are_hidden_until_asked_for(plan):
    assert not [n for n in draw(plan).nodes if n.group == "parameter"]
    shown = [n.lines[0] for n in draw(plan, collapse=False, parameters=True).nodes
             if n.group == "parameter"]
    assert "conv0_weight" in shown and "fc1_bias" in shown


def test_inputs_of_all_blocks_are_drawn_once():
    drawing = draw(plan_of(lstm(6, 1, 2, 8)), parameters=True)
    outside = {n.lines[0] for n in drawing.nodes if n.group in ("input", "parameter")}
    assert {"data", "l0_h", "l0_t*_i2h_weight x 6", "l0_t*_h2h_bias x 6"} <= outside
    assert len(draw(plan_of(lstm(60, 1, 2, 8)), parameters=True).nodes) == len(drawing.nodes)


def test_clones_stand_beside_the_backward_ops_that_they_serve(plan):
    drawing = draw(plan, clones=True, collapse=False)
    assert len(names(drawing, "clone")) == len(plan.schedule.recomputed())
    assert len(names(drawing, "backward")) == sum(op.is_backward for op in plan.graph.ops)
    label = [node.lines[0] for node in drawing.nodes]
    edges = {(label[e.source], label[e.target]): e.style for e in drawing.edges}
    assert edges["relu0#1", "relu0_backward"] == ""
    assert edges["conv0", "bn0_backward"] == "held"
    assert edges["conv0", "bn0#1"] == "held"
    collapsed = draw(plan, clones=True)
    assert len(collapsed.nodes) < len(drawing.nodes)


def test_recomputed_runs_between_kept_ops_are_framed(plan):
    drawing = draw(plan, collapse=False)
    frames = [number for number, c in enumerate(drawing.clusters) if c.kind == "segment"]
    inside = [{n.lines[0] for n in drawing.nodes if n.cluster == frame} for frame in frames]
    assert {"bn0", "relu0"} in inside
    assert {"stage1_unit1_plus", "stage1_unit2_bn1", "stage1_unit2_relu1",
            "stage1_unit2_plus", "stage2_unit1_bn1", "stage2_unit1_relu1"} in inside


def test_runs_with_one_decision_are_one_box(plan):
    drawing, small = draw(plan), folded(draw(plan))
    boxes = {node.lines[0]: node for node in small.nodes}
    assert len(boxes) < 0.8 * len(drawing.nodes)
    first = boxes["bn0, relu0"]
    assert first.lines[1].startswith("2 ops  ") and first.group == "recompute"
    assert "bn0: BatchNorm (" in first.tip and "relu0: " in first.tip
    assert first.size_bytes == sum(node.size_bytes for node in drawing.nodes
                                   if node.lines[0] in ("bn0", "relu0"))
    assert "several names" in dot_text(small) and "several names" not in dot_text(drawing)
    shown = {c.label for c in small.clusters if c.kind == "repeat"}
    assert shown == {"3 x stage2_unit*"} and "bn1, relu1" in boxes, "the frame says whose"
    labels = [node.lines[0] for node in small.nodes]
    inner = {(labels[e.source], labels[e.target]) for e in small.edges}
    assert all(a != b for a, b in inner)
    members = small.members()
    assert all(len(members[number]) != 1 for number, c in enumerate(small.clusters)
               if c.kind == "segment")


def test_boxes_of_other_decisions_stay_apart(plan):
    drawing = draw(plan, collapse=False)
    groups = {node.lines[0]: node.group for node in drawing.nodes}
    for node in folded(drawing).nodes:
        whole, _, rest = node.lines[0].rpartition(": ")
        names = ["%s_%s" % (whole, name) if whole else name for name in rest.split(", ")]
        assert {groups[name] for name in names if name != "..."} == {node.group}


def test_thicker_lines_carry_more(plan):
    drawing = draw(plan)
    edges = sorted(drawing.edges, key=lambda e: e.size_bytes)
    assert drawing.edge_width(edges[0]) < drawing.edge_width(edges[-1]) == 4.0


# ---------------------------------------------------------------------- texts
def test_dot_text(golden):
    golden("tiny.dot", dot_text(draw(plan_of(tiny()))))


def test_strange_names_stay_inside_their_quotes():
    graph = tiny()
    ops = tuple(replace(op, name='a"<b>\\&%d' % i) for i, op in enumerate(graph.ops))
    drawing = draw(plan_of(replace(graph, ops=ops, name='<"net">&')))
    assert quoted('a"\\\n') == '"a\\"\\\\\\n"'
    if shutil.which("dot"):
        assert b"<svg" in picture(drawing, "svg")


def test_copies_of_a_block_give_their_own_reasons(plan):
    tip = next(n.tip for n in draw(plan).nodes if n.lines[0] == "stage2_unit*_bn1")
    assert [line.split(":")[0] for line in tip.splitlines()[1:]] == [
        "stage2_unit%d_bn1" % unit for unit in (2, 3, 4)]


# ---------------------------------------------------------------------- rendering
@needs_dot
@pytest.mark.parametrize("ending, start", [("svg", b"<?xml"), ("png", b"\x89PNG"),
                                           ("pdf", b"%PDF"), ("dot", b"digraph")])
def test_files_of_every_kind(plan, tmp_path, ending, start):
    path = tmp_path / ("plan." + ending)
    render(plan, str(path), collapse=False)
    assert path.read_bytes().startswith(start)


@needs_dot
def test_graphviz_draws_every_node(plan):
    drawing = draw(plan)
    root = xml.fromstring(picture(drawing, "svg"))
    drawn = [g for g in root.iter("{http://www.w3.org/2000/svg}g") if g.get("class") == "node"]
    assert len(drawn) == len(drawing.nodes) + 1, "and the legend"


def without_graphviz(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setitem(sys.modules, "pygraphviz", None)


@pytest.mark.parametrize("ending", ["svg", "png", "pdf"])
def test_without_graphviz_pictures_say_what_to_install(plan, tmp_path, monkeypatch, ending):
    without_graphviz(monkeypatch, tmp_path)
    path = tmp_path / ("plan." + ending)
    with pytest.raises(RenderError, match=r"no dot on PATH.*apt install graphviz"):
        render(plan, str(path))
    assert not path.exists()
    render(plan, str(tmp_path / "plan.dot"))
    assert (tmp_path / "plan.dot").read_text() == dot_text(folded(draw(plan)))


def test_a_failing_dot_says_how(plan, tmp_path, monkeypatch):
    without_graphviz(monkeypatch, tmp_path)
    (tmp_path / "dot").write_text("#!/bin/sh\necho out of ink >&2\nexit 1\n")
    (tmp_path / "dot").chmod(0o755)
    with pytest.raises(RenderError, match="cannot draw .svg files here .*out of ink"):
        picture(draw(plan), "svg")


def test_unknown_endings_are_refused(plan, tmp_path):
    with pytest.raises(RenderError, match=r"\.svg, \.png, \.pdf, \.dot"):
        render(plan, str(tmp_path / "plan.gif"))


def test_the_digraph_of_the_plan(plan):
    graphviz = pytest.importorskip("graphviz")
    result = plan.to_graphviz(collapse=False)
    assert isinstance(result, graphviz.Digraph)
    assert re.search(r"n\d+ \[label=\"conv0\\nConvolution", result.source)
    if shutil.which("dot"):
        assert b"<svg" in result.pipe("svg")
        assert "<svg" in result._repr_svg_()


def test_the_package_graphviz_is_named_when_missing(plan, monkeypatch):
    monkeypatch.setitem(sys.modules, "graphviz", None)
    with pytest.raises(RenderError, match="pip install 'graphviz<0.9'"):
        diagram(plan)
