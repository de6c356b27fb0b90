"""The memory of one training step as a picture, unplanned and planned over each other.

Needs matplotlib (the extra ``plot``).
"""
from __future__ import annotations

from typing import Any, Callable, List, Sequence, Tuple

from ...memory.timeline import CATEGORIES, Timeline
from ...plans.categories import pool_name
from ...plans.plan import Plan
from ..facts import Facts
from ..formatting import Units, format_percent, was_tried, with_plan
from ..streams import transfers
from .figures import axis_unit, label_beside, new_figure, save_figure

#: Category of ``memory.timeline.Timeline`` -> colour.
COLOURS = {"activations": "#9ecae1", "outputs": "#bdbdbd", "recomputed": "#fdae6b",
           "gradients": "#c7b3d9"}
BASELINE, PLANNED, PEAK = "#636363", "#d94801", "#b30000"
BUDGET, MEASURED, HOST = "#238b45", "#e7298a", "#756bb1"
#: How many of the largest tensors alive at the peak are named.
TOP = 5


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
    """The picture of :func:`draw_timeline` as a ``matplotlib.figure.Figure``.

    Labels stand beside the axes, level with their lines; the key of the coloured areas and the
    tensors alive at the peak stand below.
    """
    figure = new_figure(11, 6)
    figure.subplots_adjust(left=0.075, right=0.76, top=0.87, bottom=0.37)
    axes = figure.add_subplot()
    facts, units = Facts(plan), Units.of(plan)
    planned, unplanned = facts.timeline, facts.baseline_timeline
    across = common_steps(facts)
    lines = _levels(plan, unplanned, planned)
    top_bytes = 1.05 * max([1, plan.host_bytes, *(size for size, _, _, _ in lines)])
    scale, unit = axis_unit(units, max(unplanned.pool_bytes, planned.pool_bytes))
    axes.set_xlim(0, max(1, len(unplanned)))
    axes.set_ylim(0, top_bytes / scale)
    _stack(axes, planned, across(planned), scale)
    axes.step(across(unplanned), [b / scale for b in unplanned.live_bytes], where="post",
              color=BASELINE, linewidth=1.2, label="live, unplanned")
    if plan.host_bytes:
        _on_host(axes, facts, across(planned), scale)
    budget = pool_budget(plan)
    if budget is not None and 0 <= budget <= top_bytes:
        # Wide and below, for the planned pool often lies on it.
        lines.append((budget, "budget, " + pool_name(plan.graph), BUDGET, "-"))
    for size, words, colour, style in lines:
        axes.axhline(size / scale, color=colour, linestyle=style, label=words,
                     linewidth=2.5 if style == "-" else 1.2, zorder=1.5 if style == "-" else 2)
    label_beside(axes, [(size / scale, "%s: %s" % (words, units.size(size)), colour)
                        for size, words, colour, _ in lines])
    labelled = _label_curve(axes, across(unplanned), unplanned, lines, scale)
    _mark_peak(axes, planned, across(planned), units)
    axes.axvline(_backward(unplanned), color="#cccccc", linewidth=0.8, zorder=0)
    axes.set_xlabel("ops of the unplanned step, in order (backward from op %d); recomputed ops "
                    "stand in between" % _backward(unplanned))
    axes.set_ylabel("memory%s%s" % (
        " of the pool" if plan.graph.shares_buffers else "", ", " + unit if unit else ""))
    axes.set_title(_title(plan, units), fontsize=11, loc="left", pad=20)
    axes.legend(fontsize=8, loc="upper left", ncol=6, frameon=False, borderaxespad=0,
                handlelength=1.5, bbox_to_anchor=(0, -0.17), handles=_key(axes, labelled))
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    notes = [*_peak_words(planned, units), "",
             "live: bytes that later ops still need" + (
                 "; pool: memory set aside for them" if plan.graph.shares_buffers else "")]
    if measured_pool(plan) is not None:
        notes.append("measured: what the process took, less what is predicted outside the pool: "
                     "parameters, gradients, inputs, workspace")
    axes.text(0, -0.29, "\n".join(notes).replace("$", r"\$"), transform=axes.transAxes,
              fontsize=7.5, va="top", color="#444444")
    return figure


def _levels(plan: Plan, unplanned: Timeline,
            planned: Timeline) -> List[Tuple[int, str, str, str]]:
    """Bytes, words, colour and style of each horizontal line but the budget's."""
    name = pool_name(plan.graph)
    lines = [(unplanned.pool_bytes, name + ", unplanned", BASELINE, "--"),
             (planned.pool_bytes, "%s %s" % (name, with_plan(plan)), PLANNED, "--")]
    for size, words, colour in (
            (tried_pool(plan), "measured in a trial", PLANNED),
            (measured_pool(plan, original=True), "measured, unplanned", BASELINE),
            (measured_pool(plan), "measured with this plan", MEASURED)):
        if size is not None:
            lines.append((size, words, colour, ":"))
    return lines


