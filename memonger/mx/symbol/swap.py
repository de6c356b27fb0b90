"""Other implementations of ops that keep less for backward: matching and rewriting.

A variant replaces a chain of one or more ops by a single one. The new op takes the name of the
chain's last op, so the names of outputs stay, and it takes the chain's parameters as they are, so
checkpoints stay. What was replaced travels in an attribute of the new op, and :func:`unswap_json`
puts it back. :mod:`memonger.mx.symbol.catalogue` has the catalogue. Everything works on the
symbol's JSON; no framework is needed.

    >>> options = candidates(symbol.tojson(remove_amp_cast=False))
    >>> options["relu0"]
    ['mask_relu']
    >>> swapped = swap_json(text, {"relu0": "mask_relu"})
"""
from __future__ import annotations

import json
from functools import lru_cache
from typing import AbstractSet, Any, Dict, List, Mapping, Optional, Sequence, Set, Tuple

from ...util.errors import InputError, UnknownOpError
from ...util.json_files import parse_json
from .catalogue import Attributes, VariantKind, catalogue, kind
from .common_subexpressions import attributes_of, merged_into, symbol_text

#: Attribute of a swapped-in op that holds what it stands for.
ORIGINAL = "__memonger_original__"


# ---------------------------------------------------------------------- reading a symbol
class _Nodes:
    """A symbol's JSON with the look-ups that matching needs."""

    def __init__(self, symbol_json: str):
        self.graph: Dict[str, Any] = json.loads(symbol_json)
        self.nodes: List[Dict[str, Any]] = self.graph["nodes"]
        self.uses: List[int] = [0] * len(self.nodes)
        for node in self.nodes:
            for source, _, _ in node["inputs"]:
                self.uses[source] += 1
        for head in self.graph["heads"]:
            self.uses[head[0]] += 1
        self.by_name: Dict[str, int] = {}
        #: Names of several ops: plans cannot say which they mean.
        self.ambiguous: Set[str] = set()
        for i, node in enumerate(self.nodes):
            if node["op"] != "null" and self.by_name.setdefault(node["name"], i) != i:
                self.ambiguous.add(node["name"])

    def chain(self, last: int, variant: VariantKind) -> List[int]:
        """Node ids of the chain that ends at ``last``; empty when the kinds do not fit."""
        chain = [last]
        for position in range(len(variant.chain) - 1, -1, -1):
            node = self.nodes[chain[0]]
            if node["op"] not in variant.chain[position] or node.get("subgraphs"):
                return []
            if position:
                source, output, _ = node["inputs"][0]
                # No other op may read the value in between.
                if output != 0 or self.uses[source] != 1:
                    return []
                chain.insert(0, source)
        return chain

    def refusal(self, ids: Sequence[int], variant: VariantKind) -> str:
        """"" or why the chain ``ids`` must stay as it is."""
        for i in ids:
            if self.nodes[i]["name"] in self.ambiguous:
                return "several ops are called %r" % self.nodes[i]["name"]
        return variant.refusal(self.attributes(ids))

    def attributes(self, ids: Sequence[int]) -> List[Attributes]:
        return [attributes_of(self.nodes[i]) for i in ids]


@lru_cache(maxsize=2)
def _parsed(symbol_json: str) -> _Nodes:
    """A parsed symbol, not to be changed; cached, because callers ask about one symbol op by op."""
    return _Nodes(symbol_json)


def candidates(symbol_json: str, exact_only: bool = False,
               on_gpu: bool = False) -> Dict[str, List[str]]:
    """For each op the variants that may take the place of the chain which it ends.

    Ops without any are left out, and for a GPU the variants that are not worth it there.
    """
    nodes = _parsed(symbol_json)
    result: Dict[str, List[str]] = {}
    for name, last in nodes.by_name.items():
        for variant in catalogue():
            ids = nodes.chain(last, variant)
            if ids and (variant.exact or not exact_only) and \
                    (variant.on_gpu or not on_gpu) and not nodes.refusal(ids, variant):
                result.setdefault(name, []).append(variant.name)
    return result


def refusals(symbol_json: str) -> Dict[str, Dict[str, str]]:
    """For each op the variants whose kinds fit and which are refused all the same, and why."""
    nodes = _parsed(symbol_json)
    result: Dict[str, Dict[str, str]] = {}
    for name, last in nodes.by_name.items():
        for variant in catalogue():
            ids = nodes.chain(last, variant)
            reason = nodes.refusal(ids, variant) if ids else ""
            if reason:
                result.setdefault(name, {})[variant.name] = reason
    return result


def members(symbol_json: str, op: str, variant: str) -> Tuple[str, ...]:
    """Names of the ops that ``variant`` at ``op`` replaces, first to last."""
    nodes = _parsed(symbol_json)
    return tuple(nodes.nodes[i]["name"] for i in _checked(nodes, op, kind(variant)))


def _checked(nodes: _Nodes, op: str, variant: VariantKind) -> List[int]:
    if op not in nodes.by_name:
        raise UnknownOpError("the symbol has no op %r" % op)
    ids = nodes.chain(nodes.by_name[op], variant)
    if not ids:
        raise InputError("variant %s does not fit op %r: it replaces %s, each value in between "
                         "used only once" % (variant.name, op, " then ".join(
                             " or ".join(kinds) for kinds in variant.chain)))
    reason = nodes.refusal(ids, variant)
    if reason:
        raise InputError("variant %s does not fit op %r: %s" % (variant.name, op, reason))
    return ids


