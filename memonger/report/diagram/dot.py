"""Diagrams as DOT text, for Graphviz."""
from __future__ import annotations

import textwrap
from typing import Dict, List, Mapping, Sequence, Set

from .model import LEGEND, Drawing, Edge, Node

_FONT = "Helvetica,Arial,sans-serif"
#: Width of the bar of colours in a box that stands for copies with different decisions.
_BAR_POINTS = 126


def dot_text(drawing: Drawing) -> str:
    """The drawing in the DOT language."""
    return "digraph plan {\n" + "".join("  %s\n" % line for line in dot_lines(drawing)) + "}\n"


def dot_lines(drawing: Drawing) -> List[str]:
    """The statements of the graph, without its braces."""
    lines = [
        # Packed, the legend stands beside the network: it has no part in its ranks.
        'graph [rankdir=TB, ranksep=0.28, nodesep=0.18, fontname="%s", fontsize=13, '
        'labelloc=t%s];' % (_FONT, ', pack=8, packmode="array_t", label=<<B>%s</B>>'
                            % escaped(drawing.title) if drawing.title else ""),
        'node [shape=box, style="filled,rounded", fontname="%s", fontsize=10, margin="0.10,0.08",'
        ' height=0.3, color="#555555", penwidth=0.7];' % _FONT,
        'edge [color="#666666", arrowsize=0.6];']
    if drawing.title:
        lines.append("legend [shape=plaintext, style=solid, margin=0, label=%s];"
                     % _legend(drawing))
    lines += _cluster_lines(drawing, drawing.members(), -1, "")
    lines += [_edge_line(drawing, edge) for edge in drawing.edges]
    return lines


def _cluster_lines(drawing: Drawing, members: Mapping[int, Set[int]], cluster: int,
                   indent: str) -> List[str]:
    """Nodes of a cluster and, in frames of their own, those of the clusters inside it."""
    inside = range(len(drawing.nodes)) if cluster < 0 else sorted(members[cluster])
    lines = [indent + _node_line(number, drawing.nodes[number]) for number in inside
             if drawing.nodes[number].cluster == cluster]
    for number, inner in enumerate(drawing.clusters):
        if inner.parent != cluster or not members[number]:
            continue
        style = 'style="rounded,dashed", color="#d9772b", fontcolor="#a3500e"' \
            if inner.kind == "segment" else \
            'style="rounded,filled", color="#888888", fillcolor="#f4f4f4"'
        lines.append("%ssubgraph cluster_%d {" % (indent, number))
        lines.append("%s  graph [label=%s, labeljust=l, fontsize=%d, %s];" % (
            indent, quoted(inner.label), 9 if inner.kind == "segment" else 11, style))
        lines += _cluster_lines(drawing, members, number, indent + "  ")
        lines.append(indent + "}")
    return lines


def _node_line(number: int, node: Node) -> str:
    mixed = len(node.groups) > 1
    attributes: Dict[str, str] = {
        "label": _mixed_label(node) if mixed else quoted("\n".join(node.lines)),
        "tooltip": quoted(node.tip),
        "fillcolor": quoted("#ffffff" if mixed else LEGEND[node.group][0])}
    if node.group in ("input", "parameter"):
        attributes["shape"] = "ellipse"
    if node.group == "clone":
        attributes["style"] = quoted("filled,rounded,dashed")
    if node.group == "pinned":
        attributes["penwidth"] = "1.6"
    return "n%d [%s];" % (number, ", ".join("%s=%s" % item for item in attributes.items()))


def _mixed_label(node: Node) -> str:
    """Text above a bar of the groups' colours: no word lies on two colours."""
    total = sum(count for _, count in node.groups)
    widths = [max(2, round(_BAR_POINTS * count / total)) for _, count in node.groups]
    bar = "".join('<TD BGCOLOR="%s" WIDTH="%d" HEIGHT="7" FIXEDSIZE="TRUE"></TD>' % (
        LEGEND[group][0], width) for (group, _), width in zip(node.groups, widths))
    return ('<<TABLE BORDER="0" CELLBORDER="0" CELLSPACING="0" CELLPADDING="0"><TR><TD>%s</TD></TR>'
            '<TR><TD CELLPADDING="3"><TABLE BORDER="1" CELLBORDER="0" CELLSPACING="0" '
            'CELLPADDING="0" COLOR="#555555" FIXEDSIZE="TRUE" WIDTH="%d" HEIGHT="9"><TR>%s</TR>'
            '</TABLE></TD></TR></TABLE>>' % (
                "<BR/>".join(map(escaped, node.lines)), sum(widths) + 2, bar))


def _edge_line(drawing: Drawing, edge: Edge) -> str:
    attributes = ["penwidth=%.2f" % drawing.edge_width(edge),
                  "tooltip=%s" % quoted(drawing.units.size(edge.size_bytes))]
    if edge.style == "carry":
        attributes.append('style=dashed, constraint=false, color="#9e9e9e"')
    elif edge.style == "held":
        attributes.append('color="#3182bd", constraint=false')
    return "n%d -> n%d [%s];" % (edge.source, edge.target, ", ".join(attributes))


def _legend(drawing: Drawing) -> str:
    """The meaning of colours, lines and frames, as an HTML-like label."""
    cells = "".join('<TR><TD BGCOLOR="%s" BORDER="1" COLOR="#555555">%s</TD></TR>' % LEGEND[group]
                    for group in drawing.legend)
    words = "<BR/>".join("<BR/>".join(map(escaped, textwrap.wrap(remark, 36)))
                         for remark in remarks(drawing, drawing.edges))
    return ('<<FONT POINT-SIZE="10"><TABLE BORDER="0" CELLBORDER="0" CELLSPACING="3" '
            'CELLPADDING="4">%s<TR><TD BALIGN="LEFT">%s</TD></TR></TABLE></FONT>>' % (cells, words))


def remarks(drawing: Drawing, edges: Sequence[Edge]) -> List[str]:
    """What lines and frames mean, a sentence each."""
    words = "a line is as thick as its tensor is large"
    if drawing.largest_edge_bytes:
        words += " (up to %s)" % drawing.units.size(drawing.largest_edge_bytes)
    kinds = {cluster.kind for cluster in drawing.clusters}
    notes = [words]
    if "repeat" in kinds:
        notes.append("a grey frame: a block that repeats, drawn once" + (
            "; a dashed line leads to its next copy" if any(e.style == "carry" for e in edges)
            else ""))
    if any(len(node.groups) > 1 for node in drawing.nodes):
        notes.append("a box with a bar of colours: copies of this op differ, by these shares")
    if any(" ops  " in line for node in drawing.nodes for line in node.lines[1:2]):
        notes.append("a box with several names: ops in a row with one decision")
    if "segment" in kinds:
        notes.append("a dashed frame: ops recomputed together between kept ones")
    if "clone" in drawing.legend:
        notes.append("op#1 is the first repeated run of op, op#2 the second; blue line: held for "
                     "backward")
    return notes


def escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def quoted(text: str) -> str:
    r"""A DOT string; newlines become ``\n``."""
    return '"%s"' % text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
