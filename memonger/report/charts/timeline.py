"""The memory of one training step as a picture, unplanned and planned over each other.

Needs matplotlib (the extra ``plot``).
"""
from __future__ import annotations

import textwrap
from typing import Any, Callable, List, Sequence, Tuple

from ...memory.timeline import CATEGORIES, Timeline
from ...plan.plan import Plan
from ..facts import Facts
from ..formatting import Units, format_extra
from .figures import axis_unit, new_figure, save_figure

#: Category of ``memory.timeline.Timeline`` -> colour.
COLOURS = {"activations": "#9ecae1", "outputs": "#bdbdbd", "recomputed": "#fdae6b",
           "gradients": "#c7b3d9"}
BASELINE, PLANNED = "#636363", "#d94801"
PEAK, BUDGET, MEASURED = "#b30000", "#238b45", "#e7298a"
#: How many of the largest tensors alive at the peak are named.
TOP = 5
#: Of a name of two lines, as a share of the axes.
_LABEL_HEIGHT = 0.09


def draw_timeline(plan: Plan, path: str) -> None:
    """Draw live bytes and pool over the ops of one training step into a file.

    Parameters
    ----------
    plan : Plan
    path : str
        Ends in ``.svg``, ``.png`` or ``.pdf``.

    Raises
    ------
    RenderError
        If the ending is unknown or matplotlib is not installed.
    """
    save_figure(timeline_figure(plan), path)


def timeline_figure(plan: Plan) -> Any:
    """The picture of :func:`draw_timeline` as a ``matplotlib.figure.Figure``."""
    figure = new_figure(10, 5)
    axes = figure.add_subplot()
    facts, units = Facts(plan), Units.of(plan)
    planned, unplanned = facts.timeline, facts.baseline_timeline
    scale, unit = axis_unit(units, max(unplanned.pool_bytes, planned.pool_bytes))
    across = common_steps(facts)
    _stack(axes, planned, across(planned), scale)
    axes.step(across(unplanned), [b / scale for b in unplanned.live_bytes], where="post",
              color=BASELINE, linewidth=1.2)
    levels = _levels(plan, facts)
    for size_bytes, words, colour, style in levels:
        axes.axhline(size_bytes / scale, color=colour, linestyle=style, label=words,
                     linewidth=2.5 if colour == BUDGET else 1.2, zorder=1.5)
    axes.set_xlim(0, max(1, len(unplanned)))
    axes.set_ylim(0, 1.05 * max([1, *(size_bytes for size_bytes, *_ in levels)]) / scale)
    _label_levels(axes, levels, scale, units)
    _label_curve(axes, across(unplanned), unplanned, levels, scale)
    _mark_peak(axes, planned, across(planned), units)
    axes.set_xlabel("ops of a training step: forward, from %d on backward; what is recomputed "
                    "stands in between" % _backward(unplanned), fontsize=9)
    axes.set_ylabel("memory of the pool%s" % (", " + unit if unit else ""), fontsize=9)
    axes.axvline(_backward(unplanned), color="#cccccc", linewidth=0.8, zorder=0)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    axes.set_title("%s: the pool takes %s instead of %s, a step %s time" % (
        (plan.graph.name or "network").replace("$", r"\$"), units.size(planned.pool_bytes),
        units.size(unplanned.pool_bytes), format_extra(plan.overhead)), fontsize=11, loc="left",
        pad=16)
    handles, _ = axes.get_legend_handles_labels()
    areas = [handle for handle in handles if hasattr(handle, "get_paths")]
    figure.legend(handles=areas, fontsize=8, loc="lower left", ncol=len(CATEGORIES) + 1,
                  frameon=False)
    figure.subplots_adjust(left=0.07, right=0.84, top=0.88, bottom=0.23)
    return figure


#: A horizontal line: its bytes, what it is, its colour and style.
Level = Tuple[int, str, str, str]


def _levels(plan: Plan, facts: Facts) -> List[Level]:
    levels: List[Level] = [
        (facts.baseline_timeline.pool_bytes, "pool, unplanned", BASELINE, "--"),
        (facts.timeline.pool_bytes, "pool, planned", PLANNED, "--")]
    for size_bytes, words, colour, style in (
            (pool_budget(plan), "budget", BUDGET, "-"),
            (measured_pool(plan, original=True), "measured, unplanned", BASELINE, ":"),
            (measured_pool(plan), "measured, planned", MEASURED, ":")):
        if size_bytes is not None:
            levels.append((size_bytes, words, colour, style))
    return levels


