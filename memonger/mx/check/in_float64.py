"""The same network in float64, the judge of what rounding does."""
from __future__ import annotations

import json
from typing import Any, Dict, Iterable, List, Mapping

from ..capture.binding import Arguments
from ..rewrite.apply import from_json
from ..symbol.common_subexpressions import symbol_text, to_json

_NARROW = ("float16", "float32")
#: mshadow's codes of float32 and float16, and that of float64.
_NARROW_CODES, _WIDE_CODE = ("0", "2"), "1"
#: These pass float64 on as it is.
_CASTS_OF_MIXED_PRECISION = ("amp_cast", "amp_multicast")


def symbol_data(symbol: Any) -> Dict[str, Any]:
    """What is in the symbol's JSON, casts of mixed precision included."""
    return dict(json.loads(to_json(symbol)))


def all_nodes(data: Mapping[str, Any]) -> Iterable[Dict[str, Any]]:
    """All nodes of a symbol, those inside of loops included."""
    for node in data["nodes"]:
        yield node
        for inner in node.get("subgraphs", ()):
            yield from all_nodes(inner)


def in_float64(symbol: Any) -> Any:
    """The symbol with float64 where it asks for float32 or float16."""
    data = symbol_data(symbol)
    for node in all_nodes(data):
        attributes = node.get("attrs", {})
        if node["op"] in _CASTS_OF_MIXED_PRECISION:
            continue
        if attributes.get("dtype") in _NARROW:
            attributes["dtype"] = "float64"
        if attributes.get("__dtype__") in _NARROW_CODES:
            attributes["__dtype__"] = _WIDE_CODE
    return from_json(symbol_text(data), symbol)


def wide_types(arguments: Arguments) -> Dict[str, str]:
    """The type of each argument and aux state in float64."""
    names: List[str] = [*arguments.names, *arguments.aux_names]
    return {name: "float64" if dtype in _NARROW else dtype
            for name, dtype in zip(names, [*arguments.dtypes, *arguments.aux_dtypes])}
