"""Diagrams as SVG without Graphviz: plainer than Graphviz', complete all the same."""
from __future__ import annotations

from typing import Dict, List, Set, Tuple

from .dot import escaped, remarks
from .layers import Layout, layered
from .model import LEGEND, Drawing, Node

_LINE, _PAD, _LAYER_GAP, _MARGIN, _HEAD = 13.0, 5.0, 30.0, 24.0, 64.0
#: A frame keeps this distance from its boxes, and its title this much room above them.
_FRAME, _TITLE = 12.0, 18.0
_CHARACTER = 5.6


def svg_text(drawing: Drawing) -> str:
    """The drawing as an SVG document."""
    widths = [_width(node) for node in drawing.nodes]
    drawn = [edge for edge in drawing.edges if edge.style != "carry" or edge.source < edge.target]
    inside = drawing.members()
    frames = [-1] * len(drawing.nodes)
    for number, cluster in enumerate(drawing.clusters):
        for node in inside[number] if cluster.kind == "repeat" else ():
            frames[node] = number
    layout = layered(widths, [(edge.source, edge.target) for edge in drawn],
                     [i for i, node in enumerate(drawing.nodes) if node.group == "clone"], frames)
    notes = remarks(drawing, drawn)
    head = _HEAD + _LINE * len(notes) if drawing.title else _FRAME
    tops, bottom = _rows(drawing, layout, frames, head)
    wide = max([x + (widths[i] / 2 if i < len(widths) else 2)
                for i, x in enumerate(layout.x)] or [0.0])
    legend, legend_width = _legend(drawing, notes) if drawing.title else ([], 0.0)
    width = max(wide + 2 * _FRAME, legend_width,
                _CHARACTER * 1.3 * len(drawing.title)) + 2 * _MARGIN
    shift = (width - wide) / 2

    def box(node: int) -> Tuple[float, float, float, float]:
        high = _height(drawing.nodes[node])
        return (layout.x[node] - widths[node] / 2 + shift, tops[layout.layer[node]],
                widths[node], high)

    parts = ['<svg xmlns="http://www.w3.org/2000/svg" width="%.0f" height="%.0f" '
             'viewBox="0 0 %.0f %.0f" font-family="Helvetica,Arial,sans-serif" font-size="10">'
             % (width, bottom, width, bottom),
             '<rect width="100%" height="100%" fill="white"/>',
             '<text x="%.0f" y="22" font-size="14" font-weight="bold">%s</text>'
             % (_MARGIN, escaped(drawing.title))]
    parts += legend
    parts.append('<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" '
                 'markerHeight="7" markerUnits="userSpaceOnUse" orient="auto">'
                 '<path d="M0,0 L8,4 L0,8 z" fill="#666"/></marker></defs>')
    boxes = [box(i) for i in range(len(drawing.nodes))]
    rectangles, titles = _frames(drawing, boxes, inside)
    parts += rectangles
    for edge, path in zip(drawn, layout.paths):
        points = [(layout.x[p] + shift, tops[layout.layer[p]] + 12.0) for p in path]
        start, end = boxes[edge.source], boxes[edge.target]
        points[0] = (points[0][0], start[1] + start[3])
        points[-1] = (points[-1][0], end[1] - 1)
        parts.append('<path d="%s" fill="none" stroke="%s" stroke-width="%.2f"%s '
                     'marker-end="url(#tip)"><title>%s</title></path>' % (
                         _curve(points), "#3182bd" if edge.style == "held" else "#777",
                         drawing.edge_width(edge),
                         ' stroke-dasharray="5,4"' if edge.style == "carry" else "",
                         drawing.units.size(edge.size_bytes)))
    parts += [_box(node, place) for node, place in zip(drawing.nodes, boxes)]
    return "\n".join(parts + titles + ["</svg>", ""])


def _width(node: Node) -> float:
    return max(40.0, _CHARACTER * max(map(len, node.lines)) + 2 * _PAD + 4)


def _height(node: Node) -> float:
    return _LINE * len(node.lines) + 2 * _PAD


def _rows(drawing: Drawing, layout: Layout, frames: List[int],
          head: float) -> Tuple[List[float], float]:
    """Top of each layer, and the height of the picture."""
    heights = [0.0] * (max(layout.layer, default=-1) + 1)
    first: Dict[int, int] = {}
    for node, level, frame in zip(drawing.nodes, layout.layer, frames):
        heights[level] = max(heights[level], _height(node))
        if frame >= 0:
            first[frame] = min(first.get(frame, level), level)
    tops, y = [], head
    for level, height in enumerate(heights):
        y += _FRAME + _TITLE if level in first.values() else 0
        tops.append(y)
        y += height + _LAYER_GAP
    return tops, y


