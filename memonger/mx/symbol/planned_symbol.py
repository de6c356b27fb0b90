"""A planned symbol as JSON: decisions become attributes, and are taken off again.

Only attributes are added, so arguments, aux states, outputs and their names stay, checkpoints
interchange, and a MXNet without the plugin trains the planned symbol as if it were not planned.
The meaning of the attributes is explained in CONTRIBUTING.md, "Attributes of planned symbols".
"""
from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import TYPE_CHECKING, AbstractSet, Any, Callable, Dict, Mapping

from ...graph.decisions import decisions_of
from ...graph.in_use import graph_in_use
from ...graph.schedule import Recompute, Schedule
from ...graph.stock_mirroring import safe_to_mirror
from ...graph.types import Graph
from .common_subexpressions import first_of_same, merged_into, symbol_text
from .swap import swap_json, unswap_json

if TYPE_CHECKING:
    from ...plans.plan import Plan

RECOMPUTE = "__memonger_recompute__"
#: "arena": executors of the symbol have one piece of memory with their tensors at offsets.
STORAGE = "__memonger_storage__"
FORCE_MIRRORING = "__force_mirroring__"
#: What ``force_mirroring`` was before memonger set it; "" when there was none.
BEFORE = "__memonger_force_mirroring_before__"


def _escaped(name: str) -> str:
    """A name in which nothing looks like the numbers behind labels."""
    return re.sub(r"([@#\\])", r"\\\1", name)


def gradient_labels(graph: Graph) -> Dict[int, str]:
    """How attributes name each backward op: by the forward op that it differentiates.

    The second backward op of one forward op has "@2" behind the name, and so on.
    """
    seen: Dict[str, int] = {}
    labels = {}
    for index, op in enumerate(graph.ops):
        if op.is_backward and op.runs:
            label = _escaped(graph.ops[op.forward_op].name if op.forward_op >= 0 else op.name)
            seen[label] = seen.get(label, 0) + 1
            labels[index] = label if seen[label] == 1 else "%s@%d" % (label, seen[label])
    return labels


def recompute_texts(graph: Graph, recompute: Recompute) -> Dict[str, str]:
    """Attribute value for each op that runs again, by op name."""
    gradients = gradient_labels(graph)
    texts = {}
    for index, exceptions in recompute.items():
        labels = {gradients.get(op) or "%s#%d" % (_escaped(graph.ops[op].name), clone): number
                  for (op, clone), number in exceptions.items() if number != 1}
        texts[graph.ops[index].name] = symbol_text(dict(sorted(labels.items()))) if labels else "1"
    return texts


def apply_recompute(symbol_json: str, graph: Graph, recompute: Recompute) -> str:
    """The symbol with the plugin's attributes, as JSON."""
    texts = recompute_texts(graph, recompute)
    document = json.loads(symbol_json)

    def mark(node: Dict[str, Any], text: str) -> None:
        node.setdefault("attrs", {})[RECOMPUTE] = text

    _mark_nodes(document, texts, graph.op_index.keys(), mark)
    overrule(document)
    return symbol_text(document)


def overrule(document: Mapping[str, Any]) -> None:
    """Run ops that the user forced once, where the plan does not run them again."""
    for node in document["nodes"]:
        if node["op"] not in ("null", "Custom") and is_forced(node):
            node["attrs"].setdefault(RECOMPUTE, "0")


def is_forced(node: Mapping[str, Any]) -> bool:
    return node.get("attrs", {}).get(FORCE_MIRRORING, "").lower() in ("true", "1")


def apply_mirroring(symbol_json: str, graph: Graph, mirrored: AbstractSet[int]) -> str:
    """The symbol with ``force_mirroring`` on exactly the ops in ``mirrored``, as JSON."""
    names = {graph.ops[index].name: "True" for index in mirrored}
    document = json.loads(symbol_json)

    def mark(node: Dict[str, Any], text: str) -> None:
        if node["op"] == "Custom":
            return
        attributes = node.setdefault("attrs", {})
        if attributes.get(FORCE_MIRRORING) != text:
            attributes.setdefault(BEFORE, attributes.get(FORCE_MIRRORING, ""))
            attributes[FORCE_MIRRORING] = text

    for node in document["nodes"]:  # what the user forced but the plan found unsafe
        if is_forced(node) and node["op"] != "null" and node["name"] not in names:
            mark(node, "False")
    _mark_nodes(document, names, graph.op_index.keys(), mark)
    return symbol_text(document)


