"""Run a notebook and store its outputs in it, without Jupyter.

    python tools/run_notebook.py examples/plan_tour.ipynb

Code cells run one after the other in one namespace. What they print, and the value of a last
expression (as HTML, SVG or text), become their outputs, as in Jupyter.
"""
from __future__ import annotations

import ast
import contextlib
import io
import json
import sys
from typing import Any, Dict, List


def run_cell(source: str, namespace: Dict[str, Any]) -> List[Dict[str, Any]]:
    """Outputs of one code cell, in the notebook format."""
    module = ast.parse(source)
    last = module.body.pop() if module.body and isinstance(module.body[-1], ast.Expr) else None
    printed, value = io.StringIO(), None
    with contextlib.redirect_stdout(printed):
        exec(compile(module, "<cell>", "exec"), namespace)
        if last is not None:
            value = eval(compile(ast.Expression(last.value), "<cell>", "eval"), namespace)
    outputs: List[Dict[str, Any]] = []
    if printed.getvalue():
        outputs.append({"output_type": "stream", "name": "stdout",
                        "text": printed.getvalue().splitlines(keepends=True)})
    if value is not None:
        outputs.append({"output_type": "display_data", "metadata": {}, "data": shown(value)})
    return outputs


def shown(value: Any) -> Dict[str, Any]:
    """The value in the richest form that it has."""
    for method, kind in (("_repr_html_", "text/html"), ("_repr_svg_", "image/svg+xml")):
        text = getattr(value, method, lambda: None)()
        if text is not None:
            return {kind: text.splitlines(keepends=True)}
    return {"text/plain": repr(value).splitlines(keepends=True)}


def run_notebook(notebook: Dict[str, Any]) -> Dict[str, Any]:
    """The notebook with the outputs of its code cells; errors end it."""
    namespace: Dict[str, Any] = {"__name__": "__main__"}
    number = 0
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            number += 1
            cell["outputs"] = run_cell("".join(cell["source"]), namespace)
            cell["execution_count"] = number
    return notebook


def main() -> None:
    path = sys.argv[1]
    with open(path, encoding="utf-8") as file:
        notebook = run_notebook(json.load(file))
    with open(path, "w", encoding="utf-8") as file:
        json.dump(notebook, file, indent=1, ensure_ascii=False)
        file.write("\n")


if __name__ == "__main__":
    main()
