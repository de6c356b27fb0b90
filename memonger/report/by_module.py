"""What each module takes, as a table."""
from __future__ import annotations

from typing import Dict, List, Sequence

from ..plans.by_module import ModuleBytes, StepEstimate
from ..plans.categories import CATEGORIES
from .formatting import format_percent, table
from .text import estimate_table, headline

#: The most rows for modules, and the share of the peak below which a module is one row.
_ROWS, _SHARE = 24, 0.04
_OF_PLAIN_PYTORCH = "a step of plain PyTorch; plans, and budgets in percent, are compared with " \
    "the unplanned step of their mode, which estimate gives with a mode"
_COLUMNS = {"parameters": "parameter_bytes", "buffers": "buffer_bytes",
            "gradients": "gradient_bytes", "optimizer": "optimizer_bytes", "kept": "kept_bytes",
            "at the peak": "peak_bytes"}


def table_by_module(estimate: StepEstimate) -> str:
    """The step's worst moment, what each module takes, and the sums by category."""
    size, total_bytes = estimate.graph.format_size, estimate.total_bytes
    columns = {title: name for title, name in _COLUMNS.items()
               if any(getattr(m, name) for m in estimate.modules)}
    rows = [["module", *columns, "share"]]

    def row(label: str, numbers: Sequence[int]) -> None:
        rows.append([label, *(size(n) if n else "" for n in numbers),
                     format_percent(numbers[-1] / total_bytes) if total_bytes else ""])
    for label, members in _shown(estimate.modules, total_bytes).items():
        row(label, [sum(getattr(m, name) for m in members) for name in columns.values()])
    for name in ("inputs", "buckets"):
        if estimate.fixed_bytes.get(name):
            row(CATEGORIES[name], [*[0] * (len(columns) - 1), estimate.fixed_bytes[name]])
    row("sum", [*(sum(getattr(m, name) for m in estimate.modules)
                  for name in list(columns.values())[:-1]), total_bytes])
    return "\n".join([headline(estimate), _OF_PLAIN_PYTORCH,
                      "its worst moment: %s" % estimate.moment,
                      table(rows, "<" + ">" * (len(columns) + 1)), "",
                      estimate_table({**estimate.fixed_bytes, "pool": estimate.pool_bytes},
                                     graph=estimate.graph),
                      *("note: " + note for note in estimate.notes)])


def _shown(modules: Sequence[ModuleBytes], total_bytes: int) -> Dict[str, List[ModuleBytes]]:
    """Modules by the row that shows them: the largest rows are divided first."""
    rows: Dict[str, List[ModuleBytes]] = {"": list(modules)}
    whole: List[str] = []  # what need not be divided

    def peak_bytes(path: str) -> int:
        return sum(module.peak_bytes for module in rows[path])
    while len(rows) < _ROWS:
        path = max((p for p in rows if p not in whole), key=peak_bytes, default=None)
        if path is None or path and peak_bytes(path) < _SHARE * total_bytes:
            break
        parts: Dict[str, List[ModuleBytes]] = {}
        for module in rows[path]:
            inner = module.path[len(path):].strip(".").partition(".")[0]
            parts.setdefault(".".join(filter(None, (path, inner))), []).append(module)
        if path and len(rows) + len(parts) - 1 > _ROWS:
            whole.append(path)
            continue
        # In the order of the network, in the place of what is divided.
        rows = {name: members for old, kept in rows.items()
                for name, members in (parts.items() if old == path else [(old, kept)])}
        whole.append(path)
    return {label or "(outside its modules)": members for label, members in rows.items()
            if any(m.peak_bytes or m.kept_bytes or m.parameter_bytes for m in members)}
