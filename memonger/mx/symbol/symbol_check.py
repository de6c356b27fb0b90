"""Checks that MXNet can load the JSON of a symbol; its own loader checks nothing.

An input that names a later node, or an output that its op does not have, ends the process there
or in the next pass. Here nothing is looked up in MXNet;
:func:`memonger.mx.rewrite.load.symbol_from_json` asks it how many outputs each op has.
"""
from __future__ import annotations

import re
from typing import Any, Dict, Iterator, List, Mapping, Tuple

from ...util.errors import InputError
from ...util.json_files import parse_json
from .common_subexpressions import attributes_of

#: MXNet writes the numbers of nodes and outputs with 32 bits.
_MOST = 2 ** 31
#: No op takes or makes more values; MXNet makes a name for each that an attribute promises.
_MOST_VALUES = 2 ** 16
#: Attributes of inputs; where MXNet upgrades a file it looks for that input without counting.
_OLD = re.compile(r"[^_]_(ctx_group|lr_mult|wd_mult|force_mirroring|mirror_stage)$")
_ATTRIBUTES = ("attrs", "attr", "param")
#: Ops with bodies, and their attributes that name places in them.
_LOOPS = {"_foreach": ("in_data_locs", "in_state_locs", "remain_locs"),
          "_while_loop": ("cond_input_locs", "func_input_locs", "func_var_locs"),
          "_cond": ("cond_input_locs", "then_input_locs", "else_input_locs")}


def checked_symbol(text: str) -> Dict[str, Any]:
    """The document in the JSON of a symbol, every reference in it to something before it.

    Raises InputError if it is no symbol, or one that contradicts itself; the message names the
    node.
    """
    document = parse_json(text)
    for graph in graphs_of(document):
        _check_graph(graph)
    return document


def graphs_of(document: Any) -> Iterator[Mapping[str, Any]]:
    """The graphs that nodes carry (bodies of loops), inner ones first, then the symbol itself."""
    _require(isinstance(document, dict), "the symbol is no JSON object")
    nodes = document.get("nodes")
    _require(isinstance(nodes, list), "the symbol has no list of nodes")
    for node in nodes:
        _require(isinstance(node, dict), "a node is no JSON object")
        inner = node.get("subgraphs", [])
        _require(isinstance(inner, list), "the subgraphs of a node are no list")
        for graph in inner:
            yield from graphs_of(graph)
    yield document


def _check_graph(graph: Mapping[str, Any]) -> None:
    nodes: List[Dict[str, Any]] = graph["nodes"]
    for index, node in enumerate(nodes):
        op, name = node.get("op"), node.get("name")
        _require(isinstance(op, str) and isinstance(name, str),
                 "node %d has no op or no name" % index)
        where = "node %d (%s)" % (index, name)
        _check_attributes(node, where)
        for entry in _list(node.get("inputs"), where + ", inputs"):
            check_entry(entry, index, nodes, where)
        for dependency in _list(node.get("control_deps", []), where + ", control_deps"):
            _require(_is_count(dependency, index), "%s waits for node %r, which is not before it"
                     % (where, dependency))
        _require(_is_count(node.get("backward_source_id", 0)), where + ": backward_source_id")
        _require(op != "null" or not node["inputs"], where + " is a variable that has inputs")
        _require(op not in _LOOPS or _loop_fits(node),
                 where + ": its bodies do not fit its inputs and attributes")
    variables = [index for index, node in enumerate(nodes) if node["op"] == "null"]
    _require(_list(graph.get("arg_nodes"), "arg_nodes") == variables,
             "arg_nodes are not the variables among the nodes")
    heads = _list(graph.get("heads"), "heads")
    _require(bool(heads), "the symbol has no heads")
    for entry in heads:
        check_entry(entry, len(nodes), nodes, "a head")
    for key, value in _mapping(graph.get("attrs", {}), "attrs").items():
        _require(isinstance(value, list) and len(value) == 2 and isinstance(value[0], str),
                 "the symbol's attribute %r" % key)
        _require(key != "mxnet_version" or (value[0] == "int" and _is_count(value[1])),
                 "mxnet_version is %r" % (value,))


