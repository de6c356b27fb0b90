"""Numbers in words and tables of words, as all reports write them."""
from __future__ import annotations

import os
from dataclasses import dataclass
from typing import List, Optional, Sequence

from ..plans.plan import UNIT_TIMES, UNKNOWN_TIME, Plan
from ..util.errors import RenderError
from ..util.units import format_bytes, format_plain


def format_time(time_s: float) -> str:
    """Write a time for people: ``"214 ms"``, ``"1.20 s"``, ``"35.0 us"``."""
    value, unit = time_s, "s"
    for smaller in ("ms", "us"):
        if abs(value) >= 1 or value == 0:
            break
        value, unit = value * 1000, smaller
    size = abs(value)
    return "%.*f %s" % (2 if size < 10 else 1 if size < 100 else 0, value, unit)


def format_percent(share: float) -> str:
    """Write a share: ``"13.6 %"``."""
    return "%.1f %%" % (100 * share)


def format_extra(share: float) -> str:
    """Write extra time: ``"+13.6 %"``; what rounds to nothing is ``"+0.0 %"``."""
    return "%+.1f %%" % (round(100 * share, 1) + 0.0)


def extra_time(plan: Plan, share: Optional[float] = None) -> str:
    """The extra time of a step with the plan, or ``share`` as a part of it, where it is known."""
    return format_extra(plan.overhead if share is None else share) if plan.time_is_known \
        else UNKNOWN_TIME


def was_tried(plan: Plan) -> bool:
    """Whether the plan's bytes are what a step took: compiled code is tried, an engine's is read.
    """
    return plan.predicted_pool_bytes is not None and plan.options.get("mode") == "inductor"


def with_plan(plan: Plan) -> str:
    """What a curve of the plan's graph is called, beside the total that was tried or predicted."""
    return "with this plan, predicted" if was_tried(plan) else "with this plan"


def tried_words(plan: Plan) -> List[str]:
    """One line for what a trial of the step found."""
    return ["with this plan the step took %s where %s were predicted" % (
        format_bytes(plan.pool_bytes), format_bytes(plan.planned.pool_by_graph_bytes))] \
        if was_tried(plan) else []


def ordinal(number: int) -> str:
    """``"1st"``, ``"2nd"``, ``"11th"``."""
    ending = "th" if number % 100 in (11, 12, 13) else \
        {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return "%d%s" % (number, ending)


def short_kind(kind: str) -> str:
    """An operator's name without its namespace and its default overload: ``aten.mm.default``."""
    namespace, *words = kind.split(".")
    return ".".join(words).rpartition(".default")[0] or ".".join(words) if len(words) == 2 else kind


def is_profile(source: str) -> bool:
    """Whether op times were measured; ``source`` is ``Plan.costs``."""
    return source.partition(": ")[0] == "profile"


def costs_words(source: str) -> str:
    """Where op times come from; ``source`` is ``Plan.costs``."""
    kind, _, whose = source.partition(": ")
    if is_profile(source):
        return "measured by memonger profile on " + whose
    if kind == "units":
        return "in the units of the graph's file"
    if kind != "roofline":
        return source
    if whose.partition(" ")[0] in ("reference", "reference,"):
        whose = whose.replace("reference", "a 10 TFLOP/s, 600 GB/s device", 1)
    return "estimated for %s; memonger profile measures them" % whose


def counted(number: int, noun: str) -> str:
    """``"1 op"``, ``"3 ops"``."""
    return "%d %s%s" % (number, noun, "" if number == 1 else "s")


@dataclass(frozen=True)
class Units:
    """How the sizes and times of a plan are written.

    Graphs of other planners keep the units of their file, so theirs are plain numbers; so are
    times where no op has one and each counts for the same.
    """

    plain: bool
    plain_times: bool = False

    @classmethod
    def of(cls, plan: Plan) -> "Units":
        plain = plan.graph.own_units
        return cls(plain, plain or plan.costs == UNIT_TIMES)

    def size(self, size_bytes: float) -> str:
        return format_plain(size_bytes) if self.plain else format_bytes(size_bytes)

    def time(self, time_s: float) -> str:
        return "{:,.6g}".format(time_s) if self.plain_times else format_time(time_s)


def shape_words(shape: Sequence[int]) -> str:
    return "x".join(map(str, shape))


def table(rows: Sequence[Sequence[str]], align: str, gap: int = 3) -> str:
    """Rows in columns; ``align`` holds ``<`` or ``>`` for each column.

    A row of one cell is a line of its own and has no say in the widths.
    """
    widths = [0] * len(align)
    for row in rows:
        if len(row) > 1:
            for column, cell in enumerate(row):
                widths[column] = max(widths[column], len(cell))
    lines: List[str] = []
    for row in rows:
        if len(row) == 1:
            lines.append(row[0])
            continue
        cells = [cell.ljust(width) if side == "<" else cell.rjust(width)
                 for cell, width, side in zip(row, widths, align)]
        lines.append((" " * gap).join(cells).rstrip())
    return "\n".join(lines)


def markdown(header: Sequence[str], align: str, rows: Sequence[Sequence[str]]) -> str:
    """Rows as a table in Markdown; ``align`` holds ``<`` or ``>`` for each column."""
    rule = "|%s|" % "|".join("---:" if side == ">" else "---" for side in align)
    return "\n".join(["| %s |" % " | ".join(header), rule,
                      *("| %s |" % " | ".join(row) for row in rows)])


def ending_of(path: str, endings: Sequence[str]) -> str:
    """The ending of a picture's file, ``"svg"`` say; RenderError where it is none of these."""
    ending = os.path.splitext(path)[1].lower().lstrip(".")
    if ending not in endings:
        raise RenderError("cannot draw a %r file; the ending must be one of %s"
                          % (path, ", ".join("." + name for name in endings)))
    return ending
