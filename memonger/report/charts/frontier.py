"""The frontier of budgets: what each amount of memory costs in time."""
from __future__ import annotations

from typing import Any, Sequence, Tuple

from ...plans.categories import pool_name
from ...plans.frontier import frontier, knee
from ...plans.plan import Plan
from ...util.errors import RenderError
from ..formatting import Units, counted, format_extra, format_percent, table
from .figures import axis_unit, new_figure, save_figure

#: Most characters of a bar in the table.
BAR = 24


def _range(overheads: Sequence[float]) -> Tuple[float, float]:
    """Least and most of these and of no plan, and never the same."""
    least, most = min([0.0, *overheads]), max([0.0, *overheads])
    return least, most if most > least else least + 0.01


def frontier_table(plans: Sequence[Plan]) -> str:
    """All plans of a sweep, least memory first, with a small picture and the knee marked."""
    if not plans:
        return "no plan"
    units, best, turn = Units.of(plans[0]), frontier(plans), knee(plans)
    least, most = _range([plan.overhead for plan in plans])
    base = plans[0].baseline_total_bytes
    own = plans[0].graph.own_units
    rows = [["peak" if own else "total", "of unplanned",
             *([] if own else [pool_name(plans[0].graph)]), "extra time", "at least", ""]]
    for plan in sorted(plans, key=lambda p: (p.total_bytes, p.overhead)):
        bar = "#" * round(BAR * (plan.overhead - least) / (most - least))
        remark = " <- knee" if plan is turn else "" if any(p is plan for p in best) else \
            " (the same again)" if any((p.total_bytes, p.overhead) == (
                plan.total_bytes, plan.overhead) for p in best) else " (beaten by another plan)"
        rows.append([units.size(plan.total_bytes),
                     format_percent(plan.total_bytes / base) if base else "",
                     *([] if own else [units.size(plan.pool_bytes)]),
                     format_extra(plan.overhead),
                     format_extra(plan.bound) if plan.bound else "",
                     (bar + remark).strip()])
    lines = [table(rows, ">" * (len(rows[0]) - 1) + "<")]
    if turn is not None:
        lines.append("%s; the knee, %s at %s, is where less memory starts to cost more time"
                     % (counted(len(plans), "plan"), units.size(turn.total_bytes),
                        format_extra(turn.overhead)))
    return "\n".join(lines)


def draw_frontier(plans: Sequence[Plan], path: str) -> None:
    """Draw extra time over total memory into a file (.svg, .png, .pdf), the knee marked.

    Raises
    ------
    RenderError
        If there is no plan, the ending is unknown or matplotlib is not installed.
    """
    save_figure(frontier_figure(plans), path)


def frontier_figure(plans: Sequence[Plan]) -> Any:
    """The picture of :func:`draw_frontier` as a ``matplotlib.figure.Figure``."""
    if not plans:
        raise RenderError("there is no plan to draw; a sweep needs at least one")
    figure = new_figure(7, 4.2)
    axes = figure.add_subplot()
    units, best, turn = Units.of(plans[0]), frontier(plans), knee(plans)
    base = plans[0].baseline_total_bytes
    scale, unit = axis_unit(units, base)
    axes.plot([p.total_bytes / scale for p in best], [100 * p.overhead for p in best],
              marker="o", color="#2171b5")
    _label(axes, best[0].total_bytes / scale, 100 * best[0].overhead, "best plans found",
           "#2171b5")
    bounded = [p for p in best if p.bound]
    if bounded:
        left = bounded[0].total_bytes / scale
        axes.plot([p.total_bytes / scale for p in bounded], [100 * p.bound for p in bounded],
                  color="#777777", linestyle=":")
        axes.annotate("no plan can\ncost less", (left, 100 * bounded[0].bound), xytext=(-8, 0),
                      textcoords="offset points", color="#777777", fontsize=9, ha="right",
                      va="center")
    axes.plot([base / scale], [0], marker="s", color="#636363", linestyle="none")
    _label(axes, base / scale, 0, "unplanned: %s" % units.size(base), "#636363")
    axes.axhline(0, color="#bbbbbb", linewidth=0.8, zorder=0)
    if turn is not None:
        axes.plot([turn.total_bytes / scale], [100 * turn.overhead], marker="D",
                  color="#b30000", linestyle="none")
        _label(axes, turn.total_bytes / scale, 100 * turn.overhead, "knee: %s, %s" % (
            units.size(turn.total_bytes), format_extra(turn.overhead)), "#b30000")
    # Right of the unplanned network is room for the labels.
    axes.set_xlim(0, 1.35 * max(base, best[-1].total_bytes) / scale)
    least, most = _range([p.overhead for p in best] + [p.bound for p in bounded])
    axes.set_ylim(100 * (least - 0.06 * (most - least)), 100 * (most + 0.06 * (most - least)))
    axes.set_xlabel("total memory%s" % (", " + unit if unit else ""))
    axes.set_ylabel("extra step time, % of an unplanned step")
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    figure.tight_layout()
    return figure


def _label(axes: Any, x: float, y: float, words: str, colour: str) -> None:
    """Words to the right of a point and a little above it."""
    axes.annotate(words, (x, y), xytext=(8, 3), textcoords="offset points", color=colour,
                  fontsize=9)
