"""Graphs as earlier versions wrote them, in the form of today."""
from __future__ import annotations

from typing import Any, Dict, Mapping

from .records import Implementation

#: Of what ``Graph.to_dict`` makes.
SCHEMA = 3


def upgraded(data: Mapping[str, Any]) -> Mapping[str, Any]:
    """What ``Graph.to_dict`` made with an earlier schema, as it makes it now.

    Schema 2: an op has the fields of its first implementation and names the others "alternatives";
    a tensor is "pooled" or not. Pools in units of other planners may be called "live".

    Raises ValueError if the schema is newer.
    """
    schema = data.get("schema", 2)
    if schema not in (2, SCHEMA):
        raise ValueError("it has schema %r, and this memonger reads schemas 2 to %d"
                         % (schema, SCHEMA))
    if data.get("pools") == "live":
        data = {**data, "pools": "units"}
    if schema == SCHEMA:
        return data
    return {**data, "ops": [_op(op) for op in data["ops"]],
            "tensors": [_tensor(tensor) for tensor in data["tensors"]]}


def _tensor(tensor: Mapping[str, Any]) -> Dict[str, Any]:
    rest = dict(tensor)
    pooled = rest.pop("pooled", True)
    return {**rest, "space": "device" if pooled else "outside"}


def _op(op: Mapping[str, Any]) -> Dict[str, Any]:
    rest = dict(op)
    own = {name: rest.pop(name) for name in Implementation.__dataclass_fields__ if name in rest}
    own["runs"] = not rest.pop("placeholder", False)
    others = rest.pop("alternatives", ())
    return {**rest, "implementations": [own, *others]}
