"""The tour notebook has no outputs of its own, runs from first to last, and shows its pictures."""
from __future__ import annotations

import ast
import contextlib
import importlib
import inspect
import io
import json
import re
from pathlib import Path
from typing import Any, Dict, Tuple

import pytest

NOTEBOOK = Path(__file__).resolve().parents[2] / "examples" / "plan_tour.ipynb"


def run_cell(source: str, namespace: Dict[str, Any]) -> Tuple[str, Any]:
    """What a code cell prints, and the value of its last expression."""
    module = ast.parse(source)
    last = module.body.pop() if module.body and isinstance(module.body[-1], ast.Expr) else None
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(module, "<cell>", "exec"), namespace)
        value = last and eval(compile(ast.Expression(last.value), "<cell>", "eval"), namespace)
    return printed.getvalue(), value


@pytest.fixture(scope="module")
def code_cells():
    notebook = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


def test_the_stored_notebook_has_no_outputs(code_cells):
    assert len(code_cells) >= 10
    assert not any(cell["outputs"] or cell["execution_count"] for cell in code_cells)


def test_calls_of_the_tour_are_those_there_are(code_cells):
    tree = ast.parse("\n".join("".join(cell["source"]) for cell in code_cells))
    imports = [node for node in ast.walk(tree)
               if isinstance(node, ast.ImportFrom) and str(node.module).startswith("memonger")]
    functions = {alias.name: getattr(importlib.import_module(str(node.module)), alias.name)
                 for node in imports for alias in node.names}
    calls = [node for node in ast.walk(tree)
             if isinstance(node, ast.Call) and getattr(node.func, "id", None) in functions]
    assert {call.func.id for call in calls} == set(functions) != set()
    for call in calls:
        inspect.signature(functions[call.func.id]).bind(
            *call.args, **{str(word.arg): word.value for word in call.keywords})


@pytest.mark.slow
def test_the_tour_runs(code_cells, tmp_path, monkeypatch):
    pytest.importorskip("mxnet")
    monkeypatch.chdir(tmp_path)
    namespace: Dict[str, Any] = {"__name__": "__main__"}
    shown = [run_cell("".join(cell["source"]), namespace) for cell in code_cells]
    text = "".join(printed for printed, _ in shown)
    assert re.search(r"\d+ of \d+ tensors of 2 steps identical, bit for bit", text)
    pictures = [value._repr_svg_() for _, value in shown if hasattr(value, "_repr_svg_")]
    assert len(pictures) == 3 and all("<svg" in picture for picture in pictures)
    assert any(hasattr(value, "_repr_html_") for _, value in shown)
    assert {"plan.json", "plan.html", "memory.svg", "frontier.svg"} <= {
        path.name for path in tmp_path.iterdir()}
