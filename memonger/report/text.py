"""Plans and results as text: pure functions that return tables.

Sizes are printed in binary units. What is predicted and what was measured stand in rows of
their own, and below each total stands what it does not count.
"""
from __future__ import annotations

import shlex
from collections import Counter
from typing import List, Mapping, Optional, Tuple

from ..graph.schedule import Schedule, expand
from ..graph.types import Graph
from ..memory.storage import plan_storage
from ..plans.categories import category_names
from ..plans.plan import Plan, Status
from ..plans.verification import Verification
from ..util.units import format_bytes
from .facts import Facts
from .formatting import (
    Units,
    costs_words,
    counted,
    extra_time,
    format_extra,
    format_percent,
    format_time,
    shape_words,
    table,
    tried_words,
)
from .measured import measured_words
from .streams import stream_lines


def summary(plan: Plan, path: Optional[str] = None) -> str:
    """The plan in ten lines: before, after, budget, proof, and what to do next.

    Of an unplanned step that no budget was named for, what it takes by category.

    ``path``: the file that the plan was saved in, for the hints of the last line.
    """
    facts = Facts(plan)
    if plan.method == "none" and plan.budget_bytes is None and path is None:
        sizes = {**plan.fixed_bytes, "pool": plan.pool_bytes}
        return "\n".join([headline(plan), estimate_table(sizes, graph=plan.graph),
                          *("note: " + note for note in plan.notes)])
    lines = [headline(plan), _before_and_after(facts)]
    lines += _by_device(plan)
    lines += _saved(facts)
    lines += _search_lines(facts)
    lines += _what_was_done(facts)
    lines += stream_lines(plan)
    lines += ["tried: " + words for words in tried_words(plan)]
    if plan.measured:
        lines += ["measured: " + words for words in measured_words(plan.measured)]
    if not Units.of(plan).plain:
        # Of eager kernels a note says where it was not measured.
        of_kernels = {"workspace": 0} if plan.options.get("mode") == "eager" else {}
        lines.append(_not_counted(plan.graph, {**of_kernels, **plan.fixed_bytes}) + (
            ", the time of copies in other layouts"
            if plan.unplanned.outside_bytes.get("layout_copies") else ""))
    if plan.unchecked:
        lines.append("taken from its file, not checked again: " + ", ".join(plan.unchecked))
    lines += ["note: " + note for note in plan.notes]
    if path is not None:
        example = max(facts.ops, key=lambda f: (f.again > 0, f.size_bytes)).name \
            if facts.ops else "OP"
        file = shlex.quote(path)
        runs = plan.graph.shares_buffers or "model" in plan.options
        lines.append("next: %smemonger report %s -o plan.html · memonger explain %s %s" % (
            "memonger verify %s · " % file if runs else "", file, file, shlex.quote(example)))
    return "\n".join(lines)


def headline(plan: Plan) -> str:
    """The network's name, size, type and largest input."""
    facts = Facts(plan)
    parts = [plan.graph.name] if plan.graph.name else []
    parts.append(counted(plan.graph.num_forward, "op"))
    if not Units.of(plan).plain:
        parts.append(facts.dtype)
    if facts.largest_input is not None and facts.largest_input.shape:
        parts.append("%s %s" % (facts.largest_input.name, shape_words(facts.largest_input.shape)))
    return "   ".join(parts)


def _columns_of_bytes(plan: Plan) -> List[Tuple[str, int, int]]:
    """Unplanned and planned bytes by column: the total, then the parts that it is the sum of.

    Outside the pool a part has a column of its own where the plan changes it.
    """
    before, after = plan.baseline_fixed_bytes, plan.fixed_bytes
    words = category_names(plan.graph)
    names = [name for name in {**before, **after} if before.get(name, 0) != after.get(name, 0)
             or (name == "workspace" and after[name])]
    columns = [("total", plan.baseline_total_bytes, plan.total_bytes),
               (words["pool"], plan.baseline_pool_bytes, plan.pool_bytes),
               *((words.get(name, name), before.get(name, 0), after.get(name, 0))
                 for name in names)]
    rest = columns[0][2] - sum(column[2] for column in columns[1:])
    return [*columns, (words["rest"], rest, rest)] if rest else columns


def summary_rows(facts: Facts) -> List[List[str]]:
    """Before, after and budget, by column; the first row holds the names of the columns."""
    plan, units = facts.plan, Units.of(facts.plan)
    base_s = plan.graph.time_s
    columns = [(name, units.size(before), units.size(after))
               for name, before, after in _columns_of_bytes(plan)]
    if units.plain:
        columns = [("peak", *columns[1][1:])]
    if base_s > 0:
        planned = units.time(plan.schedule.time_s(plan.graph)) if plan.time_is_known else "?"
        columns.append(("step time", units.time(base_s), planned))
    extra = "(%s)" % extra_time(plan) if base_s > 0 else ""
    rows = [[""] + [c[0] for c in columns] + [""],
            ["unplanned"] + [c[1] for c in columns] + [""],
            ["with this plan"] + [c[2] for c in columns] + [extra]]
    if plan.budget_bytes is not None:
        asked = plan.options.get("budget")
        rows.append(["budget", units.size(plan.budget_bytes)] + [""] * (len(columns) - 1)
                    + ["(%s)" % asked if isinstance(asked, str) else ""])
    return rows


