"""The HTML report: one file that needs nothing else, and the short form for notebooks."""
from __future__ import annotations

import json
import os
import platform
import re
import shlex
from dataclasses import replace
from html import escape
from typing import Any, Dict, Iterable, List, Sequence, Tuple

from ..graph.types import Graph
from ..plans.categories import category_names
from ..plans.plan import Plan
from ..util.errors import RenderError
from ..util.files import write_whole
from ..util.units import format_bytes
from ..util.version import __version__, installed
from .charts.timeline import common_steps
from .diagram.dot import remarks
from .diagram.folding import folded
from .diagram.model import LEGEND, draw
from .diagram.render import picture
from .facts import Facts
from .formatting import (
    Units,
    costs_words,
    extra_time,
    format_extra,
    format_percent,
    format_time,
    tried_words,
    was_tried,
    with_plan,
)
from .measured import measured_words
from .page_data import page_data
from .text import summary_rows

TEMPLATE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "plan.html")
#: A larger diagram stays out of the page, which then says how to get it.
MAX_DIAGRAM_BYTES = 400_000


def write_html(plan: Plan, path: str, sweep: Sequence[Plan] = ()) -> None:
    """Write the report of a plan, whole or not at all; see :func:`page`."""
    write_whole(path, page(plan, sweep))


def page(plan: Plan, sweep: Sequence[Plan] = ()) -> str:
    """The report as text.

    Parameters
    ----------
    plan : Plan
    sweep : sequence of Plan
        Plans of the same network for other budgets, for the frontier.
    """
    facts = Facts(plan)
    with open(TEMPLATE, encoding="utf-8") as file:
        template = file.read()
    data = json.dumps(page_data(facts, sweep), separators=(",", ":"), sort_keys=True)
    parts = {
        "TITLE": escape(plan.graph.name or "network"),
        "CARDS": _cards(facts),
        "SUMMARY": _summary(facts),
        "DIAGRAM": _diagram(plan),
        "PEAKS": _peaks(facts),
        "FACTS": _facts(plan),
        "VERSIONS": escape(" · ".join("%s %s" % item for item in versions(plan.graph))),
        # "</script>" inside the data would end it.
        "DATA": data.replace("<", "\\u003c"),
    }
    return re.sub("<!--([A-Z]+)-->", lambda match: parts[match.group(1)], template)


def fragment(plan: Plan) -> str:
    """The plan for a notebook: the summary table and a small timeline."""
    facts = Facts(plan)
    table = re.sub("<(t[hd])>", r'<\1 style="padding:2px 8px;text-align:right">', _summary(facts))
    return ('<div style="font-family:sans-serif;font-size:13px"><b>%s</b>%s%s</div>'
            % (escape(plan.graph.name or "network"), table.replace(
                "<table ", '<table style="font-size:13px;border-collapse:collapse" '),
               _small_timeline(facts)))


# ---------------------------------------------------------------------- parts of the page
def _cards(facts: Facts) -> str:
    plan, units = facts.plan, Units.of(facts.plan)
    base = plan.baseline_total_bytes
    saved = 1 - plan.total_bytes / base if base else 0.0
    again, variants = facts.extra_shares
    measured_memory, measured_time = _measured(plan)
    how = "; with this plan as measured in a trial" if was_tried(plan) else \
        ", predicted" if measured_memory else ""
    cards = [("memory", "%s → %s" % (units.size(base), units.size(plan.total_bytes)),
              "%s less in total%s" % (format_percent(saved), how), measured_memory),
             ("step time", extra_time(plan),
              "%s → %s%s" % (units.time(plan.graph.time_s),
                             units.time(plan.schedule.time_s(plan.graph))
                             if plan.time_is_known else "?",
                             ", predicted" * bool(measured_time)), measured_time),
             ("recomputed", "%d of %d ops" % (sum(f.again > 0 for f in facts.ops),
                                              len(plan.decisions)),
              "%s of a step%s" % (format_extra(again), "; variants " + extra_time(plan, variants)
                                  if plan.schedule.variants else ""), ""),
             ("status", plan.status.value, plan.status.advice, "")]
    return _with_units("".join('<div class="card"><h3>%s</h3><b>%s</b><span>%s</span>%s</div>' % (
        *map(escape, card[:3]), card[3] and '<span class="measured">measured: %s</span>'
        % escape(card[3])) for card in cards))


def _with_units(text: str) -> str:
    """No line ends between a number and its unit."""
    return re.sub(r"(\d) (?=%|[KMGT]?i?B\b|[mu]?s\b)", "\\1\u00a0", text)