# ---------------------------------------------------------------------- rewriting
def swap_json(symbol_json: str, choice: Mapping[str, str],
              in_graph: AbstractSet[str] = frozenset()) -> str:
    """The symbol with the chosen variants.

    ``symbol_json``: ``symbol.tojson(remove_amp_cast=False)``.
    ``choice``: op name (the last of its chain) to variant name.
    ``in_graph``: names of the ops that MXNet binds: what it merges into a chosen one is swapped
        along, so that it still is. Without them only what is chosen is swapped.
    Raises InputError if a variant does not fit its op, or two variants want the same op.
    """
    nodes = _Nodes(symbol_json)
    taken: Dict[int, str] = {}
    replaced: Dict[int, List[int]] = {}
    for op in sorted(choice):
        ids = _checked(nodes, op, kind(choice[op]))
        for i in ids:
            if i in taken:
                raise InputError("op %r is wanted by the variants at %r and at %r; choose one"
                                 % (nodes.nodes[i]["name"], taken[i], op))
            taken[i] = op
        replaced[ids[-1]] = ids
    merged: Dict[Optional[str], List[int]] = {}
    for i, into in enumerate(merged_into(nodes.nodes, in_graph)):
        merged.setdefault(into, []).append(i)
    for last, ids in replaced.items():
        name = nodes.nodes[last]["name"]
        variant = kind(choice[name])
        alike = [i for i in merged.get(name, ()) if i not in taken] if len(ids) == 1 else []
        for i in [last] + alike:
            nodes.nodes[i] = _fused(nodes.nodes, ids if i == last else [i], variant)
            taken[i] = name
    return _write(nodes.graph)


def _fused(nodes: Sequence[Dict[str, Any]], ids: Sequence[int],
           variant: VariantKind) -> Dict[str, Any]:
    """The new node; what it replaces is written into it with inputs by position."""
    inputs: List[List[int]] = []
    stored = []
    for position, i in enumerate(ids):
        wires = []
        for source, output, version in nodes[i]["inputs"]:
            if position and source == ids[position - 1]:
                wires.append([-1, output, version])  # the op before it in the chain
            else:
                inputs.append([source, output, version])
                wires.append([len(inputs) - 1, output, version])
        stored.append({**nodes[i], "inputs": wires})
    del stored[-1]["name"]  # the new op's; so equal ops stay equal
    last = attributes_of(nodes[ids[-1]])
    attributes = {k: v for k, v in last.items() if k.startswith("__") and k.endswith("__")}
    attributes.update(variant.attributes([attributes_of(nodes[i]) for i in ids]))
    attributes[ORIGINAL] = json.dumps(stored, sort_keys=True, separators=(",", ":"))
    return {"op": variant.op, "name": nodes[ids[-1]]["name"], "attrs": attributes,
            "inputs": inputs}


def unswap_json(symbol_json: str) -> str:
    """The symbol with every swapped-in op replaced by what it stands for.

    Raises InputError if what an op stands for is not to be read from its attribute.
    """
    graph = json.loads(symbol_json)
    nodes = graph["nodes"]
    for i in range(len(nodes)):
        stored = attributes_of(nodes[i]).get(ORIGINAL)
        if stored is None:
            continue
        chain, outer, before = _stored_chain(nodes[i], stored), nodes[i]["inputs"], -1
        for position, node in enumerate(chain):
            node["inputs"] = [[before, output, version] if source == -1 else outer[source]
                              for source, output, version in node["inputs"]]
            if position == len(chain) - 1:
                nodes[i] = {"name": nodes[i]["name"], **node}
            else:
                nodes.append(node)
                before = len(nodes) - 1
    return _write(graph)


def _stored_chain(node: Mapping[str, Any], stored: str) -> List[Dict[str, Any]]:
    """The nodes that ``_fused`` wrote into an attribute of ``node``."""
    try:
        chain = parse_json(stored)
        wires = [(place, wire) for place, inner in enumerate(chain) for wire in inner["inputs"]]
        if chain and all(len(wire) == 3 and -bool(place) <= wire[0] < len(node["inputs"])
                         for place, wire in wires) and all("op" in inner for inner in chain):
            return list(map(dict, chain))
        reason = "its inputs are not those of the op"
    except (InputError, TypeError, KeyError, ValueError) as error:
        reason = str(error)
    raise InputError("op %r does not tell what memonger put it in the place of: its attribute %s "
                     "is damaged (%s); take the original symbol" % (node["name"], ORIGINAL, reason))


def _write(graph: Dict[str, Any]) -> str:
    """JSON with the nodes that the heads need, in NNVM's order: depth first, inputs first."""
    nodes = graph["nodes"]
    order: List[int] = []
    seen: Set[int] = set()
    stack = [(-1, iter([head[0] for head in graph["heads"]]))]
    while stack:
        index, needs = stack[-1]
        following = next((other for other in needs if other not in seen), None)
        if following is not None:
            seen.add(following)
            stack.append((following, iter([*(wire[0] for wire in nodes[following]["inputs"]),
                                           *nodes[following].get("control_deps", ())])))
        else:
            stack.pop()
            order.append(index)
    order.pop()  # what stands for the heads
    index_of = {node: i for i, node in enumerate(order)}
    written = []
    for i in order:
        node = dict(nodes[i])
        node["inputs"] = [[index_of[wire[0]]] + list(wire[1:]) for wire in node["inputs"]]
        if "control_deps" in node:
            node["control_deps"] = [index_of[dep] for dep in node["control_deps"]]
        written.append(node)
    result = {k: v for k, v in graph.items() if k != "node_row_ptr"}
    result["nodes"] = written
    result["arg_nodes"] = [i for i, node in enumerate(written) if node["op"] == "null"]
    result["heads"] = [[index_of[head[0]]] + list(head[1:]) for head in graph["heads"]]
    return symbol_text(result)