def _before_and_after(facts: Facts) -> str:
    rows = summary_rows(facts)
    return table(rows, "<" + ">" * (len(rows[0]) - 2) + "<")


def _by_device(plan: Plan) -> List[str]:
    """A line for each device of a network on several."""
    return ["on %s: %s of %s unplanned%s" % (
        name, format_bytes(totals["total_bytes"]), format_bytes(totals["unplanned_total_bytes"]),
        ", budget %s" % format_bytes(totals["budget_bytes"]) if "budget_bytes" in totals else "")
        for name, totals in sorted(plan.by_device.items())]


def _saved(facts: Facts) -> List[str]:
    """Where the bytes went: packing first, then variants, then recomputation, then the columns."""
    plan, size = facts.plan, Units.of(facts.plan).size
    saved = plan.baseline_total_bytes - plan.total_bytes
    if saved <= 0:
        return []
    swaps = Schedule(expand(facts.graph, {}).steps, plan.schedule.variants)
    packed, swapped = (plan_storage(plan.graph, schedule, plan.storage).pool_bytes
                       for schedule in (facts.baseline, swaps))
    if not plan.graph.shares_buffers:  # no pool to pack; a compiler runs ops again by itself
        packed, swapped = plan.baseline_pool_bytes, swapped + plan.baseline_pool_bytes - packed
    pools = (plan.baseline_pool_bytes, packed, swapped, plan.pool_bytes)
    parts = [(before - after, how) for before, after, how in zip(
        pools, pools[1:], ("by packing", "by variants", "by recomputation"))]
    parts += [(before - after, "of " + name)
              for name, before, after in _columns_of_bytes(plan)[2:]]
    words = ["%s%s %s" % ("less " * (part < 0), size(abs(part)), how)
             for part, how in sorted(parts, key=lambda pair: pair[0] < 0) if part]
    return ["saved: " + (words[0] if len(words) == 1 else
                         "%s: %s" % (size(saved), ", ".join(words)))]


def _search_lines(facts: Facts) -> List[str]:
    plan, units = facts.plan, Units.of(facts.plan)
    advice = plan.status.advice
    if plan.status in (Status.FEASIBLE, Status.TIME_LIMIT) and plan.bound > 0 \
            and plan.time_is_known:
        gap = max(0.0, plan.overhead - plan.bound)
        advice = "no plan at this budget is %s of a step cheaper" % (
            "more than " + format_percent(gap) if gap >= 0.0005 else "even 0.05 %")
        if plan.status is Status.TIME_LIMIT:
            advice += "; a longer time limit may find one"
    first = "status: %s (%s)" % (plan.status.value, advice)
    if plan.planning_s > 0:
        first += ", found in %s" % format_time(plan.planning_s)
    lines = [first]
    proof: List[str] = []
    if plan.budget_bytes is not None and plan.time_is_known \
            and (plan.bound > 0 or plan.status is Status.OPTIMAL):
        proof.append("every plan at this budget costs at least %s (gap %s)"
                     % (format_extra(plan.bound),
                        format_percent(max(0.0, plan.overhead - plan.bound))))
    if plan.minimum_total_bytes is not None:
        proof.append("no plan takes less than %s in total"
                     % units.size(plan.minimum_total_bytes))
    return lines + (["proof: " + "; ".join(proof)] if proof else [])


def _what_was_done(facts: Facts) -> List[str]:
    plan = facts.plan
    again = sum(fact.again > 0 for fact in facts.ops)
    of_again, of_variants = facts.extra_shares
    words = ["recomputed %d of %s (%s of a step)" % (
        again, counted(plan.graph.num_forward, "op"), format_extra(of_again))]
    used = Counter(plan.graph.variants[i].name for i in plan.schedule.variants)
    if used:
        words.append("%s (%s%s; %s)" % (
            counted(sum(used.values()), "variant"), extra_time(plan, of_variants),
            " with waits" * (plan.graph.has_streams and plan.time_is_known),
            ", ".join("%s: %d" % item for item in sorted(used.items()))))
    words.append("times: " + costs_words(plan.costs))
    return [" · ".join(words)]


def _not_counted(graph: Graph, sizes: Mapping[str, int]) -> str:
    parts = ["the device's context", "fragmentation of the device's allocator"]
    if graph.shares_buffers and "objects" not in sizes and "rounding" not in sizes:  # on a CPU
        parts.append("MXNet's objects (7 KiB an op)")
    of_torch = not graph.shares_buffers and "head_gradients" in sizes  # a note tells of these
    if not of_torch and not sizes.get("workspace") and (
            graph.shares_buffers or "workspace" not in sizes):
        parts.append("workspace of operators")
    if "optimizer" not in sizes:
        parts.append("optimizer state (name the optimizer to count it)")
    if of_torch and "gradients" not in sizes:
        parts.append("gradients of steps before that this one adds to")
    return "not counted: " + ", ".join(parts)