def _measured(plan: Plan) -> Tuple[str, str]:
    """What a process took of memory and of time, unplanned and planned; empty where nothing was
    measured."""
    measured = plan.measured or {}
    if "allocated_bytes" not in measured:
        return "", ""
    memory, step = format_bytes(measured["allocated_bytes"]), format_time(measured["step_s"])
    original = measured.get("original")
    if not original:
        return memory, step
    return ("%s → %s" % (format_bytes(original["allocated_bytes"]), memory),
            "%s, %s → %s" % (format_extra(measured["overhead"]),
                             format_time(original["step_s"]), step))


def _summary(facts: Facts) -> str:
    head, *rows = summary_rows(facts)
    return '<table class="summary">%s</table>' % _rows(head, rows)


def _rows(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Rows of a table below its head."""
    return "".join("<tr>%s</tr>" % "".join(
        "<%s>%s</%s>" % (tag, escape(cell), tag) for cell in cells)
        for tag, cells in [("th", head), *(("td", row) for row in rows)])


def _diagram(plan: Plan) -> str:
    drawing = folded(draw(plan))
    try:
        svg = picture(replace(drawing, title=""), "svg").decode("utf-8")
    except RenderError as error:
        return '<p id="diagram">No diagram: %s.</p>' % escape(str(error))
    svg = svg[svg.index("<svg"):]
    if len(svg) > MAX_DIAGRAM_BYTES:
        return ('<p id="diagram">The diagram of this network is too large for this page; '
                '<code>memonger report plan.json --graph plan.svg</code> draws it.</p>')
    colours = "".join('<span class="tag" style="background:%s">%s</span> '
                      % tuple(map(escape, LEGEND[group])) for group in drawing.legend)
    return '<div class="controls" id="colours">%s<br>%s</div><div id="diagram">%s</div>' % (
        colours, "<br>".join(map(escape, remarks(drawing, drawing.edges))), svg)


def _peaks(facts: Facts, count: int = 10) -> str:
    units, across = Units.of(facts.plan), common_steps(facts)
    parts, unplanned = [], facts.baseline_timeline
    # Inductor computes some values again by itself.
    as_it_is = facts.plan.storage != "live" or \
        unplanned.pool_bytes == facts.plan.baseline_pool_bytes
    label = "unplanned" if as_it_is else "unplanned, if it kept all values"
    for title, line in ((label, unplanned), (with_plan(facts.plan), facts.timeline)):
        alive, x = line.at_peak, across(line)
        rows = [(block.tensor, units.size(block.bytes), block.category, "%s to %s" % (
            _place(x[block.start]), _place(x[min(block.end, len(line) - 1)])))
            for block in alive[:count]]
        if alive[count:]:
            rows.append(("%d smaller" % (len(alive) - count),
                         units.size(sum(p.bytes for p in alive[count:])), "", ""))
        where = "at step %s, %s" % (_place(x[line.peak_step]), line.names[line.peak_step]) \
            if line.peak_step >= 0 else "nothing is alive"
        parts.append("<div><h3>%s: %s %s</h3><table>%s</table></div>" % (
            title, units.size(line.peak_live_bytes), escape(where),
            _rows(("tensor", "size", "kind", "steps"), rows)))
    return "".join(parts)


def _place(x: float) -> str:
    """A place on the timeline's axis; repeated runs stand between two steps."""
    return ("%.1f" % x).replace(".0", "")


def _facts(plan: Plan) -> str:
    units = Units.of(plan)
    words = category_names(plan.graph)
    rows: List[Tuple[str, str]] = [(words.get(name, name), units.size(size))
             for name, size in sorted(plan.fixed_bytes.items()) if size]
    rows += [("method", plan.method), ("op times", costs_words(plan.costs)),
             ("graph", plan.graph.fingerprint)]
    if plan.budget_bytes is not None and plan.bound and plan.time_is_known:
        rows.append(("least extra time at this budget", format_extra(plan.bound)))
    if plan.minimum_total_bytes is not None:
        rows.append(("least total", units.size(plan.minimum_total_bytes)))
    rows += [("tried", words) for words in tried_words(plan)]
    rows += [("measured", words) for words in measured_words(plan.measured or {})]
    if plan.unchecked:
        rows.append(("taken from its file, not checked again", ", ".join(plan.unchecked)))
    rows += [("note", note) for note in plan.notes]
    # No line ends within an option.
    command = " ".join("<span>%s</span>" % escape(word)
                     for word in command_line(plan).split())
    return "<table><tr><th>command</th><td>%s</td></tr>%s</table>" % (command, "".join(
        "<tr><th>%s</th><td>%s</td></tr>" % (escape(key), escape(value)) for key, value in rows))


def command_line(plan: Plan) -> str:
    """The command, or of a ready plan the call, that makes this plan, as far as options tell."""
    options: Dict[str, Any] = dict(plan.options)
    if "share" in options:
        return 'memonger.zoo.load("%s", "%g%%")' % (options["network"], 100 * options["share"])
    if plan.by_device:  # the command line has no places
        return "memonger.plan(symbol, budget=%r, group2ctx=...)" % (options.get("budget"),)
    if "torch" in options and "model" not in options:
        return "memonger.torch.plan(module, inputs, budget=%r, mode=%r)" % (
            options.get("budget"), options.get("mode"))
    ending = "-symbol.json" if plan.graph.shares_buffers else ".json"
    words = ["memonger", "plan", options.get("model") or (plan.graph.name or "network") + ending]
    for name, shape in sorted((options.get("shapes") or {}).items()):
        words += ["--shape", "%s=%s" % (name, ",".join(map(str, shape)))]
    for name, dtype in sorted((options.get("type_dict") or {}).items()):
        words += ["--type", "%s=%s" % (name, dtype)]
    requests = options.get("grad_req") or "write"
    for request in [requests] if isinstance(requests, str) else [
            "%s=%s" % pair for pair in sorted(requests.items())]:
        if request.rpartition("=")[2] != "write":
            words += ["--grad-req", request]
    for text in options.get("inputs") or ():
        words += ["--input", text]
    for key in ("mode", "budget", "overhead", "method", "variants", "costs", "max_clones",
                "time_limit"):
        if options.get(key) not in (None, "auto", 0):
            words += ["--" + key.replace("_", "-"), "%g" % options[key]
                      if isinstance(options[key], float) else str(options[key])]
    if options.get("host_budget_bytes") is not None:
        words += ["--host", str(options["host_budget_bytes"]),
                  "--link", "%dB/s" % options["link_bytes_per_s"]]
    if options.get("optimizer"):
        parameters = sorted((options.get("optimizer_params") or {}).items())
        words += ["--optimizer", ",".join([options["optimizer"],
                                           *("%s=%s" % pair for pair in parameters)])]
    for key in ("keep", "recompute"):
        asked = options.get(key) or ()
        for pattern in [asked] if isinstance(asked, str) else asked:
            words += ["--" + key, pattern]
    return " ".join(map(shlex.quote, words + ["-o", "plan.json"]))


def versions(graph: Graph) -> List[Tuple[str, str]]:
    """memonger's version, Python's, and those of the libraries that are installed."""
    frameworks = ("mxnet", "mxnet-cu112") if graph.shares_buffers else ("torch",)
    libraries = [(name, installed(name)) for name in (*frameworks, "numpy", "highspy")]
    return [("memonger", __version__), ("Python", platform.python_version()),
            *((name, version) for name, version in libraries if version)]


def _small_timeline(facts: Facts, width: int = 640, height: int = 130) -> str:
    """Live bytes without and with the plan, as a small SVG."""
    across = common_steps(facts)
    planned, unplanned = facts.timeline, facts.baseline_timeline
    top = max(unplanned.pool_bytes, planned.pool_bytes, 1)
    wide = max(len(unplanned) - 1, 1)

    def points(line: Any) -> str:
        # The largest step of each pixel.
        best: Dict[int, int] = {}
        for x, live in zip(across(line), line.live_bytes):
            pixel = round(x * width / wide)
            best[pixel] = max(best.get(pixel, 0), live)
        return " ".join("%d,%.1f" % (pixel, height - height * live / top)
                        for pixel, live in sorted(best.items()))

    def pool(line: Any, colour: str) -> str:
        y = height - height * line.pool_bytes / top
        return ('<line x1="0" x2="%d" y1="%.1f" y2="%.1f" stroke="%s" stroke-dasharray="4,3"/>'
                % (width, y, y, colour))

    return ('<svg width="%d" height="%d" viewBox="0 -4 %d %d" style="margin-top:6px">'
            '<polygon points="0,%d %s %d,%d" fill="#fdd0a2"/>'
            '<polyline points="%s" fill="none" stroke="#636363"/>%s%s</svg>'
            '<div style="color:#666">grey: unplanned; orange: %s; dashed: the most'
            '</div>' % (width, height + 8, width, height + 8, height, points(planned), width,
                        height, points(unplanned), pool(unplanned, "#636363"),
                        pool(planned, "#d94801"), with_plan(facts.plan)))
