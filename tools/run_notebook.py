"""Run a notebook's code cells in order and store what they show: run_notebook.py NOTEBOOK.

Needs no Jupyter. Files that the cells write stay in the current folder.
"""
from __future__ import annotations

import ast
import contextlib
import io
import json
import sys
from typing import Any, Dict, List, Optional, Tuple


def run_cell(source: str, namespace: Dict[str, Any]) -> Tuple[str, Any]:
    """What a code cell prints, and the value of its last expression."""
    module = ast.parse(source)
    last = module.body.pop() if module.body and isinstance(module.body[-1], ast.Expr) else None
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(module, "<cell>", "exec"), namespace)
        value = last and eval(compile(ast.Expression(last.value), "<cell>", "eval"), namespace)
    return printed.getvalue(), value


def outputs(printed: str, value: Any, number: int) -> List[Dict[str, Any]]:
    """A cell's outputs in the notebook's format."""
    stored: List[Dict[str, Any]] = []
    if printed:
        stored.append({"name": "stdout", "output_type": "stream",
                       "text": printed.splitlines(True)})
    if value is not None:
        data = {"text/plain": ["<%s>" % type(value).__name__]}
        html, svg = _html(value), _svg(value)
        if html is not None:
            data["text/html"] = html.splitlines(True)
        if svg is not None:
            data["image/svg+xml"] = svg.splitlines(True)
        stored.append({"data": data, "execution_count": number, "metadata": {},
                       "output_type": "execute_result"})
    return stored


def _html(value: Any) -> Optional[str]:
    return value._repr_html_() if hasattr(value, "_repr_html_") else None


def _svg(value: Any) -> Optional[str]:
    if hasattr(value, "_repr_svg_"):
        return value._repr_svg_()
    return value.pipe(format="svg").decode("utf-8") if hasattr(value, "pipe") else None


def main(path: str) -> None:
    with open(path, encoding="utf-8") as file:
        notebook = json.load(file)
    namespace: Dict[str, Any] = {"__name__": "__main__"}
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    for number, cell in enumerate(cells, 1):
        cell["outputs"] = outputs(*run_cell("".join(cell["source"]), namespace), number)
        cell["execution_count"] = number
    with open(path, "w", encoding="utf-8") as file:
        json.dump(notebook, file, indent=1, ensure_ascii=False)
        file.write("\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
