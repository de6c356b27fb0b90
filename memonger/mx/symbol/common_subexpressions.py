"""Symbols as JSON, and the ops of a symbol that MXNet merges because they compute the same."""
from __future__ import annotations

import json
from collections import Counter
from typing import AbstractSet, Any, Dict, List, Mapping, Optional, Sequence, Tuple


def attributes_of(node: Mapping[str, Any]) -> Dict[str, str]:
    """A node's attributes, under whichever name its MXNet wrote them."""
    return node.get("attrs", node.get("attr", node.get("param", {})))


def to_json(symbol: Any) -> str:
    """A symbol as JSON, whole: what MXNet writes by default has no mixed precision left."""
    return symbol.tojson(remove_amp_cast=False)


def symbol_text(document: Any) -> str:
    """JSON of a symbol or of an attribute: MXNet and the plugin know no ``\\u`` escapes."""
    return json.dumps(document, ensure_ascii=False)


def first_of_same(nodes: Sequence[Mapping[str, Any]]) -> List[int]:
    """For each node the first one with its op, attributes and inputs; a variable for itself."""
    first: Dict[Tuple[Any, ...], int] = {}
    classes: List[int] = []
    for i, node in enumerate(nodes):
        classes.append(i if node["op"] == "null" else first.setdefault(_key(node, classes), i))
    return classes


def _key(node: Mapping[str, Any], classes: Sequence[int]) -> Tuple[Any, ...]:
    return (node["op"], tuple(sorted(attributes_of(node).items())),
            tuple((classes[source], output) for source, output, _ in node["inputs"]))


def merged_into(nodes: Sequence[Mapping[str, Any]],
                in_graph: AbstractSet[str]) -> List[Optional[str]]:
    """For each node of a symbol the op of the bound graph that computes it.

    Before MXNet takes gradients it merges ops with the same attributes and inputs, as long as they
    have no state and draw no random numbers. What it left is in the graph under its own name; what
    is missing there was merged into an op with the same attributes and inputs.

    ``nodes``: ``"nodes"`` of the symbol's JSON.
    ``in_graph``: names of the bound graph's ops.
    Variables, and ops that stand for none of the graph's, have None.
    """
    uses = Counter(node["name"] for node in nodes if node["op"] != "null")
    class_of_key: Dict[Tuple[Any, ...], int] = {}
    classes: List[int] = []
    name_of: Dict[int, str] = {}
    for i, node in enumerate(nodes):
        classes.append(i)
        if node["op"] == "null":
            continue
        name = node["name"]
        first = class_of_key.setdefault(_key(node, classes), i)
        # Of several ops with one name it is unknown which one is in the graph.
        if name not in in_graph or uses[name] > 1 or first not in name_of:
            classes[i] = first
        if name in in_graph:
            name_of.setdefault(classes[i], name)
    return [None if node["op"] == "null" else
            node["name"] if node["name"] in in_graph else name_of.get(first)
            for first, node in zip(classes, nodes)]
