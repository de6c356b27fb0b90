"""The views of a plan: its text, explanation, diagram, page and file."""
from __future__ import annotations

from ..plans.plan_file import save_plan
from .by_module import table_by_module
from .diagram.render import diagram
from .explain import explain
from .html import fragment, write_html
from .measured import measurement_table
from .text import summary, verification_table

__all__ = ["diagram", "explain", "fragment", "measurement_table", "save_plan", "summary",
           "table_by_module", "verification_table", "write_html"]
