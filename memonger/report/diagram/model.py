"""A plan as nodes, edges and clusters: what all diagrams draw, whatever draws them.

Forward ops are nodes in the colour of their decision; repeated blocks are drawn once. Runs of
recomputed ops between kept ones are clusters. On request there are also the ops of backward, and
the repeated runs beside those that they serve.
"""
from __future__ import annotations

import os
from collections import Counter
from dataclasses import dataclass, field
from functools import cached_property
from typing import Dict, List, Optional, Sequence, Set, Tuple

from ...graph.schedule import Step
from ...plans.plan import Plan
from ..facts import Facts, OpFacts
from ..formatting import Units, counted, extra_time, short_kind
from .repeated_blocks import Repeat, find_repeats, name_pattern

#: Group -> (fill colour, what it means). "free" is kept in name only: backward never reads it.
LEGEND = {
    "keep": ("#9ecae1", "kept from forward to backward"),
    "free": ("#e3eef7", "not needed in backward"),
    "recompute": ("#fdae6b", "recomputed in backward"),
    "variant": ("#a1d99b", "replaced by a frugal operator"),
    "variant+recompute": ("#dccb5d", "replaced and recomputed"),
    "host": ("#bcbddc", "moved to the host and back"),
    "pinned": ("#c7c7c7", "must not be recomputed"),
    "input": ("#ffffff", "input"),
    "parameter": ("#ffffff", "parameter"),
    "backward": ("#f2f0f7", "backward"),
    "clone": ("#fdd0a2", "repeated run"),
    "absorbed": ("#e5f5e0", "part of another op's variant"),
}


#: What a box of several copies says of those in one group.
COPIES = {"keep": "kept", "free": "not needed", "recompute": "recomputed", "variant": "replaced",
          "variant+recompute": "replaced and recomputed", "host": "on the host",
          "pinned": "must not be recomputed", "absorbed": "in a variant"}
#: Copies of a repeated op whose reasons a box tells.
MAX_COPIES = 12


@dataclass
class Node:
    """One box."""

    key: Tuple
    lines: Tuple[str, ...]
    #: Groups of the ops it stands for with their numbers, most frequent first.
    groups: Tuple[Tuple[str, int], ...]
    tip: str = ""
    #: Index into ``Drawing.clusters``; -1 for none.
    cluster: int = -1
    #: What an op makes.
    size_bytes: int = 0

    @property
    def group(self) -> str:
        return self.groups[0][0]


@dataclass
class Edge:
    source: int
    target: int
    size_bytes: int = 0
    #: "" (a value), "carry" (from one repetition of a block to the next), "held" (a value that
    #: waits for backward).
    style: str = ""


@dataclass
class Cluster:
    """A frame around nodes."""

    label: str
    #: "repeat" or "segment".
    kind: str
    parent: int = -1


@dataclass
class Drawing:
    """What is drawn; without a title the picture has no legend either."""

    title: str
    nodes: List[Node] = field(default_factory=list)
    edges: List[Edge] = field(default_factory=list)
    clusters: List[Cluster] = field(default_factory=list)
    legend: List[str] = field(default_factory=list)
    units: Units = field(default_factory=lambda: Units(False))

    @cached_property
    def largest_edge_bytes(self) -> int:
        return max([edge.size_bytes for edge in self.edges] or [0])

    def edge_width(self, edge: Edge) -> float:
        """Line width: grows with the square root of the bytes, from 0.6 to 4."""
        largest = self.largest_edge_bytes
        return 0.6 + 3.4 * (edge.size_bytes / largest) ** 0.5 if largest else 0.6

    def members(self) -> Dict[int, Set[int]]:
        """For each cluster the nodes inside it, those of its inner clusters too."""
        result: Dict[int, Set[int]] = {number: set() for number in range(len(self.clusters))}
        for index, node in enumerate(self.nodes):
            cluster = node.cluster
            while cluster >= 0:
                result[cluster].add(index)
                cluster = self.clusters[cluster].parent
        return result