def _loop_fits(node: Mapping[str, Any]) -> bool:
    """Check the positions in its bodies that a loop names; MXNet does not check them."""
    attributes = attributes_of(node)
    bodies, names = node.get("subgraphs", []), _LOOPS[node["op"]]
    try:
        sources = {name: [_count(text) for text in attributes[name].strip("[]()").split(",")
                          if text.strip()] for name in names}
        made, told = (_count(attributes[name]) for name in ("num_outputs", "num_args"))
        data = _count(attributes.get("num_out_data", "0"))
    except (KeyError, ValueError):
        return False
    inputs, heads = len(node["inputs"]), [len(body["heads"]) for body in bodies]
    sizes = [sum(inner["op"] == "null" for inner in body["nodes"]) for body in bodies]
    lengths = [len(sources[name]) for name in names]
    if told != inputs + len(bodies) or data > made or not all(
            0 <= place < inputs for name in names for place in sources[name]):
        return False
    if node["op"] == "_foreach":  # places in its body
        return heads == [made] and sizes == [inputs] and lengths[0] > 0 \
            and lengths[1] == made - data \
            and sorted(sum(sources.values(), [])) == list(range(inputs))
    if node["op"] == "_while_loop":  # places among its inputs, then in its second body
        variables = sources["func_var_locs"]
        return heads == [1, made] and sizes == lengths[:2] and len(variables) == made - data \
            and max(variables, default=0) < max(1, sizes[1])
    return heads == [1, made, made] and sizes == lengths


def _count(text: str) -> int:
    """A number as MXNet writes it; ValueError for anything else."""
    if not text.strip().isdecimal() or not text.isascii():
        raise ValueError(text)
    return int(text)


def check_entry(entry: Any, before: int, nodes: List[Dict[str, Any]], where: str) -> None:
    """Raise InputError unless ``entry`` is ``[node, output, version]`` of an earlier node."""
    _require(isinstance(entry, list) and len(entry) in (2, 3) and all(map(_is_count, entry)),
             "%s: %r is no [node, output, version]" % (where, entry))
    _require(entry[0] < before, "%s reads node %d, which is not before it" % (where, entry[0]))
    _require(nodes[entry[0]]["op"] != "null" or entry[1] == 0,
             "%s reads output %d of a variable" % (where, entry[1]))


def _check_attributes(node: Mapping[str, Any], where: str) -> None:
    for field in _ATTRIBUTES:
        for key, value in _mapping(node.get(field, {}), where).items():
            _require(isinstance(value, str), "%s: attribute %s is %r, not a text"
                     % (where, key, value))
            _require(node["op"] == "null" or not _OLD.search(key), "%s has the attribute %s of an "
                     "input, as MXNet 0.8 wrote it: load and save the file with MXNet once"
                     % (where, key))
            _require("\0" not in key + value, "%s: attribute %s has a zero in it" % (where, key))
            promised = value.strip()
            _require(not key.startswith("num_") or not promised.isdigit()
                     or key in ("num_filter", "num_hidden", "num_embed")
                     or int(promised) <= _MOST_VALUES, "%s: %s=%s is too many"
                     % (where, key, value))


def check_outputs(graph: Mapping[str, Any], counts: Mapping[int, int]) -> None:
    """Raise InputError where an entry names an output that its node does not have.

    ``graph``: one of :func:`graphs_of`.
    ``counts``: number of outputs of each op node, by index.
    """
    nodes = graph["nodes"]
    readers: List[Tuple[str, List[Any]]] = [
        ("node %d (%s)" % (i, node["name"]), node["inputs"]) for i, node in enumerate(nodes)]
    for where, entries in readers + [("a head", graph["heads"])]:
        for source, output, *_ in entries:
            _require(output < counts.get(source, 1), "%s reads output %d of %s, which has %d" % (
                where, output, nodes[source]["name"], counts.get(source, 1)))


def _is_count(value: Any, limit: int = _MOST) -> bool:
    return type(value) is int and 0 <= value < limit


def _list(value: Any, where: str) -> List[Any]:
    _require(isinstance(value, list), "%s: %r is no list" % (where, value))
    return value


def _mapping(value: Any, where: str) -> Mapping[str, Any]:
    _require(isinstance(value, dict), "%s: %r is no JSON object" % (where, value))
    return value


def _require(holds: bool, otherwise: str) -> None:
    if not holds:
        raise InputError("the symbol is damaged: " + otherwise)
