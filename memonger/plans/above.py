"""What lies above this room, by name: the pages of plans, and the frontend that made one.

They are loaded when a plan is shown or read from a file, and only what that plan needs.
"""
from __future__ import annotations

from importlib import import_module
from typing import Any, Mapping

from .record import Record


def views() -> Any:
    """The module that shows plans."""
    return import_module("memonger.report.plan_views")


def record_in(data: Mapping[str, Any]) -> Record:
    """The record in a plan file, in the class of the frontend that wrote it."""
    fields = {name: data[name] for name in ("by_device", "numpy_arrays") if name in data}
    if data["original_json"] is None:
        return Record(**fields)
    return import_module("memonger.mx.calls.symbol_record").SymbolRecord(
        original_json=data["original_json"], **fields)