def _title(plan: Plan, units: Units) -> str:
    """The network, its budget and what the plan saves."""
    before, after = plan.baseline_total_bytes, plan.total_bytes
    name = (plan.graph.name or "one training step").replace("$", r"\$")
    if after >= before:
        return "%s: %s, nothing saved" % (name, units.size(after))
    budget = "" if plan.budget_bytes is None else \
        " within a budget of %s" % units.size(plan.budget_bytes)
    return "%s: %s instead of %s%s, %s saved" % (
        name, units.size(after), units.size(before), budget, format_percent(1 - after / before))


def pool_budget(plan: Plan) -> "int | None":
    """What the budget leaves for the pool; None without a budget."""
    if plan.budget_bytes is None:
        return None
    return plan.budget_bytes - sum(plan.fixed_bytes.values())


def tried_pool(plan: Plan) -> "int | None":
    """What the step was tried to take; None where it was not tried."""
    return plan.pool_bytes if was_tried(plan) else None


def measured_pool(plan: Plan, original: bool = False) -> "int | None":
    """What was measured, less the predicted bytes outside the pool; None where nothing was."""
    measured, fixed_bytes = plan.measured or {}, plan.fixed_bytes
    if original:
        measured, fixed_bytes = measured.get("original") or {}, plan.baseline_fixed_bytes
    if "allocated_bytes" not in measured:
        return None
    return max(0, int(measured["allocated_bytes"]) - sum(fixed_bytes.values()))


def _backward(line: Timeline) -> int:
    return next((i for i, late in enumerate(line.is_backward) if late), len(line))


def common_steps(facts: Facts) -> Callable[[Timeline], List[float]]:
    """Planned steps on the axis of the unplanned ones.

    Repeated runs, and copies to the host and back, share the gap before the next first run.
    """
    index_of = {step.op: i for i, step in enumerate(facts.baseline.steps)}

    def across(line: Timeline) -> List[float]:
        if line is not facts.timeline:
            return list(range(len(line)))
        result, waiting = [], 0
        for step, op in enumerate(line.ops):
            if facts.runs[op][0] != step or op not in index_of:
                waiting += 1
                continue
            here = float(index_of[op])
            result += [here - 1 + (k + 1) / (waiting + 1) for k in range(waiting)] + [here]
            waiting = 0
        last = float(len(index_of))
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
                          label="with this plan: " + category)
        below = above
    axes.step(x, [b / scale for b in line.live_bytes], where="post", color=PLANNED,
              linewidth=0.9, label="live with this plan")


def _on_host(axes: Any, facts: Facts, x: Sequence[float], scale: float) -> None:
    """The curve of the host's bytes, and below it a bar for each transfer."""
    axes.step(x, [b / scale for b in facts.timeline.host_bytes], where="post", color=HOST,
              linewidth=1.2, linestyle=(0, (3, 1)), label="on the host")
    ends = transfers(facts)
    axes.hlines([0] * len(ends), [x[step] for step, _ in ends], [x[reader] for _, reader in ends],
                color=HOST, linewidth=5, label="transfers")


def _label_curve(axes: Any, x: Sequence[float], line: Timeline,
                 levels: Sequence[Tuple[int, str, str, str]], scale: float) -> bool:
    """Name the unplanned curve left of its rise, far from any level; False where no room is."""
    if line.peak_step < 0:
        return False
    height = max((share * line.peak_live_bytes for share in (0.75, 0.65, 0.55, 0.85)),
                 key=lambda size: min(abs(size - level[0]) for level in levels))
    rise = next(step for step, size in enumerate(line.live_bytes) if size >= height)
    if x[rise] < 0.17 * axes.get_xlim()[1]:
        return False
    axes.annotate("live, unplanned", (x[rise], height / scale), xytext=(-8, 0),
                  textcoords="offset points", fontsize=8.5, color=BASELINE, ha="right",
                  va="center")
    return True


def _key(axes: Any, labelled: bool) -> List[Any]:
    """The areas, and the curves that no label names; ``labelled``: the unplanned one has its."""
    curves = [line for line in axes.lines if line.get_label() in (
        "live with this plan", "on the host", *(() if labelled else ("live, unplanned",)))]
    return curves[::-1] + list(axes.collections)


def _mark_peak(axes: Any, line: Timeline, x: Sequence[float], units: Units) -> None:
    if line.peak_step < 0:
        return
    at, wide = x[line.peak_step], axes.get_xlim()[1]
    axes.axvline(at, color=PEAK, linewidth=1)
    side = "left" if at < 0.3 * wide else "right" if at > 0.7 * wide else "center"
    words = "peak: %s at %s" % (units.size(line.peak_live_bytes), line.names[line.peak_step])
    axes.annotate(words.replace("$", r"\$"), (at, 1), xycoords=("data", "axes fraction"),
                  xytext=(0, 4), textcoords="offset points", ha=side, va="bottom", fontsize=8,
                  color=PEAK)


def _peak_words(line: Timeline, units: Units) -> List[str]:
    """The largest tensors alive at the planned step's peak, one a line."""
    alive = line.at_peak
    words = ["alive at the peak:"] if alive else []
    words += ["    %s  %s (%s)" % (units.size(block.bytes), block.tensor, block.category)
              for block in alive[:TOP]]
    if alive[TOP:]:
        words.append("    %s  in %d smaller" % (units.size(sum(p.bytes for p in alive[TOP:])),
                                                len(alive) - TOP))
    return words
