"""The views of a plan: its text, explanation, diagram, page and file."""
from __future__ import annotations

from ..plans.above import frontend_of
from ..plans.plan import Plan
from ..plans.plan_file import save_plan
from . import explain as explanation
from .diagram.render import diagram
from .html import fragment, write_html
from .measured import measurement_table
from .text import summary, verification_table

__all__ = ["diagram", "explain", "fragment", "measurement_table", "save_plan", "summary",
           "verification_table", "write_html"]


def explain(plan: Plan, op: str) -> str:
    """Why an op got its decision; see :func:`memonger.report.explain.explain`."""
    frontend = frontend_of(plan.original_json)
    return explanation.explain(plan, op, frontend and frontend.reasons)