# ---------------------------------------------------------------------- results of the other calls
def estimate_table(by_category: Mapping[str, int], budget_bytes: Optional[int] = None,
                   by_device: Optional[Mapping[str, int]] = None,
                   graph: Optional[Graph] = None) -> str:
    """Bytes by category with their sum, largest first; then the totals of several devices.

    ``graph``: whose sizes these are; where it has units of its own they are the peak alone.
    """
    total = sum(by_category.values())
    own_units = graph is not None and graph.own_units
    size = format_bytes if graph is None else graph.format_size
    words = category_names(graph)
    rows = [] if own_units else [
        [words.get(name, name), size(part), format_percent(part / total) if total else ""]
        for name, part in sorted(by_category.items(), key=lambda i: (-i[1], i[0])) if part]
    rows.append(["peak" if own_units else "total", size(total), ""])
    rows += [["on " + name, size(part), ""] for name, part in sorted((by_device or {}).items())]
    if budget_bytes is not None:
        rows.append(["budget", size(budget_bytes),
                     "fits" if total <= budget_bytes
                     else "exceeded by %s" % size(total - budget_bytes)])
    lines = [table(rows, "<>>" if budget_bytes is None else "<><")]
    if graph is not None and not own_units:
        lines.append(_not_counted(graph, by_category))
    return "\n".join(lines)


def verification_table(verification: Verification) -> str:
    """What ``memonger.verify`` found: a :class:`memonger.plans.verification.Verification`.

    The verdict comes first, then the evidence.
    """
    differences = verification.differences
    same = sum(d.identical for d in differences)
    count = "%d of %s of %s identical, bit for bit" % (
        same, counted(len(differences), "tensor"), counted(verification.steps, "step"))
    head = "%s (%s)" % (_verdict(verification), count)
    if verification.identical and verification.ok:
        return "\n".join([head, *_beside_words(verification), *_control_words(verification)])
    rows = [["step", "tensor", "largest difference", "relative", "error", "allowed", ""]]
    if not all(d.ok for d in verification.beside):
        differences += verification.beside
    worst = sorted((d for d in differences if not d.identical), key=lambda d: (d.ok, -d.max_rel))
    for d in worst[:10]:
        rows.append([str(d.step), d.tensor, "%.3g" % d.max_abs, "%.3g" % d.max_rel,
                     "%.3g" % d.error, "%.3g" % d.allowed, "" if d.ok else "TOO LARGE"])
    if worst[10:]:
        rows.append(["and %d more" % (len(worst) - 10)])
    return "\n".join([head, *([table(rows, "><>>>><")] if worst else []),
                      *_judge_words(verification), *_beside_words(verification),
                      *_control_words(verification)])


def _beside_words(verification: Verification) -> List[str]:
    """How far numbers are from those of the module by itself, where float64 has judged that."""
    if not verification.beside or not verification.in_double or verification.wrong is not None:
        return []
    worst = max(verification.beside, key=lambda d: d.max_rel)
    return ["beside the module by itself numbers are off by up to %.2g of a tensor's largest value "
            "(%s), with a plan or without: rounding of compiled code, which the network amplifies, "
            "as ReLUs at zero do; in float64 they agree" % (worst.max_rel, worst.tensor)]


def _control_words(verification: Verification) -> List[str]:
    """How far stock MXNet is from itself, where that was asked for."""
    if not verification.control:
        return []
    here, other = verification.control_threads
    differing = [d for d in verification.control if not d.identical]
    return ["control: the unplanned network with %s in place of %d differs from itself in %s"
            % (counted(other, "thread"), here, "no bit" if not differing else
               "%d of %s, at most by %.3g of a tensor's largest value (%s)" % (
                   len(differing), counted(len(verification.control), "tensor"),
                   *max((d.max_rel, d.tensor) for d in differing)))]


def _judge_words(verification: Verification) -> List[str]:
    """How it was judged where differences are above the tolerance."""
    words = {"float64": ["the error is that from the original in float64; allowed: five times what "
                         "rounding does to the original"],
             "rounding": ["allowed: five times what rounding does to the original"]}.get(
                 verification.judge, [])
    wrong = [d for d in verification.in_double if not d.ok]
    if wrong:
        words.append("in float64, too, %s of %d differ; %s by %.2g of its largest value"
                     % (counted(len(wrong), "tensor"), len(verification.in_double),
                        wrong[0].tensor, wrong[0].max_rel))
    elif verification.in_double:
        words.append("in float64 planned and original agree")
    words += ["the planned network lacks %s of the original" % counted(count, kind)
              for kind, count in sorted(verification.lost_casts.items())]
    return words


def _verdict(verification: Verification) -> str:
    if not verification.ok:
        return "NOT the same network, do not train with this plan: %s" % (
            "it has another precision" if verification.lost_casts
            else "the differences are more than rounding")
    if verification.identical:
        return "Same network"
    if verification.judge:
        return "Same network: the differences are rounding, amplified by the network"
    return "Same network: the differences are within %.0e" % verification.tolerance
