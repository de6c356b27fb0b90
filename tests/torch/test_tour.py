"""examples/torch_tour.ipynb shows its stored outputs, and runs from first to last."""
from __future__ import annotations

import re

import pytest
from notebooks import code_cells_of, run_cell


@pytest.fixture(scope="module")
def code_cells():
    return code_cells_of("torch_tour.ipynb")


def printed_by(cell) -> str:
    return "".join("".join(output.get("text", ())) for output in cell["outputs"])


def test_the_stored_notebook_shows_its_outputs(code_cells):
    assert [cell["execution_count"] for cell in code_cells] == list(range(1, 1 + len(code_cells)))
    shown = [kind for cell in code_cells for output in cell["outputs"]
             for kind in output.get("data", {})]
    assert {"text/html", "image/svg+xml"} <= set(shown)
    for cell in code_cells:
        assert ("print(" in "".join(cell["source"])) == bool(printed_by(cell))
    text = "".join(map(printed_by, code_cells))
    assert "identical, bit for bit" in text and "the loss falls: True" in text


@pytest.mark.slow
def test_the_tour_runs_and_prints_what_it_stores(code_cells, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    namespace = {"__name__": "__main__"}
    for cell in code_cells:
        printed, _ = run_cell("".join(cell["source"]), namespace)
        # Bytes depend on what operators of this machine allocate in these cells alone.
        if "mt.measure" in "".join(cell["source"]):
            predicted, allocated, unplanned = map(float, re.findall(r"([\d.]+) MiB", printed))
            assert predicted == allocated < unplanned, printed
        else:
            without_time = re.compile(r"found in .*|(?<=status: )\w+.*")
            assert without_time.sub("", printed) == without_time.sub("", printed_by(cell))
