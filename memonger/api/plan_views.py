"""The views of a plan: its symbol, file, text, explanation, diagram and page.

:class:`memonger.plan.plan.Plan` is data; its methods find these by name.
"""
from __future__ import annotations

from typing import Any

from ..plan.plan_file import save_plan
from ..report.diagram.render import diagram
from ..report.explain import explain
from ..report.html import fragment, write_html
from ..report.text import summary

__all__ = ["diagram", "explain", "fragment", "save_plan", "summary", "symbol", "write_html"]


def symbol(text: str) -> Any:
    """The ``mx.sym.Symbol`` of a JSON text, with the native plugin loaded where it can be."""
    from ..mx import symbol_from_json
    return symbol_from_json(text)
