"""Graphs from files: three formats, two of them for training steps of other planners.

* our JSON: what :meth:`Graph.to_dict` makes (key ``tensors``), as ``memonger estimate --graph``
  writes it;
* node-link JSON, as networkx writes it and as Checkmate's and Moccasin's graphs are published:
  ``nodes`` with ``cost_ram`` and ``cost_cpu`` (or ``out_cost`` and ``duration``), ``backward``
  true for nodes of the backward pass, and ``links`` between them;
* text: ``n m``, then n lines ``bytes cost forward`` (1 or 0), then m lines ``from to``, nodes in
  execution order, counted from 0.

In the last two each node makes one value, the backward pass comes last, and while a node runs its
inputs and its output are in memory. Sizes and costs keep the units of the file: ``size_bytes`` and
``time_s`` hold them as they are, and memory is the peak of live units.
"""
from __future__ import annotations

import os
import re
from fractions import Fraction
from typing import Any, Callable, Dict, List, Mapping, Sequence, Set, Tuple, Union

from ..util.errors import InputError
from ..util.json_files import parse_json, read_text
from ..util.units import parse_bytes
from .types import MAX_SIZE_BYTES, Graph, Op, Tensor

#: A size with a unit, as in "4GB".
_WITH_UNIT = re.compile(r"^[0-9.]+\s*([KMGT]i?B?|B)$", re.IGNORECASE)


def read_graph(path: str) -> Graph:
    """Read a graph from a file in any of the three formats.

    ``path``: a file; the format follows from its content.
    Raises InputError if the file cannot be read or its content contradicts itself.
    """
    text = read_text(path)
    name = os.path.splitext(os.path.basename(path))[0]
    try:
        return parse_graph(text, name)
    except InputError as error:
        raise InputError("%s: %s" % (path, error)) from error


def parse_graph(text: str, name: str = "") -> Graph:
    """As :func:`read_graph`, from the text of the file."""
    if not text.lstrip().startswith("{"):
        return _training_step(_from_text(text, name))
    data = parse_json(text)
    try:
        if "tensors" in data:
            graph = Graph.from_dict({"name": name, **data})
            graph.check()
            return graph
        if "nodes" in data and "links" in data:
            return _training_step(_from_node_link(data, name))
    except InputError:
        raise
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
        raise InputError("the graph is damaged: %s: %s" % (type(error).__name__, error)) from error
    raise InputError("neither a memonger graph (no key 'tensors') nor node-link JSON "
                     "(no keys 'nodes' and 'links')")


def looks_like_graph(text: str) -> bool:
    """Whether the text has the beginning of one of the three formats, damaged or not."""
    if text.lstrip().startswith("{"):
        return bool(re.search(r'"(tensors|links)"\s*:', text))
    return bool(re.match(r"\s*\d+[ \t]+\d+[ \t]*(\n|$)", text))


def _training_step(graph: Graph) -> Graph:
    """The graph; InputError where it is no forward pass with a backward pass behind it."""
    backward = [op.is_backward for op in graph.ops]
    if True not in backward:
        raise InputError("no node is backward: memonger plans training steps, and only the "
                         "backward pass runs forward nodes again")
    late = [op.name for op in graph.ops[backward.index(True):] if not op.is_backward]
    if late:
        raise InputError("forward node %s runs after backward node %s; in a training step the "
                         "backward pass comes last"
                         % (late[0], graph.ops[backward.index(True)].name))
    return graph