def strip_json(symbol_json: str) -> str:
    """The JSON without anything that memonger added: variants and attributes."""
    document = json.loads(unswap_json(symbol_json))
    for node in document["nodes"]:
        attributes = node.get("attrs")
        if not attributes:
            continue
        attributes.pop(RECOMPUTE, None)
        attributes.pop(STORAGE, None)
        if BEFORE in attributes:
            before = attributes.pop(BEFORE)
            if before:
                attributes[FORCE_MIRRORING] = before
            else:
                attributes.pop(FORCE_MIRRORING, None)
        if not attributes:
            del node["attrs"]
    return symbol_text(document)


def mark_storage(symbol_json: str, storage: str = "arena") -> str:
    """The symbol as one with a plan: "arena" has its executors make one, as JSON.

    One op has the mark, and those that MXNet would merge with it. Where MKLDNN is on, the plugin
    spares marked networks the copies between its layouts and others.
    """
    document = json.loads(symbol_json)
    nodes = document["nodes"]
    same = first_of_same(nodes)
    marked = same[_first_markable(document)]
    for node, first in zip(nodes, same):
        if first == marked:
            node.setdefault("attrs", {})[STORAGE] = storage
    return symbol_text(document)


def planned_json(original_json: str, plan: Plan) -> str:
    """JSON of a symbol with the plan's decisions on it; MXNet is not needed."""
    text = _decisions_on(original_json, plan)
    return mark_storage(text, plan.storage) if plan.storage in ("arena", "best") else text


def _decisions_on(text: str, plan: Plan) -> str:
    if plan.schedule.variants:
        chosen = [plan.graph.variants[i] for i in plan.schedule.variants]
        text = swap_json(text, {plan.graph.ops[v.op].name: v.name for v in chosen},
                         plan.graph.op_index.keys())
        return apply_recompute(text, _as_swapped(plan.graph, plan.schedule),
                               decisions_of(plan.graph, plan.schedule))
    recomputed = set(plan.schedule.recomputed())
    text = apply_recompute(text, plan.graph, decisions_of(plan.graph, plan.schedule))
    if plan.method == "sublinear":
        # For a MXNet without the plugin: the part of the plan that stock mirroring runs safely.
        text = apply_mirroring(text, plan.graph, safe_to_mirror(plan.graph, recomputed))
    return text


def _as_swapped(graph: Graph, schedule: Schedule) -> Graph:
    """The graph with variants in use, each gradient belonging to the op that was swapped in."""
    in_use = graph_in_use(graph, schedule)
    ops = list(in_use.ops)
    for index in schedule.variants:
        variant = graph.variants[index]
        for op, _ in variant.choices:
            if ops[op].is_backward and ops[op].runs:
                ops[op] = replace(ops[op], forward_op=variant.op)
    return replace(in_use, ops=tuple(ops))


def _first_markable(document: Mapping[str, Any]) -> int:
    """The first head, else any other op; extra attributes of Custom nodes reach the Python Prop."""
    nodes = document["nodes"]
    heads = [head[0] for head in document["heads"]]
    return next((index for index in [*heads, *range(len(nodes))]
                 if nodes[index]["op"] not in ("null", "Custom")), 0)


def _mark_nodes(document: Mapping[str, Any], texts: Mapping[str, str],
                in_graph: AbstractSet[str],
                mark: Callable[[Dict[str, Any], str], None]) -> None:
    """Call ``mark`` on every node named in ``texts``.

    The graph knows only the ops that MXNet left when it merged those that compute the same; the
    merged ones must carry the same attributes or they would differ now and no longer be merged.
    """
    nodes = document["nodes"]
    for node, name in zip(nodes, merged_into(nodes, in_graph)):
        if name is not None and name in texts:
            mark(node, texts[name])
