"""The notebooks of examples/, for tests that read and run them."""
from __future__ import annotations

import json
import runpy
from pathlib import Path
from typing import Any, Dict, List

ROOT = Path(__file__).resolve().parents[1]
#: Runs the source of a cell in a namespace: what it prints, and the value of its last line.
run_cell = runpy.run_path(str(ROOT / "tools" / "run_notebook.py"))["run_cell"]


def code_cells_of(name: str) -> List[Dict[str, Any]]:
    """The cells with code of a notebook, in order."""
    notebook = json.loads((ROOT / "examples" / name).read_text(encoding="utf-8"))
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