def _from_text(text: str, name: str) -> Graph:
    rows = [(number, line.split()) for number, line in enumerate(text.splitlines(), 1)
            if line.strip()]

    def numbers(row: int, kinds: Sequence[Callable[[str], Any]], what: str) -> List[Any]:
        if row >= len(rows):
            raise InputError("the file ends before %s" % what)
        line, words = rows[row]
        try:
            values = [kind(word) for kind, word in zip(kinds, words)]
        except (ValueError, OverflowError):
            values = []
        if len(values) != len(words) or len(values) != len(kinds):
            raise InputError("line %d: expected %s, found %r" % (line, what, " ".join(words)))
        return values

    size, edge_count = numbers(0, (_count, _count), "the numbers of nodes and edges")
    nodes = [numbers(1 + i, (_whole, float, float),
                     "size, cost and whether node %d (they count from 0) is forward" % i)
             for i in range(size)]
    edges = [numbers(1 + size + i, (_count, _count), "the two ends of edge %d" % i)
             for i in range(edge_count)]
    if len(rows) > 1 + size + edge_count:
        raise InputError("line %d: more lines than the first line announces"
                         % rows[1 + size + edge_count][0])
    return single_output_graph(
        ["node%d" % i for i in range(size)], [n[0] for n in nodes], [n[1] for n in nodes],
        [bool(n[2]) for n in nodes], [(u, v) for u, v in edges], name)


def _whole(value: Union[str, int, float]) -> int:
    """A whole number, which may be written as ``1e6``; ValueError for any other."""
    number = Fraction(value)
    if number.denominator != 1:
        raise ValueError("%r is no whole number" % (value,))
    return int(number)


def _count(word: str) -> int:
    number = _whole(word)
    if number < 0:
        raise ValueError("%r is negative" % word)
    return number


def _from_node_link(data: Mapping[str, Any], name: str) -> Graph:
    def number(node: Mapping[str, Any], keys: Sequence[str],
               kind: Callable[[Any], Any] = float) -> Any:
        for key in keys:
            if key in node:
                value = node[key]
                try:
                    if isinstance(value, bool) or not isinstance(value, (int, float)):
                        raise ValueError("not a number")
                    return kind(value)
                except (ValueError, OverflowError):
                    raise InputError("node %r: %s is %r, not a %snumber" % (
                        node.get("name", node), key, value,
                        "whole " if kind is _whole else "")) from None
        raise InputError("node %r has no %s" % (node.get("name", node), " or ".join(keys)))

    nodes = data["nodes"]
    ids: List[Any] = []
    edges_by_id: List[Tuple[Any, Any]] = []
    for position, node in enumerate(nodes):
        ids.append(node.get("id", node.get("name", position)))
    for link in data["links"]:
        source, target = ("source", "target") if "source" in link else ("0", "1")
        edges_by_id.append((link[source], link[target]))
    index_of: Dict[Any, int] = {key: i for i, key in enumerate(ids)}
    if len(index_of) != len(ids):
        raise InputError("two nodes have the same id")
    unknown = [end for edge in edges_by_id for end in edge if end not in index_of]
    if unknown:
        raise InputError("a link names node %r, which does not exist" % (unknown[0],))
    edges = [(index_of[u], index_of[v]) for u, v in edges_by_id]
    order = _execution_order(ids, edges)
    rank = {node: i for i, node in enumerate(order)}
    return single_output_graph(
        [str(nodes[i].get("name", ids[i])) for i in order],
        [number(nodes[i], ("cost_ram", "out_cost"), _whole) for i in order],
        [number(nodes[i], ("cost_cpu", "duration")) for i in order],
        [not nodes[i].get("backward", False) for i in order],
        [(rank[u], rank[v]) for u, v in edges], name)


def _execution_order(ids: Sequence[Any], edges: Sequence[Tuple[int, int]]) -> List[int]:
    """Nodes by id where that is an execution order, else generation by generation."""
    order = list(range(len(ids)))
    if all(isinstance(key, int) for key in ids):
        order.sort(key=lambda i: ids[i])
    rank = {node: i for i, node in enumerate(order)}
    if all(rank[u] < rank[v] for u, v in edges):
        return order
    missing = [0] * len(ids)
    children: List[List[int]] = [[] for _ in ids]
    for u, v in edges:
        missing[v] += 1
        children[u].append(v)
    ready = [i for i in range(len(ids)) if not missing[i]]
    # A queue of nodes whose inputs are all made: equals networkx' generations, in their order.
    for node in ready:
        for child in children[node]:
            missing[child] -= 1
            if not missing[child]:
                ready.append(child)
    if len(ready) < len(ids):
        raise InputError("the links form a cycle through node %r"
                         % (ids[next(i for i in range(len(ids)) if missing[i])],))
    return ready


