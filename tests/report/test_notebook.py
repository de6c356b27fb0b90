"""The tour notebook runs, and shows what it showed when it was written."""
from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOK = ROOT / "examples" / "plan_tour.ipynb"


@pytest.fixture(scope="module")
def runner():
    path = ROOT / "tools" / "run_notebook.py"
    specification = importlib.util.spec_from_file_location("run_notebook", path)
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def kinds(notebook):
    """For each cell the kinds of its outputs."""
    return [[sorted(output.get("data", ["stdout"])) for output in cell.get("outputs", [])]
            for cell in notebook["cells"]]


def test_cells_run_one_after_the_other(runner):
    class Shown:
        def _repr_svg_(self):
            return "<svg/>"
    namespace = {"Shown": Shown}
    assert runner.run_cell("a = 2\nprint(a)", namespace) == [
        {"output_type": "stream", "name": "stdout", "text": ["2\n"]}]
    assert runner.run_cell("a + 1", namespace)[0]["data"] == {"text/plain": ["3"]}
    assert runner.run_cell("Shown()", namespace)[0]["data"] == {"image/svg+xml": ["<svg/>"]}
    assert runner.run_cell("b = a", namespace) == []
    with pytest.raises(ZeroDivisionError):
        runner.run_cell("1 / 0", namespace)


def test_the_stored_tour_has_its_pictures():
    shown = [kind for cell in kinds(json.loads(NOTEBOOK.read_text(encoding="utf-8")))
             for output in cell for kind in output]
    assert shown.count("image/svg+xml") == 3
    assert "text/html" in shown


@pytest.mark.slow
def test_the_tour_runs(runner, tmp_path, monkeypatch):
    pytest.importorskip("mxnet")
    monkeypatch.chdir(tmp_path)
    stored = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
    expected = kinds(stored)
    again = runner.run_notebook(stored)
    assert kinds(again) == expected
    text = json.dumps(again)
    assert "planned and original train the same network" in text
    assert {"plan.json", "plan.html", "memory.svg", "frontier.svg"} <= {
        path.name for path in tmp_path.iterdir()}
