"""The views of a plan: its symbol, file, text, explanation, diagram and page.

:class:`memonger.plan.plan.Plan` is data; its methods find these by name.
"""
from __future__ import annotations

from ..mx.load import symbol_from_json as symbol
from ..plan.plan_file import save_plan
from ..report.diagram.render import diagram
from ..report.explain import explain
from ..report.html import fragment, write_html
from ..report.text import summary

__all__ = ["diagram", "explain", "fragment", "save_plan", "summary", "symbol", "write_html"]
