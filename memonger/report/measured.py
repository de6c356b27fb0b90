"""What was measured as text, beside what was predicted where they are far apart."""
from __future__ import annotations

from typing import Any, List, Mapping, Optional, Tuple

from ..plans.measurement import Measurement
from ..plans.plan import Plan
from ..util.units import format_bytes, format_distinct
from .formatting import counted, format_extra, format_time, is_profile, table

#: Code and MKLDNN take about this much of any process.
_OF_MXNET_BYTES = 100 << 20
#: Beyond this multiple of the prediction, the table says how far off it is.
_FAR_ABOVE = 1.5


def measurement_table(measured: Measurement, original: Optional[Measurement] = None,
                      predicted: Optional[Plan] = None, holder: str = "process") -> str:
    """Bytes and median step times, and what is far from its prediction.

    Parameters
    ----------
    measured : Measurement
    original : Measurement, optional
        The network without the plan.
    predicted : Plan, optional
        The plan that was measured.
    holder : str
        Whose bytes were counted: "process", where steps ran in turn, or "allocator".
    """
    in_turn = holder == "process"
    rows: List[List[str]] = [["measured", holder if in_turn else "total", "median step", "",
                              "from", "to"]]
    if original is None:
        rows.append(_row("", measured, ""))
    else:
        rows.append(_row("unplanned", original, ""))
        rows.append(_row("with this plan", measured,
                         "(%s)" % format_extra(measured.step_s / original.step_s - 1.0)))
    lines = [table(rows, "<>><>>"), "on %s; %s%s%s" % (
        measured.device, counted(len(measured.steps_s), "step"),
        "" if original is None else " of each, in turn" if in_turn else " of each",
        "" if in_turn else "; the total is the most that the allocator handed out")]
    if predicted is not None:
        lines += _far_off(measured, original, predicted, holder)
    return "\n".join(lines)


def _far_off(measured: Measurement, original: Optional[Measurement], plan: Plan,
             holder: str) -> List[str]:
    """Sentences about what takes far more than was predicted, and about the budget."""
    pairs: List[Tuple[str, Any, int]] = [("the " + holder, measured, plan.total_bytes)]
    if original is not None:
        pairs.append(("unplanned the " + holder, original, plan.baseline_total_bytes))
    lines = ["%s takes %.1f times the %s that were predicted%s: %s" % (
        who, of.allocated_bytes / total_bytes, format_bytes(total_bytes),
        ", above the budget" if of is measured and plan.budget_bytes is not None
        and of.allocated_bytes > plan.budget_bytes else "", _reason(plan, of, holder))
        for who, of, total_bytes in pairs if of.allocated_bytes > _FAR_ABOVE * total_bytes]
    if plan.budget_bytes is not None and not plan.graph.shares_buffers:
        budget = format_bytes(plan.budget_bytes)
        state_bytes = plan.fixed_bytes.get("optimizer", 0)  # no optimizer is in these steps
        beside = "" if state_bytes == 0 else \
            " with the optimizer's state, %s" % format_bytes(state_bytes)
        lines.append("the step keeps the budget of %s%s" % (budget, beside)
                     if measured.allocated_bytes + state_bytes <= plan.budget_bytes else
                     "that is above the budget of %s%s%s" % (
                         budget, beside, "" if is_profile(plan.costs)
                         else ": memonger profile measures what operators take"))
    elif plan.budget_bytes is not None and holder == "process" \
            and measured.device.startswith("cpu") and plan.budget_bytes < measured.allocated_bytes \
            < min(plan.total_bytes + _OF_MXNET_BYTES, _FAR_ABOVE * plan.total_bytes):
        lines.append(
            "that is above the budget of %s, where %s were predicted: MXNet's code and what MKLDNN "
            "keeps for each convolution are never counted"
            % format_distinct(plan.budget_bytes, plan.total_bytes))
    step_s = plan.graph.time_s * (1.0 + plan.overhead)
    if 0.0 < _FAR_ABOVE * step_s < measured.step_s and plan.time_is_known \
            and not plan.graph.own_units:
        lines.append("a step takes %.1f times the %s that were predicted: %s" % (
            measured.step_s / step_s, format_time(step_s),
            "profile again, on an idle machine" if is_profile(plan.costs)
            else "memonger profile measures op times on this device; a busy machine is slower, "
                 "too"))
    return lines


def _reason(plan: Plan, measured: Measurement, holder: str) -> str:
    """Why a step may take far more than was predicted."""
    if plan.graph.pools == "cached_op":
        return "the steps ran in an executor, which takes more than a Gluon block"
    if holder == "process" and plan.baseline_total_bytes < _OF_MXNET_BYTES:
        return "so small a network is less than what MXNet itself takes"
    source = plan.costs.lower()
    if measured.device.startswith("cpu") and source.startswith("roofline: ") \
            and "cpu" not in source:
        return "it is for another device, and leaves out what this CPU's operators allocate"
    return "please report this network"


def _row(label: str, measured: Measurement, extra: str) -> List[str]:
    return [label, format_bytes(measured.allocated_bytes), format_time(measured.step_s),
            extra, format_time(min(measured.steps_s)), format_time(max(measured.steps_s))]


def measured_words(measured: Mapping[str, Any]) -> List[str]:
    """One line for what ``Plan.measured`` holds (``Measurement.to_dict``)."""
    if "allocated_bytes" not in measured:
        return []
    words = "process %s" % format_bytes(measured["allocated_bytes"])
    original = measured.get("original")
    if original:
        words += " (unplanned %s)" % format_bytes(original["allocated_bytes"])
    words += ", step %s" % format_time(measured["step_s"])
    if original:
        words += " (unplanned %s, %s)" % (format_time(original["step_s"]),
                                         format_extra(measured["overhead"]))
    return [words + (" on %s" % measured["device"] if "device" in measured else "")]
