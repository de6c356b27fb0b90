"""The views of a plan: its symbol, file, text, explanation, diagram and page.

:class:`memonger.plan.plan.Plan` is data; ``memonger/__init__.py`` binds its methods to these.
"""
from __future__ import annotations

from ...plan.plan import Plan
from ...plan.plan_file import save_plan
from ...report import explain as explanation
from ...report.diagram.render import diagram
from ...report.html import fragment, write_html
from ...report.text import summary
from ..rewrite.load import symbol_from_json as symbol
from ..symbol.planned_symbol import planned_json
from ..symbol.refused_variants import reasons

__all__ = ["diagram", "explain", "fragment", "save_plan", "summary", "symbol", "symbol_json",
           "write_html"]


def explain(plan: Plan, op: str) -> str:
    """Why an op got its decision; see :func:`memonger.report.explain.explain`."""
    return explanation.explain(plan, op, reasons)


def symbol_json(plan: Plan) -> str:
    """The planned symbol of an MXNet plan."""
    return planned_json(plan.original_json or "", plan)