def single_output_graph(names: Sequence[str], sizes: Sequence[int], costs: Sequence[float],
                        forward: Sequence[bool], edges: Sequence[Tuple[int, int]],
                        name: str = "") -> Graph:
    """A graph in which each op makes one tensor.

    ``names``, ``sizes``, ``costs``, ``forward``: one entry for each op, in execution order.
    ``edges``: producer and consumer.
    Raises InputError if an edge runs backwards or a number is negative.
    """
    inputs: List[Set[int]] = [set() for _ in names]
    for u, v in edges:
        if not (0 <= u < len(names) and 0 <= v < len(names)):
            raise InputError("edge %d -> %d names a node that does not exist; nodes count from 0 "
                             "to %d" % (u, v, len(names) - 1))
        if u >= v:
            raise InputError("edge %d -> %d: a node reads what is made later; "
                             "nodes must come in execution order, counted from 0" % (u, v))
        inputs[v].add(u)
    for label, size, cost in zip(names, sizes, costs):
        if size < 0 or not cost >= 0:
            raise InputError("node %s: size and cost cannot be negative" % label)
    tensors = tuple(Tensor(str(label), int(size), i)
                    for i, (label, size) in enumerate(zip(names, sizes)))
    ops = tuple(Op.of(str(names[i]), "node", tuple(sorted(inputs[i])), (i,),
                      is_backward=not forward[i],
                      not_recomputable_because="" if forward[i] else "a backward node",
                      time_s=float(costs[i])) for i in range(len(names)))
    graph = Graph(tensors, ops, (), name=name, pools="units")
    try:
        graph.check()
    except (TypeError, ValueError) as error:
        raise InputError(str(error)) from error
    return graph


def parse_imported_budget(budget: Union[str, int, float], baseline: int,
                          in_bytes: bool = False) -> int:
    """A budget in the graph's units: a share of the store-everything peak, or absolute.

    Shares are floats up to 1 and texts such as ``"0.8"`` or ``"80%"``; they are rounded up to
    whole units. Larger numbers are units. ``in_bytes``: those are bytes, and ``"4GB"`` is accepted.

    Raises InputError if the budget is neither.
    """
    exact, share = _exact_budget(budget, baseline, in_bytes)
    return -int(-exact // 1) if share else int(exact)


def rounded_budget_note(budget: Union[str, int, float], baseline: int) -> str:
    """What :func:`parse_imported_budget` rounds, in a sentence; empty where it rounds nothing."""
    exact, _ = _exact_budget(budget, baseline, in_bytes=False)
    if exact.denominator == 1:
        return ""
    return "Plans take whole units of the graph: the budget %s, %.10g units, counts as %d" % (
        budget, float(exact), parse_imported_budget(budget, baseline))


def _exact_budget(budget: Union[str, int, float], baseline: int,
                  in_bytes: bool) -> Tuple[Fraction, bool]:
    """A budget before it is rounded, and whether it is a share."""
    text = str(budget).strip()
    if in_bytes and _WITH_UNIT.match(text):
        return Fraction(parse_bytes(text)), False
    try:
        # Fractions, because 0.7 * 10 is not 7 in floating point.
        value = Fraction(text[:-1]) / 100 if text.endswith("%") else Fraction(text)
    except (ValueError, ZeroDivisionError):
        raise InputError("cannot read the budget %r; write a share such as 0.8 or 80%%, or %s" % (
            budget, "a size such as 4GB or 4GiB" if in_bytes else
            "a number in the graph's own units, which are not known to be bytes")) from None
    share = text.endswith("%") or (value <= 1 and not isinstance(budget, int))
    if not 0 < value < MAX_SIZE_BYTES:
        raise InputError("the budget must be positive and below 2^60, not %r" % (budget,))
    return value * baseline if share else value, share
