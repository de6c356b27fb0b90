"""Rows of the benchmark as terminal table, Markdown and JSON."""
from __future__ import annotations

import json
import re
from typing import Dict, List, Match, Optional, Sequence, Tuple

from memonger.report.formatting import format_extra, format_percent, markdown, table
from memonger.util.errors import InputError
from memonger.util.units import format_bytes
from memonger.util.version import __version__

from .cases import Row
from .published import Published

#: Header cells, and the sides they are aligned to.
_COMPARISON = (("network", "batch", "method", "target", "pool", "total", "total cut", "overhead",
                "bound", "planning", "status"), "<><<>>>>>><")
_PUBLISHED = (("published by", "network (batch)", "memory cut", "their extra time",
               "ours: measured", "predicted (variants)", "bound", "planning", "verdict"),
              "<<>>>>>><")
_MEASURED = (("network", "method", "target", "batch", "unplanned: measured", "predicted",
              "planned: measured", "predicted", "step time: measured", "predicted",
              "planned step"), "<<<>>>>>>>>")
_PUBLISHED_MEASURED = (("published", "network", "batch", "of", "their cut", "their overhead",
                        "measured at batch", "pool cut", "step time: measured", "predicted",
                        "planned step"), "<<><>>>>>>>")
_AT_A_GLANCE = (("network (batch)", "unplanned", "mirror", "sublinear", "chen", "ogc",
                 "auto:none, 50 %", "auto:exact, 50 %", "auto:exact, 25 %"), "<>>>>>>>>")

Cells = List[Tuple[str, ...]]


def comparison_cells(rows: Sequence[Row]) -> Cells:
    """One line a row."""
    cells: Cells = []
    for row in rows:
        head = (row.network, str(row.batch), row.method, row.target)
        if row.error:
            cells.append((*head, "", "", "", "", "", "", "%s: %s" % (row.status or "failed",
                                                                     row.error)))
            continue
        planned = row.method not in ("mxnet", "mirror")
        cells.append((*head, format_bytes(row.pool_bytes), format_bytes(row.total_bytes),
                      format_percent(row.total_cut), format_extra(row.overhead),
                      format_extra(row.bound) if planned and row.bound else "",
                      "%.1f s" % row.planning_s if planned else "", row.status))
    return cells


class Beside:
    """Our rows for one published row.

    ``rows``: our rows for it.
    """

    def __init__(self, published: Published, rows: Sequence[Row]) -> None:
        self.published = published
        #: By variants.
        self.at_cut: Dict[str, Row] = {row.method.partition(":")[2]: row for row in rows}

    @property
    def their_overhead(self) -> float:
        """Published extra step time; of a forward pass, by our op times."""
        share = 1.0
        if self.published.of_forward:
            share = next((r.forward for r in self.at_cut.values()), 0.0)
        return self.published.overhead * share

    @property
    def best(self) -> Optional[Row]:
        """Our cheapest row at their memory."""
        good = [row for row in self.at_cut.values() if not row.error]
        return min(good, key=lambda row: row.overhead) if good else None

    @property
    def verdict(self) -> str:
        """Whether the goal of at most half of the overhead is reached, and why not."""
        best = self.best
        if best is None:
            row = next(iter(self.at_cut.values()), None)
            return "not reached: %s" % (row.error if row else "not run")
        # Half of a gain would be less than the gain: there, equal is the goal.
        if best.overhead <= min(self.their_overhead / 2, self.their_overhead):
            return "at most half"
        if best.overhead < self.their_overhead:
            return "less, not half"
        return "behind"


def beside(rows: Sequence[Row]) -> List[Beside]:
    """Our rows grouped by the published row that they are compared with."""
    groups: Dict[Published, List[Row]] = {}
    for row in rows:
        if row.published is not None:
            groups.setdefault(row.published, []).append(row)
    return [Beside(published, found) for published, found in groups.items()]


def published_cells(rows: Sequence[Row], old: Sequence[Tuple[str, ...]] = ()) -> Cells:
    """One line for each published row: theirs, then ours, measured and predicted.

    One run predicts and another measures: what ``rows`` do not tell stays as in ``old``.
    """
    def key(group: Beside) -> Tuple[str, ...]:
        theirs = group.published
        return (theirs.system, "%s (%d)" % (theirs.network, theirs.batch),
                "%s of %s" % (format_percent(theirs.cut), theirs.scope))

    planned = {key(group): _predicted(group)
               for group in beside([row for row in rows if not row.measured])}
    measured = {key(group): _measured_overhead(group)
                for group in beside([row for row in rows if row.measured])}
    before = {line[:3]: line[3:] for line in old if len(line) == len(_PUBLISHED[0])}
    return [(*name, line[0], measured.get(name) or before.get(name, line)[1], *line[2:])
            for name, line in (planned or before).items()]


def _predicted(group: Beside) -> Tuple[str, ...]:
    best = group.best
    return (format_extra(group.their_overhead), "",
            "%s (%s)" % (format_extra(best.overhead), best.method.partition(":")[2])
            if best else "-",
            format_extra(best.bound) if best and best.bound else "",
            "%.1f s" % best.planning_s if best else "", group.verdict)


