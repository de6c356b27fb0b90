"""The tour notebook shows its stored outputs, and runs from first to last."""
from __future__ import annotations

import ast
import importlib
import inspect
import re
from typing import Any, Dict

import pytest
from notebooks import code_cells_of, run_cell


@pytest.fixture(scope="module")
def code_cells():
    return code_cells_of("plan_tour.ipynb")


def test_the_stored_notebook_shows_its_outputs(code_cells):
    assert len(code_cells) >= 10
    assert [cell["execution_count"] for cell in code_cells] == list(range(1, 1 + len(code_cells)))
    outputs = [output for cell in code_cells for output in cell["outputs"]]
    assert all(output["output_type"] in ("stream", "execute_result") for output in outputs)
    pictures = [output["data"]["image/svg+xml"] for output in outputs
                if "image/svg+xml" in output.get("data", {})]
    assert len(pictures) == 3 and all("</svg>" in "".join(picture) for picture in pictures)
    for cell in code_cells:
        assert ("print(" not in "".join(cell["source"])) or cell["outputs"][0]["text"]
    words = "".join("".join(output.get("text", ())) for output in outputs)
    assert "Same network" in words and "memonger" in words


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
    stored = "".join(code_cells[1]["outputs"][0]["text"])  # made with MKLDNN, like users' runs
    assert shown[1][0].split()[:3] == stored.split()[:3], "make pictures"
    assert re.search(r"\d+ of \d+ tensors of 2 steps identical, bit for bit", text)
    pictures = [value._repr_svg_() for _, value in shown if hasattr(value, "_repr_svg_")]
    assert len(pictures) == 3 and all("<svg" in picture for picture in pictures)
    assert any(hasattr(value, "_repr_html_") for _, value in shown)
    assert {"plan.json", "plan.html", "memory.svg", "frontier.svg"} <= {
        path.name for path in tmp_path.iterdir()}