def draw(plan: Plan, collapse: bool = True, clones: bool = False,
         parameters: bool = False) -> Drawing:
    """Lay out what a diagram of the plan shows.

    ``collapse``: draw repeated blocks once, with their number.
    ``clones``: draw the ops of backward too, and the repeated runs beside those that they serve.
    ``parameters``: draw parameters and aux states.
    """
    return _Painter(plan, collapse, clones, parameters).drawing


class _Painter:
    def __init__(self, plan: Plan, collapse: bool, clones: bool, parameters: bool):
        self.facts = Facts(plan)
        self.graph = self.facts.graph
        self.units = Units.of(plan)
        self.drawing = Drawing(_title(plan), units=self.units)
        self.forward = [i for i, op in enumerate(self.graph.ops) if not op.is_backward]
        self.position_of = {op: position for position, op in enumerate(self.forward)}
        # Without variants: blocks are alike even where other variants run in them.
        self.repeats = find_repeats(plan.graph, self.forward) if collapse else []
        self.repeat_at: Dict[int, Repeat] = {
            position: repeat for repeat in self.repeats
            for position in range(repeat.first, repeat.end)}
        self.index: Dict[Tuple, int] = {}
        self.members: Dict[Tuple, List[int]] = {}
        self.cluster_of_repeat: Dict[Repeat, int] = {}
        self.by_op = {fact.op: fact for fact in self.facts.ops}
        self.owner = self._owners()
        self._frame_repeats()
        self._add_nodes(clones, parameters)
        self._add_edges()
        self._frame_segments()
        present = {group for node in self.drawing.nodes for group, _ in node.groups}
        self.drawing.legend = [group for group in LEGEND if group in present]

    # ------------------------------------------------------------------ which node is an op in
    def _owners(self) -> List[int]:
        """Forward op that each op belongs to; sums of gradients go with what they sum."""
        owner: List[int] = []
        for index, op in enumerate(self.graph.ops):
            forward = index if not op.is_backward else op.forward_op
            for tensor in op.inputs if forward < 0 else ():
                producer = self.graph.tensors[tensor].producer
                if forward < 0 and producer >= 0 and self.graph.ops[producer].is_backward:
                    forward = owner[producer]
            owner.append(forward)
        return owner

    def _block(self, op: int) -> Tuple[Optional[Repeat], int]:
        """The repeat that an op is drawn in, and which of its blocks it is part of."""
        position = self.position_of.get(self.owner[op], -1)
        repeat = self.repeat_at.get(position)
        return repeat, 0 if repeat is None else (position - repeat.first) // repeat.period

    def _drawn(self, op: int) -> int:
        """The op in whose place an op is drawn: the same one in the first block."""
        repeat, block = self._block(op)
        if repeat is None:
            return op
        return self.forward[self.position_of[self.owner[op]] - block * repeat.period]

    def _key(self, op: int, run: int) -> Tuple:
        """Identity of the node that shows a run of an op."""
        if not self.graph.ops[op].is_backward:
            return ("clone", self._drawn(op), run) if run else ("forward", self._drawn(op))
        repeat, _ = self._block(op)
        if repeat is None:
            return ("backward", op)
        return ("backward", self._drawn(op), self.graph.ops[op].kind,
                self._rank_among_siblings[op])

    @cached_property
    def _rank_among_siblings(self) -> List[int]:
        """1 for the second op of the same kind that belongs to the same forward op, and so on."""
        seen: Counter = Counter()
        ranks = []
        for owner, op in zip(self.owner, self.graph.ops):
            ranks.append(seen[owner, op.kind])
            seen[owner, op.kind] += 1
        return ranks

    # ------------------------------------------------------------------ nodes
    def _frame_repeats(self) -> None:
        for repeat in self.repeats:
            names = [name_pattern([self.graph.ops[self.forward[p]].name for p in range(
                repeat.first + q, repeat.end, repeat.period)]) for q in range(repeat.period)]
            self.cluster_of_repeat[repeat] = len(self.drawing.clusters)
            self.drawing.clusters.append(Cluster(
                "%d x %s" % (repeat.count, _block_name(names)), "repeat"))

    def _add_nodes(self, clones: bool, parameters: bool) -> None:
        steps = self.facts.plan.schedule.steps
        if not clones:
            steps = tuple(step for i, step in enumerate(steps) if not self.facts.is_late(i))
        for index, step in enumerate(steps):
            self.members.setdefault(self._key(step.op, self._run(index)), []).append(step.op)
        shown = {"input"} | ({"parameter", "aux"} if parameters else set())
        for tensors in self._alike_inputs(steps, shown):
            infos = [self.graph.tensors[t] for t in tensors]
            name = name_pattern([info.name for info in infos])
            self._add(("tensor", tensors[0]), (
                name + self._times(tensors), self.units.size(max(i.size_bytes for i in infos))),
                (("input" if infos[0].category == "input" else "parameter", len(tensors)),), name)
            for tensor in tensors[1:]:
                self.index["tensor", tensor] = self.index["tensor", tensors[0]]
        # Forward ops in the order of the first block: a variant may hide one in some blocks.
        for key in sorted(self.members, key=lambda k: k[1] if k[0] == "forward" else
                          len(self.graph.ops)):
            self._add_op(key, self.members[key])

    def _alike_inputs(self, steps: Sequence[Step], shown: Set[str]) -> List[List[int]]:
        """What exists before the step, by who reads it: inputs of all blocks are drawn once."""
        readers: Dict[int, Set[Tuple]] = {}
        for step in steps:
            op = self.graph.ops[step.op]
            for position, tensor in enumerate(() if op.is_backward else op.inputs):
                info = self.graph.tensors[tensor]
                if info.producer < 0 and info.category in shown:
                    readers.setdefault(tensor, set()).add((self._drawn(step.op), position))
        groups: Dict[Tuple, List[int]] = {}
        for tensor in sorted(readers):
            key = (self.graph.tensors[tensor].category, tuple(sorted(readers[tensor])))
            groups.setdefault(key, []).append(tensor)
        return list(groups.values())

    def _run(self, step: int) -> int:
        op = self.facts.plan.schedule.steps[step].op
        return self.facts.runs[op].index(step)

    def _add(self, key: Tuple, lines: Tuple[str, ...], groups: Tuple[Tuple[str, int], ...],
             tip: str, cluster: int = -1, size_bytes: int = 0) -> None:
        self.index[key] = len(self.drawing.nodes)
        self.drawing.nodes.append(Node(key, lines, groups, tip, cluster, size_bytes))

    def _add_op(self, key: Tuple, ops: List[int]) -> None:
        infos = [self.graph.ops[op] for op in ops]
        name = name_pattern([info.name for info in infos])
        kind = short_kind(infos[0].kind)
        repeat, _ = self._block(ops[0])
        cluster = -1 if repeat is None or key[0] == "backward" \
            else self.cluster_of_repeat[repeat]
        if key[0] == "backward":
            self._add(key, (name + self._times(ops),), (("backward", len(ops)),),
                      "%s: %s" % (name, kind))
            return
        facts = [self.by_op[op] for op in ops]
        sizes = sorted({fact.size_bytes for fact in facts})
        size = self.units.size(sizes[-1]) if len(sizes) == 1 else \
            "%s to %s" % (self.units.size(sizes[0]), self.units.size(sizes[-1]))
        if key[0] == "clone":
            self._add(key, (name + ("#%d" % key[2]) + self._times(ops), size),
                      (("clone", len(ops)),), "run %d of %s, for backward" % (key[2] + 1, name))
            return
        groups = Counter(drawn_group(fact) for fact in facts)
        order = sorted(groups.items(), key=lambda item: (-item[1], list(LEGEND).index(item[0])))
        # PyTorch's names end with the kind.
        lines = [name, size if name.rpartition("/")[2].startswith(kind) else
                 "%s  %s" % (kind, size)]
        variants = sorted({fact.decision.split("+")[0] for fact in facts
                           if fact.group.startswith("variant")})
        if variants:
            lines.append(", ".join(variants))
        if len(order) > 1:
            lines.append(", ".join("%d %s" % (number, COPIES[group]) for group, number in order))
        self._add(key, tuple(lines), tuple(order), _tip(facts, kind, size), cluster, sizes[-1])

    @staticmethod
    def _times(ops: List[int]) -> str:
        return " x %d" % len(ops) if len(ops) > 1 else ""

    # ------------------------------------------------------------------ edges
    def _add_edges(self) -> None:
        sizes: Dict[Tuple[int, int, str], int] = {}
        steps = self.facts.plan.schedule.steps
        for index, step in enumerate(steps):
            op = self.graph.ops[step.op]
            target = self.index.get(self._key(step.op, self._run(index)))
            if target is None:
                continue
            for position, (tensor, source) in enumerate(zip(op.inputs, step.sources)):
                if position in op.ignored_inputs:
                    continue
                if source < 0:
                    origin = None if op.is_backward else self.index.get(("tensor", tensor))
                    style = ""
                else:
                    origin = self.index.get(self._key(steps[source].op, self._run(source)))
                    style = self._style(source, index)
                if origin is None:
                    continue
                edge = (origin, target, style)
                sizes[edge] = max(sizes.get(edge, 0), self.graph.tensors[tensor].size_bytes)
        self.drawing.edges = [Edge(a, b, size, style)
                              for (a, b, style), size in sorted(sizes.items())]

    def _style(self, source: int, target: int) -> str:
        steps = self.facts.plan.schedule.steps
        here, block = self._block(steps[target].op)
        there, other = self._block(steps[source].op)
        if here is not None and here is there and block != other:
            return "carry"
        late = self.facts.is_late
        return "held" if late(target) and not late(source) else ""

    # ------------------------------------------------------------------ segments
    def _frame_segments(self) -> None:
        """Frame connected recomputed ops, inside one block or outside all of them."""
        nodes = self.drawing.nodes
        inside = [node.key[0] == "forward" and node.group == "recompute" for node in nodes]
        parent = list(range(len(nodes)))

        def root(node: int) -> int:
            while parent[node] != node:
                parent[node] = parent[parent[node]]
                node = parent[node]
            return node

        for edge in self.drawing.edges:
            a, b = edge.source, edge.target
            if inside[a] and inside[b] and nodes[a].cluster == nodes[b].cluster \
                    and edge.style == "":
                parent[root(b)] = root(a)
        groups: Dict[int, List[int]] = {}
        for node in range(len(nodes)):
            if inside[node]:
                groups.setdefault(root(node), []).append(node)
        for members in groups.values():
            if len(members) < 2:
                continue
            self.drawing.clusters.append(Cluster(
                counted(len(members), "op"), "segment",
                nodes[members[0]].cluster))
            for node in members:
                nodes[node].cluster = len(self.drawing.clusters) - 1


