"""What lies above this room, by name: the pages of plans, and the frontend that made one.

They are loaded when a plan is shown or read from a file, and only what that plan needs.
"""
from __future__ import annotations

from importlib import import_module
from typing import Any, Optional


def views() -> Any:
    """The module that shows plans."""
    return import_module("memonger.report.plan_views")


def frontend_of(original_json: Optional[str]) -> Any:
    """The hooks of the frontend whose network is written so; None for a graph without one.

    They are ``check(plan)``, ``symbol_json(plan)``, ``symbol(text, numpy_arrays)`` and
    ``reasons(plan, op, asked)``.
    """
    return None if original_json is None else import_module("memonger.mx.calls.plan_hooks")
