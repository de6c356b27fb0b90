"""Smaller drawings: runs of ops with one decision become one box, names lose what a frame says."""
from __future__ import annotations

import os
import re
from dataclasses import replace
from typing import Dict, List

from ..formatting import counted
from .model import Drawing, Edge, Node

#: A box names up to this many ops; of more the first two and the last.
NAMED = 4


def folded(drawing: Drawing) -> Drawing:
    """The drawing with one box for each run of ops that only read one another.

    The ops of a run are in one frame and have the same decision. Frames around one box go.
    """
    leads: Dict[int, List[Edge]] = {}
    enters: Dict[int, List[Edge]] = {}
    for edge in drawing.edges:
        leads.setdefault(edge.source, []).append(edge)
        enters.setdefault(edge.target, []).append(edge)
    nodes = drawing.nodes
    #: The nodes of each run, by its first one; where each node is.
    runs: Dict[int, List[int]] = {}
    run_of: Dict[int, int] = {}
    for number, node in enumerate(nodes):  # forward ops lie in the order of execution
        only = enters[number][0] if len(enters.get(number, ())) == 1 else None
        source = only.source if only is not None and not only.style else -1
        joined = source in run_of and len(leads[source]) == 1 and _alike(nodes[source], node)
        run_of[number] = run_of[source] if joined else number
        runs.setdefault(run_of[number], []).append(number)
    place = {first: k for k, first in enumerate(runs)}
    kept = [_box(drawing, [nodes[i] for i in members]) for members in runs.values()]
    edges = [replace(edge, source=place[run_of[edge.source]], target=place[run_of[edge.target]])
             for edge in drawing.edges if run_of[edge.source] != run_of[edge.target]]
    result = replace(drawing, nodes=kept, edges=edges)
    for number, cluster in enumerate(drawing.clusters):
        inside = [node for node in kept if node.cluster == number]
        if cluster.kind == "segment" and len(inside) == 1:
            inside[0].cluster = cluster.parent
    return result


def _alike(one: Node, other: Node) -> bool:
    return one.key[0] == other.key[0] == "forward" and one.cluster == other.cluster \
        and one.groups == other.groups and len(one.groups) == 1


def _box(drawing: Drawing, run: List[Node]) -> Node:
    """One box for the nodes of a run; a copy of the only one."""
    names = [_in_frame(drawing, node) for node in run]
    if len(run) == 1:
        return replace(run[0], lines=(names[0], *run[0].lines[1:]))
    prefix = os.path.commonprefix(names)
    prefix = prefix[:max(prefix.rfind(mark) for mark in "_/.") + 1]
    own = [name[len(prefix):] for name in names]
    if len(own) > NAMED:
        own = [*own[:2], "...", own[-1]]
    size_bytes = sum(node.size_bytes for node in run)
    more = sorted({line for node in run for line in node.lines[2:]})
    lines = (("%s: " % prefix.rstrip("_/.") if prefix else "") + ", ".join(own),
             "%s  %s" % (counted(len(run), "op"), drawing.units.size(size_bytes)), *more)
    return replace(run[0], lines=lines, size_bytes=size_bytes,
                   tip="\n".join("%s: %s" % (node.lines[0], node.tip) for node in run))


def _in_frame(drawing: Drawing, node: Node) -> str:
    """The node's name without the words that stand on the frame of its repeated block."""
    cluster = node.cluster
    while cluster >= 0 and drawing.clusters[cluster].kind != "repeat":
        cluster = drawing.clusters[cluster].parent
    said = drawing.clusters[cluster].label.partition(" x ")[2] if cluster >= 0 else ""
    name = node.lines[0]
    short = re.sub(r"^[_/.]", "", name[len(said):]) if said and name.startswith(said) else name
    return short or name
