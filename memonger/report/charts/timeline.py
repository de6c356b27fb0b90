"""The memory of one training step as a picture, unplanned and planned over each other.

Needs matplotlib (the extra ``plot``).
"""
from __future__ import annotations

from typing import Any, Callable, List, Sequence

from ...memory.timeline import CATEGORIES, Timeline
from ...plan.plan import Plan
from ..facts import Facts
from ..formatting import Units, format_extra
from .figures import axis_unit, new_figure, save_figure

#: Category of ``memory.timeline.Timeline`` -> colour.
COLOURS = {"activations": "#9ecae1", "outputs": "#bdbdbd", "recomputed": "#fdae6b",
           "gradients": "#c7b3d9"}
BASELINE, PEAK, BUDGET, MEASURED = "#636363", "#b30000", "#238b45", "#e7298a"
#: How many of the largest tensors alive at the peak are named.
TOP = 5


def draw_timeline(plan: Plan, path: str) -> None:
    """Draw live bytes and pool over the steps of one training iteration into a file.

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
              color=BASELINE, linewidth=1.2, label="live, as it is")
    axes.axhline(unplanned.pool_bytes / scale, color=BASELINE, linestyle="--", linewidth=1,
                 label="pool, as it is: %s" % units.size(unplanned.pool_bytes))
    axes.axhline(planned.pool_bytes / scale, color="#d94801", linestyle="--", linewidth=1.2,
                 label="pool, planned: %s" % units.size(planned.pool_bytes))
    budget = pool_budget(plan)
    if budget is not None:
        # Wide and below, for the planned pool often lies on it.
        axes.axhline(budget / scale, color=BUDGET, linewidth=2.5, zorder=1.5,
                     label="budget for the pool: %s" % units.size(budget))
    measured = [(measured_pool(plan, original=True), BASELINE, "measured, as it is"),
                (measured_pool(plan), MEASURED, "measured, planned")]
    for size_bytes, colour, words in measured:
        if size_bytes is not None:
            axes.axhline(size_bytes / scale, color=colour, linestyle=":", linewidth=1.5,
                         label="%s: %s" % (words, units.size(size_bytes)))
    axes.set_xlim(0, max(1, len(unplanned)))
    axes.set_ylim(0, 1.32 * max([unplanned.pool_bytes, planned.pool_bytes, 1,
                                 *(size or 0 for size, _, _ in measured)]) / scale)
    _mark_peak(axes, planned, across(planned), scale, units)
    axes.set_xlabel("step of the unplanned iteration (backward begins at %d; repeated runs in "
                    "between)" % _backward(unplanned))
    notes = ["live: bytes that later steps still need; pool: what is set aside for them"]
    if measured[1][0] is not None:
        notes.append("measured: what the process took, less what is predicted outside the pool: "
                     "parameters, gradients, inputs, workspace")
    axes.text(0, -0.17, "\n".join(notes), transform=axes.transAxes, fontsize=7, va="top",
              color="#666666")
    axes.set_ylabel("memory of the pool%s" % (", " + unit if unit else ""))
    axes.axvline(_backward(unplanned), color="#cccccc", linewidth=0.8, zorder=0)
    axes.set_title("%s: pool %s to %s, %s step time" % (
        (plan.graph.name or "network").replace("$", r"\$"), units.size(unplanned.pool_bytes),
        units.size(planned.pool_bytes), format_extra(plan.overhead)), fontsize=11, loc="left")
    axes.legend(fontsize=7, loc="upper left", ncol=2, framealpha=0.9)
    figure.tight_layout()
    return figure


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
    axes.step(x, [b / scale for b in line.live_bytes], where="post", color="#d94801",
              linewidth=0.9, label="live, planned")


def _mark_peak(axes: Any, line: Timeline, x: Sequence[float], scale: float,
               units: Units) -> None:
    if line.peak_step < 0:
        return
    at, height = x[line.peak_step], line.peak_live_bytes / scale
    axes.plot([at], [height], marker="v", color=PEAK, markersize=6)
    words = ["peak %s at %s" % (units.size(line.peak_live_bytes), line.names[line.peak_step])]
    alive = line.at_peak
    words += ["%s  %s (%s)" % (units.size(block.bytes), block.tensor, block.category)
              for block in alive[:TOP]]
    if alive[TOP:]:
        words.append("%s  in %d smaller" % (units.size(sum(p.bytes for p in alive[TOP:])),
                                            len(alive) - TOP))
    left = at > max(x) * 0.6
    low = height < 0.45 * axes.get_ylim()[1]
    axes.annotate("\n".join(words).replace("$", r"\$"), (at, height),
                  xytext=(-14 if left else 14, 14 if low else -8), textcoords="offset points",
                  ha="right" if left else "left", va="bottom" if low else "top",
                  fontsize=7, color=PEAK,
                  bbox={"boxstyle": "round", "facecolor": "white", "alpha": 0.85,
                        "edgecolor": PEAK, "linewidth": 0.5})
