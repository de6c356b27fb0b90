"""A small layered layout, for when Graphviz is not there.

The method is Sugiyama's (Sugiyama, Tagawa, Toda 1981): layers by longest path, a few sweeps of
barycentres for the order within each layer, and coordinates that pull each node towards its
neighbours without changing the order. Linear in nodes plus bends, for each sweep.
"""
from __future__ import annotations

from dataclasses import dataclass
from typing import Dict, List, Sequence, Tuple

#: Sweeps for the order in the layers, and for the coordinates.
ORDER_SWEEPS, PLACE_SWEEPS = 8, 12
GAP = 16.0


@dataclass
class Layout:
    """Places: nodes first, then the bends of long edges."""

    x: List[float]
    layer: List[int]
    #: For each edge the places that it passes, from its source to its target.
    paths: List[List[int]]


def layered(widths: Sequence[float], edges: Sequence[Tuple[int, int]],
            late: Sequence[int] = (), frames: Sequence[int] = ()) -> Layout:
    """Place nodes of these widths in layers.

    ``edges``: edges to a node of a smaller number are drawn but have no say in the layers.
    ``late``: nodes that stand right above their first reader, instead of right below their inputs.
    ``frames``: for each node the frame that it is in, or -1. Nodes of a frame follow each other;
        they have their layers to themselves, but for the bends of edges.
    ``x`` of the layout are centres, starting at 0 on the left.
    """
    layer = _longest_path(edges, late, frames or [-1] * len(widths))
    size = list(widths)
    paths: List[List[int]] = []
    above: List[List[int]] = [[] for _ in size]
    below: List[List[int]] = [[] for _ in size]
    for source, target in edges:
        path = [source]
        for level in range(layer[source] + 1, layer[target]):
            layer.append(level)
            size.append(4.0)
            above.append([])
            below.append([])
            path.append(len(size) - 1)
        path.append(target)
        paths.append(path)
        if layer[source] < layer[target]:
            for upper, lower in zip(path, path[1:]):
                below[upper].append(lower)
                above[lower].append(upper)
    rows: List[List[int]] = [[] for _ in range(max(layer, default=-1) + 1)]
    for place, level in enumerate(layer):
        rows[level].append(place)
    _order(rows, above, below)
    return Layout(_coordinates(rows, size, above, below), layer, paths)


def _longest_path(edges: Sequence[Tuple[int, int]], late: Sequence[int],
                  frames: Sequence[int]) -> List[int]:
    down = sorted((a, b) for a, b in edges if a < b)
    above: Dict[int, List[int]] = {}
    below: Dict[int, List[int]] = {}
    for source, target in down:
        above.setdefault(target, []).append(source)
        below.setdefault(source, []).append(target)
    layer: List[int] = []
    top, deepest, frame = 0, -1, -1
    tops: Dict[int, int] = {}
    for node, inside in enumerate(frames):
        if inside != frame:  # below everything before
            top, frame = deepest + 1, inside
        layer.append(max([top] + [layer[source] + 1 for source in above.get(node, ())]))
        deepest = max(deepest, layer[node])
        tops[inside] = min(tops.get(inside, layer[node]), layer[node])
    # What nobody feeds, and what is late, stands right above its first reader, or its frame.
    moves = {n for n, inside in enumerate(frames) if inside < 0 and n not in above} | set(late)
    for node in sorted(moves & set(below), reverse=True):
        layer[node] = min(layer[reader] if frames[reader] < 0 else tops[frames[reader]]
                          for reader in below[node]) - 1
    return layer


def _order(rows: List[List[int]], above: List[List[int]], below: List[List[int]]) -> None:
    for sweep in range(ORDER_SWEEPS):
        neighbours, direction = (above, rows) if sweep % 2 == 0 else (below, rows[::-1])
        place = {node: i for row in rows for i, node in enumerate(row)}
        for row in direction:
            weight = {node: (sum(place[n] for n in neighbours[node]) / len(neighbours[node])
                             if neighbours[node] else float(place[node])) for node in row}
            row.sort(key=lambda node: (weight[node], place[node]))
            for i, node in enumerate(row):
                place[node] = i


def _coordinates(rows: List[List[int]], size: List[float], above: List[List[int]],
                 below: List[List[int]]) -> List[float]:
    x = [0.0] * len(size)
    for row in rows:
        _spread(row, size, x, [0.0] * len(row))
    for sweep in range(PLACE_SWEEPS):
        for row in (rows if sweep % 2 == 0 else rows[::-1]):
            wishes = []
            for node in row:
                around = above[node] + below[node]
                wishes.append(sum(x[n] for n in around) / len(around) if around else x[node])
            _spread(row, size, x, wishes)
    left = min((x[node] - size[node] / 2 for node in range(len(size))), default=0.0)
    return [value - left for value in x]


def _spread(row: List[int], size: List[float], x: List[float], wishes: List[float]) -> None:
    """As near to the wishes as the order allows: neighbours that collide move together.

    Pooling of adjacent violators: optimal for the sum of squared distances. O(row).
    """
    groups: List[Tuple[float, int]] = []  # sum of wishes less offsets, number of nodes
    offset, offsets = 0.0, []
    for i, node in enumerate(row):
        if i:
            offset += (size[row[i - 1]] + size[node]) / 2 + GAP
        offsets.append(offset)
        groups.append((wishes[i] - offset, 1))
        while len(groups) > 1 and groups[-2][0] / groups[-2][1] > groups[-1][0] / groups[-1][1]:
            total, count = groups.pop()
            groups[-1] = (groups[-1][0] + total, groups[-1][1] + count)
    place = 0
    for total, count in groups:
        for _ in range(count):
            x[row[place]] = total / count + offsets[place]
            place += 1