def drawn_group(fact: OpFacts) -> str:
    """The group that gives an op its colour."""
    return "free" if fact.group == "keep" and not fact.held_bytes else fact.group


def _tip(facts: List[OpFacts], kind: str, size: str) -> str:
    """What the mouse shows: each copy of a repeated op with its own reason."""
    lines = ["%s (%s): %s" % (kind, size, facts[0].why)] if len(facts) == 1 else \
        ["%s, %s; its copies:" % (kind, size)]
    lines += ["%s: %s, %s" % (fact.name, fact.decision, fact.why)
              for fact in facts[:MAX_COPIES] if len(facts) > 1]
    if facts[MAX_COPIES:]:
        lines.append("and %d more" % len(facts[MAX_COPIES:]))
    return "\n".join(lines)


def _block_name(names: List[str]) -> str:
    """What the ops of a block have in common, in whole words: ``stage2_unit*``."""
    # Names that MXNet gives, such as _plus3, have nothing in common with the others.
    names = [name for name in names if not name.startswith("_")] or names
    prefix = os.path.commonprefix(names)
    if any(name[len(prefix):][:1].isalnum() for name in names):
        prefix = prefix[:prefix.rfind("_") + 1]
    prefix = prefix.rstrip("_")
    if "*" in prefix[1:]:
        return prefix
    return "this block (%s_*)" % prefix if len(prefix) > 2 else "this block"


def _title(plan: Plan) -> str:
    units = Units.of(plan)
    return "%s%s to %s, predicted step %s" % (
        plan.graph.name and plan.graph.name + ": ", units.size(plan.baseline_total_bytes),
        units.size(plan.total_bytes),
        "time " * plan.time_is_known + extra_time(plan))