def _curve(points: List[Tuple[float, float]]) -> str:
    """A smooth line that leaves and arrives vertically."""
    words = ["M%.1f,%.1f" % points[0]]
    for (x0, y0), (x1, y1) in zip(points, points[1:]):
        middle = (y0 + y1) / 2
        words.append("C%.1f,%.1f %.1f,%.1f %.1f,%.1f" % (x0, middle, x1, middle, x1, y1))
    return " ".join(words)


def _box(node: Node, place: Tuple[float, float, float, float]) -> str:
    x, y, width, height = place
    total = sum(count for _, count in node.groups)
    radius = height / 2 if node.group in ("input", "parameter") else 5
    words = ["<g><title>%s</title>" % escaped(node.tip)]
    if len(node.groups) == 1:
        words.append('<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" rx="%.1f" fill="%s"/>'
                     % (x, y, width, height, radius, LEGEND[node.group][0]))
    else:
        left = x
        for group, count in node.groups:
            part = width * count / total
            words.append('<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" fill="%s"/>'
                         % (left, y, part, height, LEGEND[group][0]))
            left += part
    words.append('<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" rx="%.1f" fill="none" '
                 'stroke="#555" stroke-width="%s"%s/>' % (
                     x, y, width, height, radius, "1.6" if node.group == "pinned" else "0.7",
                     ' stroke-dasharray="4,3"' if node.group == "clone" else ""))
    for number, line in enumerate(node.lines):
        words.append('<text x="%.1f" y="%.1f" text-anchor="middle">%s</text>' % (
            x + width / 2, y + _PAD + _LINE * (number + 0.78), escaped(line)))
    return "".join(words) + "</g>"


def _frames(drawing: Drawing, boxes: List[Tuple[float, float, float, float]],
            inside: Dict[int, Set[int]]) -> Tuple[List[str], List[str]]:
    """Frames of clusters, and the titles of repeated blocks, which stand above all lines.

    Recomputed ops that stand among others have no frame.
    """
    frames, titles = [], []
    for number, cluster in enumerate(drawing.clusters):
        nodes, repeat = inside[number], cluster.kind == "repeat"
        if not nodes:
            continue
        grow = _FRAME if repeat else _FRAME / 2
        left = min(boxes[n][0] for n in nodes) - grow
        top = min(boxes[n][1] for n in nodes) - grow - (_TITLE if repeat else 0)
        right = max(boxes[n][0] + boxes[n][2] for n in nodes) + grow
        bottom = max(boxes[n][1] + boxes[n][3] for n in nodes) + grow
        if repeat:
            right = max(right, left + 1.3 * _CHARACTER * len(cluster.label) + 16)
            titles.append('<text x="%.1f" y="%.1f" font-size="12" font-weight="bold" '
                          'stroke="#f4f4f4" stroke-width="5" stroke-linejoin="round" '
                          'paint-order="stroke">%s</text>'
                          % (left + 8, top + 16, escaped(cluster.label)))
        elif any(n not in nodes and x < right and x + w > left and y < bottom and y + h > top
                 for n, (x, y, w, h) in enumerate(boxes)):
            continue
        frames.append('<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" rx="8" %s/>' % (
            left, top, right - left, bottom - top, 'fill="#f4f4f4" stroke="#888"' if repeat
            else 'fill="none" stroke="#d9772b" stroke-dasharray="5,4"'))
    return frames, titles


def _legend(drawing: Drawing, notes: List[str]) -> Tuple[List[str], float]:
    parts, x = [], _MARGIN
    for group in drawing.legend:
        colour, words = LEGEND[group]
        width = _CHARACTER * len(words) + 12
        parts.append('<rect x="%.1f" y="32" width="%.1f" height="17" fill="%s" stroke="#555" '
                     'stroke-width="0.7"/><text x="%.1f" y="44">%s</text>'
                     % (x, width, colour, x + 6, escaped(words)))
        x += width + 5
    for number, note in enumerate(notes):
        parts.append('<text x="%.0f" y="%.0f" fill="#444">%s</text>'
                     % (_MARGIN, 64 + _LINE * number, escaped(note)))
    longest = max([len(note) for note in notes])
    return parts, max(x, 0.9 * _CHARACTER * longest + _MARGIN) - _MARGIN
