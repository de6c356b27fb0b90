"""Large lists of records, by column, for JSON: small files that read fast.

A column is a list, or ``{"of": distinct values, "at": positions}`` where few values repeat.
Columns that hold only defaults are left out.
"""
from __future__ import annotations

import json
from typing import Any, Dict, List, Mapping, Optional, Sequence

from ..graph.types import Graph, Implementation, Op, Tensor, Variant


def pack(rows: Sequence[Mapping[str, Any]],
         defaults: Optional[Mapping[str, Any]] = None) -> Dict[str, Any]:
    """Rows to columns; rows may lack keys that have a default."""
    keys = sorted({key for row in rows for key in row})
    return {"count": len(rows),
            "columns": {key: _pack_column([row[key] if key in row else (defaults or {})[key]
                                           for row in rows]) for key in keys}}


def unpack(data: Mapping[str, Any]) -> List[Dict[str, Any]]:
    """Inverse of :func:`pack`; every row has every key."""
    count = data["count"]
    names = sorted(data["columns"])
    lists = [_unpack_column(data["columns"][name]) for name in names]
    for name, values in zip(names, lists):
        if len(values) != count:
            raise ValueError("column %r has %d values, not %d" % (name, len(values), count))
    return [dict(zip(names, values)) for values in zip(*lists)] if names else [{}] * count


def _pack_column(values: List[Any]) -> Any:
    if values and all(type(value) is int for value in values):
        return values
    keys = [json.dumps(value, sort_keys=True) for value in values]
    index_of: Dict[str, int] = {}
    distinct: List[Any] = []
    for key, value in zip(keys, values):
        if key not in index_of:
            index_of[key] = len(distinct)
            distinct.append(value)
    if 2 * len(distinct) > len(values):
        return values
    return {"of": distinct, "at": [index_of[key] for key in keys]}


def _unpack_column(column: Any) -> List[Any]:
    if not isinstance(column, dict):
        return column
    distinct = column["of"]
    if any(index < 0 for index in column["at"]):
        raise ValueError("a column refers to a negative position")
    return [distinct[index] for index in column["at"]]


# ---------------------------------------------------------------------- graphs
def _defaults(record: type) -> Dict[str, Any]:
    fields = record.__dataclass_fields__  # type: ignore[attr-defined]
    return {name: list(field.default) if isinstance(field.default, tuple) else field.default
            for name, field in fields.items()}


def pack_graph(graph: Graph) -> Dict[str, Any]:
    """As ``Graph.to_dict``, by column."""
    data = graph.to_dict()
    parts = [{"op": index, **part} for index, op in enumerate(data["ops"])
             for part in op.pop("implementations")]
    return {**data, "tensors": pack(data["tensors"], _defaults(Tensor)),
            "ops": pack(data["ops"], _defaults(Op)),
            "variants": pack(data["variants"], _defaults(Variant)),
            "implementations": pack(list(map(_lean_inplace, parts)), _defaults(Implementation))}


def unpack_graph(data: Mapping[str, Any]) -> Graph:
    """Inverse of :func:`pack_graph`."""
    ops = list(map(_full_inplace, unpack(data["ops"])))
    parts: List[List[Dict[str, Any]]] = [[] for _ in ops]
    for part in map(_full_inplace, unpack(data["implementations"])):
        parts[part.pop("op")].append(part)
    name = "alternatives" if data.get("schema", 2) == 2 else "implementations"
    return Graph.from_dict({
        **data, "tensors": unpack(data["tensors"]), "variants": unpack(data["variants"]),
        "ops": [{**op, name: own} for op, own in zip(ops, parts)]})


def _lean_inplace(row: Mapping[str, Any]) -> Dict[str, Any]:
    if "inplace" not in row:
        return dict(row)
    return {**row, "inplace": [[item["input"], item["output"], int(item["identity"])]
                               for item in row["inplace"]]}


def _full_inplace(row: Mapping[str, Any]) -> Dict[str, Any]:
    if "inplace" not in row:
        return dict(row)
    return {**row, "inplace": [{"input": a, "output": b, "identity": bool(identity)}
                               for a, b, identity in row["inplace"]]}
