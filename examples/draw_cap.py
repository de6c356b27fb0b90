"""The memory of one training step under a cap: without a plan above it, with the plan below.

Needs matplotlib (the extra ``plot``). ``memory_cap.py`` draws it.
"""
from __future__ import annotations

from typing import Any, List

from memonger.memory.timeline import Timeline
from memonger.plans.plan import Plan
from memonger.report.charts.figures import axis_unit, new_figure, save_figure
from memonger.report.charts.timeline import common_steps
from memonger.report.facts import Facts
from memonger.report.formatting import Units

UNPLANNED, PLANNED, CAP = "#636363", "#08519c", "#b30000"


def draw_cap(plan: Plan, cap_bytes: int, path: str) -> None:
    """Draw a step's memory without the plan and with it, and a line for the cap, into a file.

    Parameters
    ----------
    plan : Plan
    cap_bytes : int
        What a training step may take in all.
    path : str
        Ends in ``.svg``, ``.png`` or ``.pdf``.

    Raises
    ------
    RenderError
        If the ending is unknown or matplotlib is not installed.
    """
    save_figure(cap_figure(plan, cap_bytes), path)


def cap_figure(plan: Plan, cap_bytes: int) -> Any:
    """The picture of :func:`draw_cap` as a ``matplotlib.figure.Figure``."""
    figure = new_figure(9, 3.6)
    axes = figure.add_subplot()
    facts, units = Facts(plan), Units.of(plan)
    planned, unplanned = facts.timeline, facts.baseline_timeline
    across = common_steps(facts)
    curves = (("without a plan", UNPLANNED, unplanned, plan.baseline_total_bytes),
              ("with the plan", PLANNED, planned, plan.total_bytes))
    scale, unit = axis_unit(units, max(plan.baseline_total_bytes, cap_bytes))
    for words, colour, line, total_bytes in curves:
        held = [b / scale for b in _whole_step(line, total_bytes)]
        axes.step(across(line), held, where="post", color=colour, linewidth=1.8)
        peak = held.index(max(held))
        axes.annotate("%s: %s" % (words, units.size(total_bytes)),
                      (across(line)[peak], held[peak]), xytext=(0, 4),
                      textcoords="offset points", color=colour, fontsize=10, ha="center",
                      va="bottom", fontweight="bold")
    axes.axhline(cap_bytes / scale, color=CAP, linewidth=1.5)
    axes.text(0, cap_bytes / scale, " cap: %s" % units.size(cap_bytes), color=CAP, fontsize=10,
              va="bottom")
    axes.set_xlim(0, max(1, len(unplanned)))
    axes.set_ylim(0, 1.15 * max(plan.baseline_total_bytes, cap_bytes) / scale)
    axes.set_ylabel("memory of the step%s" % (", " + unit if unit else ""))
    axes.set_xlabel("operators of one training step: forward, then backward")
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    figure.tight_layout()
    return figure


def _whole_step(line: Timeline, total_bytes: int) -> List[int]:
    """Bytes at each step: those alive, and all that stands beside them at the peak."""
    beside = total_bytes - max(line.live_bytes, default=0)
    return [alive + beside for alive in line.live_bytes]