def _label_levels(axes: Any, levels: Sequence[Level], scale: float, units: Units) -> None:
    """Name each line at its right end; names of near lines move apart."""
    top = axes.get_ylim()[1]
    at = -1.0
    for size_bytes, words, colour, _ in sorted(levels, key=lambda level: level[0]):
        wanted = size_bytes / scale / top
        at = max(wanted, at + _LABEL_HEIGHT)
        axes.annotate("%s\n%s" % (words, units.size(size_bytes)), (1.0, wanted),
                      xytext=(1.02, at), xycoords="axes fraction", textcoords="axes fraction",
                      fontsize=8, color=colour, va="center", annotation_clip=False,
                      arrowprops={"arrowstyle": "-", "color": colour, "linewidth": 0.5})


def _label_curve(axes: Any, x: Sequence[float], line: Timeline, levels: Sequence[Level],
                 scale: float) -> None:
    """Name the unplanned curve where it rises, far from any level; left of it is nothing."""
    if line.peak_step < 0:
        return
    height = max((share * line.peak_live_bytes for share in (0.75, 0.65, 0.55, 0.85)),
                 key=lambda size: min(abs(size - level[0]) for level in levels))
    rising = next(step for step, size in enumerate(line.live_bytes) if size >= height)
    axes.annotate("live, unplanned", (x[rising], height / scale), xytext=(-8, 0),
                  textcoords="offset points", fontsize=8, color=BASELINE, ha="right", va="center")


def pool_budget(plan: Plan) -> "int | None":
    """What the budget leaves for the pool; None without a budget."""
    if plan.budget_bytes is None:
        return None
    return plan.budget_bytes - sum(plan.fixed_bytes.values())


def measured_pool(plan: Plan, original: bool = False) -> "int | None":
    """What was measured, less the predicted bytes outside the pool; None where nothing was."""
    found, fixed_bytes = plan.measured or {}, plan.fixed_bytes
    if original:
        found, fixed_bytes = found.get("original") or {}, plan.baseline_fixed_bytes or fixed_bytes
    if "allocated_bytes" not in found:
        return None
    return max(0, int(found["allocated_bytes"]) - sum(fixed_bytes.values()))


def _backward(line: Timeline) -> int:
    return next((i for i, late in enumerate(line.is_backward) if late), len(line))


def common_steps(facts: Facts) -> Callable[[Timeline], List[float]]:
    """Planned steps on the axis of the unplanned ones: repeated runs share the gap before the
    op that they serve."""
    place = {step.op: i for i, step in enumerate(facts.baseline.steps)}

    def across(line: Timeline) -> List[float]:
        if line is not facts.timeline:
            return list(range(len(line)))
        result, waiting = [], 0
        for step, op in enumerate(line.ops):
            if facts.runs[op][0] != step:
                waiting += 1
                continue
            here = float(place[op])
            result += [here - 1 + (k + 1) / (waiting + 1) for k in range(waiting)] + [here]
            waiting = 0
        last = float(len(place))
        return result + [last] * waiting

    return across


def _stack(axes: Any, line: Timeline, x: Sequence[float], scale: float) -> None:
    below = [0.0] * len(line)
    for category in CATEGORIES:
        values = line.by_category[category]
        if not any(values):
            continue
        above = [b + v / scale for b, v in zip(below, values)]
        axes.fill_between(x, below, above, step="post", color=COLOURS[category], linewidth=0,
                          label="planned: " + category)
        below = above
    axes.step(x, [b / scale for b in line.live_bytes], where="post", color=PLANNED,
              linewidth=0.9)


def _mark_peak(axes: Any, line: Timeline, x: Sequence[float], units: Units) -> None:
    """One line at the worst planned step; what is alive there stands below the axes."""
    if line.peak_step < 0:
        return
    axes.axvline(x[line.peak_step], color=PEAK, linewidth=0.8)
    axes.annotate("peak of live bytes: %s at %s" % (
        units.size(line.peak_live_bytes), line.names[line.peak_step].replace("$", r"\$")),
        (x[line.peak_step], 1.0), xycoords=("data", "axes fraction"), xytext=(0, 3),
        textcoords="offset points", fontsize=8, color=PEAK, va="bottom",
        ha="right" if x[line.peak_step] > max(x) * 0.5 else "left")
    alive = line.at_peak
    words = ["%s %s" % (block.tensor, units.size(block.bytes)) for block in alive[:TOP]]
    if alive[TOP:]:
        words.append("%s in %d smaller" % (units.size(sum(p.bytes for p in alive[TOP:])),
                                           len(alive) - TOP))
    told = textwrap.fill("alive at the peak: " + ", ".join(words), 150)
    axes.text(0, -0.14, told.replace("$", r"\$"), transform=axes.transAxes, fontsize=7, va="top",
              color=PEAK)
