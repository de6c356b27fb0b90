"""The memory of one training step under a cap: without a plan above it, with the plan below.

Needs matplotlib (the extra ``plot``). ``memory_cap.py`` draws it.
"""
from __future__ import annotations

from typing import Any, List, Sequence

from memonger.memory.timeline import Timeline
from memonger.plans.plan import Plan
from memonger.report.charts.figures import axis_unit, new_figure, save_figure
from memonger.report.charts.timeline import common_steps
from memonger.report.facts import Facts
from memonger.report.formatting import Units

UNPLANNED, PLANNED, CAP, MEASURED = "#636363", "#08519c", "#b30000", "#d95f02"


def draw_cap(plan: Plan, cap_bytes: int, path: str, measured_bytes: Sequence[int] = ()) -> None:
    """Draw a step's memory without the plan and with it, and a line for the cap, into a file.

    Parameters
    ----------
    plan : Plan
    cap_bytes : int
        What a training step may take in all.
    path : str
        Ends in ``.svg``, ``.png`` or ``.pdf``.
    measured_bytes : sequence of int
        What was measured with the plan: over a step, or one number.

    Raises
    ------
    RenderError
        If the ending is unknown or matplotlib is not installed.
    """
    save_figure(cap_figure(plan, cap_bytes, measured_bytes), path)


def cap_figure(plan: Plan, cap_bytes: int, measured_bytes: Sequence[int] = ()) -> Any:
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
        axes.annotate("%s: %s (predicted)" % (words, units.size(total_bytes)),
                      (across(line)[peak], held[peak]),
                      xytext=(0, 5 if line is unplanned else -40), textcoords="offset points",
                      color=colour, fontsize=10, ha="center", fontweight="bold",
                      va="bottom" if line is unplanned else "top")
    axes.axhline(cap_bytes / scale, color=CAP, linewidth=1.5)
    axes.text(0, cap_bytes / scale, " cap: %s" % units.size(cap_bytes), color=CAP, fontsize=10,
              va="bottom")
    if measured_bytes:
        most = max(measured_bytes)
        held = [size / scale for size in (measured_bytes[0], *measured_bytes)]
        axes.step([len(unplanned) * k / (len(held) - 1) for k in range(len(held))], held,
                  color=MEASURED, linewidth=1.2, linestyle="-" if held[2:] else ":")
        axes.text(0, most / scale, " measured: %s" % units.size(most),
                  color=MEASURED, fontsize=10, va="bottom")
    axes.set_xlim(0, max(1, len(unplanned)))
    axes.set_ylim(0, 1.15 * max(plan.baseline_total_bytes, cap_bytes) / scale)
    axes.set_ylabel("memory of the step%s" % (", " + unit if unit else ""))
    axes.set_xlabel("operators of one training step: forward, then backward%s" % (
        " (measured: the allocator's events)" if measured_bytes[1:] else ""))
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    figure.tight_layout()
    return figure


def _whole_step(line: Timeline, total_bytes: int) -> List[int]:
    """Bytes at each step: those alive, and all that stands beside them at the peak."""
    beside = total_bytes - max(line.live_bytes, default=0)
    return [alive + beside for alive in line.live_bytes]