def _measured_overhead(group: Beside) -> str:
    found = [row.measured["overhead"] for row in group.at_cut.values()
             if row.measured and "overhead" in row.measured]
    return format_extra(min(found)) if found else ""


def measured_cells(rows: Sequence[Row]) -> Cells:
    """Predicted and measured, each in columns of its own."""
    cells: Cells = []
    for row in rows:
        found = row.measured
        if not found or row.published:
            continue
        head = (row.network, row.method, row.target, str(found["batch"]))
        if "error" in found:
            cells.append((*head, "", "", "", "", "", "", found["error"]))
            continue
        cells.append((
            *head,
            format_bytes(found["unplanned_bytes"]),
            format_bytes(found["predicted_unplanned_bytes"]), format_bytes(found["bytes"]),
            format_bytes(found["predicted_bytes"]), format_extra(found["overhead"]),
            format_extra(found["predicted_overhead"]), "%.3g s" % found["step_s"]))
    return cells


def published_measured_cells(rows: Sequence[Row]) -> Cells:
    """Measured step times beside the published rows."""
    cells: Cells = []
    for group in beside([row for row in rows if row.measured]):
        theirs = group.published
        for row in group.at_cut.values():
            found = row.measured or {}
            head = (theirs.system, theirs.network, str(theirs.batch), theirs.scope,
                    format_percent(theirs.cut), format_extra(group.their_overhead),
                    str(found["batch"]))
            if "error" in found:
                cells.append((*head, "", "", "", found["error"]))
                continue
            cells.append((*head, format_percent(found["pool_cut"]),
                          format_extra(found["overhead"]),
                          format_extra(found["predicted_overhead"]), "%.3g s" % found["step_s"]))
    return cells


def at_a_glance_cells(rows: Sequence[Row]) -> Cells:
    """One line a network: the cut of the total, and the extra step time that buys it."""
    columns = (("mirror", ""), ("sublinear", ""), ("chen", ""), ("ogc", ""),
               ("auto:none", "total 50%"), ("auto:exact", "total 50%"),
               ("auto:exact", "total 25%"))
    networks: Dict[Tuple[str, int], Dict[Tuple[str, str], Row]] = {}
    for row in rows:
        networks.setdefault((row.network, row.batch), {})[row.method, row.target] = row

    def cell(row: Optional[Row]) -> str:
        if row is None or row.error:
            return "" if row is None else "-"
        return "%s: %s" % (format_percent(row.total_cut), format_extra(row.overhead))

    return [("%s (%d)" % key,
             next((format_bytes(row.unplanned_total_bytes) for row in found.values()
                   if not row.error), ""),
             *(cell(found.get(column)) for column in columns))
            for key, found in networks.items()]


def sections(rows: Sequence[Row]) -> List[Tuple[str, Tuple[str, ...], str, Cells]]:
    """Title, header, alignment and cells of each table that the rows fill."""
    own = [row for row in rows if row.published is None]
    found = [("Methods", *_COMPARISON, comparison_cells(own)),
             ("Beside the published tables", *_PUBLISHED, published_cells(rows)),
             ("Measured", *_MEASURED, measured_cells(rows)),
             ("Measured beside the published tables", *_PUBLISHED_MEASURED,
              published_measured_cells(rows))]
    return [section for section in found if section[-1]]


def as_text(rows: Sequence[Row]) -> str:
    """Tables for a terminal."""
    return "\n\n".join("%s\n%s" % (title, table([header, *cells], align))
                       for title, header, align, cells in sections(rows))


def documented(rows: Sequence[Row], text: str) -> str:
    """A document with its tables made again.

    A table stands between ``<!-- benchmarks: NAME -->`` and ``<!-- end -->``; NAME is
    methods or published. Tables for which there are no rows stay.

    Raises InputError if a NAME is unknown.
    """
    planned = [row for row in rows if row.published is None and not row.measured]

    def fill(found: Match[str]) -> str:
        start, name, old, end = found.groups()
        lines = [tuple(map(str.strip, line.strip("|").split("|"))) for line in old.split("\n")]
        if name == "methods":
            columns, cells = _AT_A_GLANCE, at_a_glance_cells(planned)
        elif name == "published":
            columns, cells = _PUBLISHED, published_cells(rows, lines[2:])
        else:
            raise InputError("no table %r; there are methods and published" % name)
        return "%s\n%s\n%s" % (start, markdown(*columns, cells), end) if cells else found.group(0)

    return re.sub(r"(<!-- benchmarks: (\w+) -->)\n(.*?)(<!-- end -->)", fill, text,
                  flags=re.DOTALL)


def as_json(rows: Sequence[Row]) -> str:
    """All rows, with the version that made them."""
    return json.dumps({"memonger": __version__, "rows": [row.to_dict() for row in rows]},
                      indent=1, sort_keys=True) + "\n"


def from_json(text: str) -> List[Row]:
    """Inverse of :func:`as_json`."""
    return [Row.from_dict(item) for item in json.loads(text)["rows"]]
