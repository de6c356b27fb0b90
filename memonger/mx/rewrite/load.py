"""Loads symbols from JSON of unknown origin, checked before MXNet sees it."""
from __future__ import annotations

from typing import Any, Dict, List, Mapping, Sequence

from ...util.errors import InputError
from ..capture.binding import first_line
from ..plugin import loading as native
from ..plugin.environment import mxnet
from ..symbol.common_subexpressions import symbol_text
from ..symbol.symbol_check import check_outputs, checked_symbol, graphs_of


def is_numpy(symbol: Any) -> bool:
    """Whether the arrays of a symbol are ``mx.np.ndarray``; its JSON does not tell."""
    return symbol is not None and isinstance(symbol, mxnet().sym.np._Symbol)


def of_kind(symbol: Any, numpy: bool) -> Any:
    """The symbol with arrays of NumPy's kind (``mx.sym.np._Symbol``), or of MXNet's."""
    return symbol.as_np_ndarray() if numpy else symbol.as_nd_ndarray()


def symbol_from_json(text: str, numpy: bool = False) -> Any:
    """A ``mx.sym.Symbol`` from its JSON, with the native plugin on where it can be loaded.

    ``numpy``: whether its arrays are ``mx.np.ndarray``, as in networks of ``npx.set_np()``.
    Raises InputError if the symbol is damaged, or MXNet does not know one of its operators.
    Raises PluginError if the symbol holds operators of the plugin, and that cannot be loaded.
    """
    document = checked_symbol(text)
    if '"op": "memonger_' in symbol_text(document) or native.available():
        native.load()
    for graph in graphs_of(document):
        check_outputs(graph, _output_counts(graph["nodes"], document.get("attrs", {})))
    # The checked document, not the text: of two fields of one name MXNet may take the other.
    return of_kind(_load(document), numpy)


def _load(document: Mapping[str, Any]) -> Any:
    try:
        return mxnet().sym.load_json(symbol_text(document))
    except Exception as error:
        raise InputError("MXNet cannot load the symbol: %s" % first_line(error)) from error


def _output_counts(originals: Sequence[Mapping[str, Any]],
                   version: Mapping[str, Any]) -> Dict[int, int]:
    """Number of outputs of each op, as MXNet reports it for a symbol of all ops side by side."""
    nodes: List[Dict[str, Any]] = []
    counts: Dict[int, int] = {}
    for index, node in enumerate(originals):
        if node["op"] == "null":
            continue
        first = len(nodes)
        nodes += [{"op": "null", "name": "input%d" % (first + i), "inputs": []}
                  for i in range(len(node["inputs"]))]
        inputs = [[first + i, 0, 0] for i in range(len(node["inputs"]))]
        nodes.append({**node, "name": str(index), "inputs": inputs, "control_deps": []})
        counts[index] = 0
    if not counts:
        return counts
    places = [place for place, node in enumerate(nodes) if node["op"] != "null"]
    apart = _load({
        "nodes": nodes, "heads": [[place, 0, 0] for place in places],
        "arg_nodes": sorted(set(range(len(nodes))) - set(places)),
        "attrs": version}).get_internals()
    variables = set(apart.list_inputs())
    for name in apart.list_outputs():
        if name not in variables:
            counts[int(name.split("_")[0])] += 1
    return counts
