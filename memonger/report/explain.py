"""Why an op got its decision: what it saves, what it costs, what it depends on."""
from __future__ import annotations

import difflib
import fnmatch
from typing import Dict, List, Mapping, Optional

from ..graph.in_use import graph_in_use
from ..graph.schedule import Consumer, Schedule, expand_in_part
from ..memory.storage import plan_storage
from ..plans.plan import Plan
from ..plans.unmet_requests import run_once
from ..util.errors import UnknownOpError
from ..util.messages import listed
from .facts import Facts, OpFacts
from .formatting import Units, counted, format_percent, ordinal
from .streams import transfer_lines

_KEPT = {"keep": "is kept from forward to backward", "pinned": "stays as it is"}


def explain(plan: Plan, op: str) -> str:
    """Explain the decision for one forward op, in four lines or so.

    What the pool would be otherwise is computed: the schedule with this one decision the other
    way round, under the plan's own storage model.

    ``op``: name of a forward op.
    Raises UnknownOpError if the plan has no such op; the message names close ones.
    """
    facts = Facts(plan)
    fact = facts.by_name.get(op)
    if fact is None:
        raise UnknownOpError(unknown_op(plan, op))
    lines = [_headline(facts, fact)]
    lines += ["  " + line for line in _memory(facts, fact) + _cost(facts, fact)
              + transfer_lines(facts, fact)
              + _dependencies(facts, fact) + _remarks(facts, fact) + _variants(facts, fact)]
    return "\n".join(lines)


def unknown_op(plan: Plan, name: str) -> str:
    """Say which names are close to one that is no forward op."""
    names = list(plan.graph.op_index)
    if name in plan.graph.op_index:
        return "%r runs in variants alone, and the plan uses none of these" % name
    if name in {o.name for o in plan.graph.ops}:
        return "%r is an op of backward; decisions are made for forward ops" % name
    name = str(name)
    close = difflib.get_close_matches(name, names, 3) or [n for n in names if name in n][:3]
    hint = "did you mean %s?" % " or ".join(close) if close else \
        "the network has %s, the first is %s; memonger explain PLAN lists them" % (
            counted(len(names), "op"), names[0]) \
        if names else "the network has none"
    return "no forward op is named %r; %s" % (name, hint)


def _variant_in_use(fact: OpFacts) -> str:
    return fact.decision.split("+")[0] if fact.decision not in ("keep", "recompute") else ""


def _headline(facts: Facts, fact: OpFacts) -> str:
    units = Units.of(facts.plan)
    variant = _variant_in_use(fact)
    words = []
    if variant:
        words.append("runs as the variant %s" % variant)
    if fact.again:
        words.append("is recomputed in backward" + (
            " (%d times)" % fact.again if fact.again > 1 else ""))
    if fact.group == "absorbed":
        words.append("has no run of its own: " + fact.why)
    if not words:
        words.append(_KEPT[fact.group] if fact.held_bytes or fact.group == "pinned"
                     else "is not needed in backward")
    return "%s (%s, %s) %s." % (fact.name, fact.kind, units.size(fact.size_bytes),
                                " and ".join(words))


# ---------------------------------------------------------------------- memory
def _memory(facts: Facts, fact: OpFacts) -> List[str]:
    units = Units.of(facts.plan)
    lines = []
    runs = facts.runs[fact.op]
    if fact.again:
        before = [s for s in facts.readers[runs[0]] if not facts.is_late(s)]
        last = max(before, default=runs[0])
        gone = "not held from step %d to %d (%s)" % (
            last, runs[1], " and ".join(facts.step_name(s) for s in runs[1:3]))
        late = facts.late_readers(fact.op)
        if late and 2 * fact.held_bytes >= fact.size_bytes:
            lines.append("its first run still serves %s; later readers use the run at step %d"
                         % (facts.step_name(late[0]), runs[1]))
        elif late:
            lines.append("%s, but for %s that %s" % (gone, units.size(fact.held_bytes), (
                "%s reads" % facts.step_name(late[0]))))
        else:
            lines.append(gone)
    elif fact.held_bytes:
        late = facts.late_readers(fact.op)
        lines.append("holds %s from step %d to %d, for %s" % (
            units.size(fact.held_bytes), runs[0], late[-1],
            listed([facts.step_name(s) for s in late])))
    without = schedule_without_variant(facts, fact)
    if without is not None:
        lines.append(_otherwise(facts, without, "without the variant"))
        lines.append(_extra(facts, without))
    flipped = flipped_schedule(facts, fact)
    if flipped is not None:
        lines.append(_otherwise(facts, flipped,
                                "with it stored" if fact.again else "if it were recomputed"))
        if not fact.again:
            lines.append(_extra(facts, flipped))
    return lines


def _otherwise(facts: Facts, other: Schedule, how: str) -> str:
    units, line = Units.of(facts.plan), facts.timeline
    storage = plan_storage(facts.plan.graph, other, facts.plan.storage)
    change_bytes = storage.pool_bytes - line.pool_bytes
    sizes = " (%s%s instead of %s)" % (  # a step that was tried takes what the plan states
        "predicted: " if facts.plan.predicted_pool_bytes is not None else "",
        units.size(storage.pool_bytes), units.size(line.pool_bytes))
    if not facts.plan.graph.shares_buffers:
        return "the step's peak would be %s %s%s" % (
            _difference(units, change_bytes), how, sizes if change_bytes else "")
    return "the pool would be %s %s%s, the peak of live bytes %s" % (
        _difference(units, change_bytes), how, sizes if change_bytes else "",
        _difference(units, storage.peak_live_bytes - line.peak_live_bytes))


def _extra(facts: Facts, other: Schedule) -> str:
    extra_s = other.time_s(facts.plan.graph) - facts.plan.schedule.time_s(facts.plan.graph)
    more = len(other.steps) - len(facts.plan.schedule.steps)
    return "that would %s %s a step (%s)%s" % (
        "save" if extra_s < 0 else "cost", Units.of(facts.plan).time(abs(extra_s)),
        _share(facts, abs(extra_s)),
        ", recomputing %s" % counted(more, "more op") if more > 0 else "")


def schedule_without_variant(facts: Facts, fact: OpFacts) -> Optional[Schedule]:
    """The plan's schedule without the variant named after this op; None where there is none."""
    graph, schedule = facts.plan.graph, facts.plan.schedule
    others = tuple(i for i in schedule.variants if graph.variants[i].op != fact.op)
    if len(others) == len(schedule.variants):
        return None
    in_use = graph_in_use(graph, Schedule((), others))
    return Schedule(expand_in_part(in_use, facts.recompute).steps, others)


def flipped_schedule(facts: Facts, fact: OpFacts) -> Optional[Schedule]:
    """The plan's schedule with one decision the other way round; None where there is none."""
    op = facts.graph.ops[fact.op]
    recompute: Dict[int, Mapping[Consumer, int]] = dict(facts.recompute)
    if fact.op in recompute:
        del recompute[fact.op]
    elif op.recomputable and facts.late_readers(fact.op):
        recompute[fact.op] = {}
    else:
        return None
    schedule = expand_in_part(facts.graph, recompute)
    return Schedule(schedule.steps, facts.plan.schedule.variants)


def _difference(units: Units, size_bytes: int) -> str:
    if size_bytes == 0:
        return "the same"
    return "%s %s" % (units.size(abs(size_bytes)), "higher" if size_bytes > 0 else "lower")


# ---------------------------------------------------------------------- time
def _cost(facts: Facts, fact: OpFacts) -> List[str]:
    units = Units.of(facts.plan)
    if not fact.again:
        return []
    cost_s = fact.time_s * fact.again
    return ["costs %s (%s), %s" % (units.time(cost_s), _share(facts, cost_s),
                                   rank_words(facts, fact))]


def _share(facts: Facts, time_s: float) -> str:
    whole_s = facts.plan.graph.time_s
    return "%s of the step" % format_percent(time_s / whole_s) if whole_s > 0 else "no times known"


def rank_words(facts: Facts, fact: OpFacts) -> str:
    """Where the op stands when all are sorted by time for each MiB that they make."""
    rates = [f.time_s / f.size_bytes for f in facts.ops
             if f.size_bytes and facts.graph.ops[f.op].recomputable]
    if not fact.size_bytes:
        return "it makes nothing that counts"
    # Equal rates share a place, whatever the last bits of the division say.
    own = (1 - 1e-6) * fact.time_s / fact.size_bytes
    rank = 1 + sum(rate < own for rate in rates)
    number = "" if rank == 1 else ordinal(rank) + " "
    return "%scheapest per MiB of the %s that may be recomputed" % (
        number, counted(len(rates), "op"))


# ---------------------------------------------------------------------- dependencies
def _dependencies(facts: Facts, fact: OpFacts) -> List[str]:
    if not fact.again:
        return []
    step = facts.plan.schedule.steps[facts.runs[fact.op][1]]
    needs = []
    for source in dict.fromkeys(s for s in step.sources if s >= 0):
        made_by = facts.plan.schedule.steps[source].op
        number, value = facts.runs[made_by].index(source), facts.graph.ops[made_by].hands_on
        if value >= 0:
            needs.append("%s (fetched)" % facts.graph.tensors[value].name)
            continue
        needs.append("%s (%s)" % (facts.graph.ops[made_by].name,
                                  "recomputed too" if number else "stored"))
    readers = [facts.step_name(s) for run in facts.runs[fact.op][1:] for s in facts.readers[run]]
    lines = ["needs %s" % (listed(needs) if needs else "only inputs and parameters")]
    if readers:
        lines.append("serves %s" % listed(readers))
    return lines


def _remarks(facts: Facts, fact: OpFacts) -> List[str]:
    op = facts.plan.graph.ops[fact.op]
    lines = []
    if op.not_recomputable_because:
        lines.append("it must not be recomputed: %s" % op.not_recomputable_because)
    states = [facts.plan.graph.tensors[t].name for t in op.inputs
              if facts.plan.graph.tensors[t].category == "aux"]
    if states and fact.again:
        lines.append("%s updated once all the same" % (
            "/".join(states) + (" are" if len(states) > 1 else " is")))
    options = facts.plan.options
    if fact.again and fact.name in (options.get("again_anyway") or ()):
        lines.append("it is recomputed without a plan, too: Inductor computes it where it is read, "
                     "which spares a write")
    for key, words in (("keep", "to keep"), ("recompute", "to recompute")):
        asked = options.get(key) or ()
        if any(fnmatch.fnmatchcase(fact.name, pattern)
               for pattern in ([asked] if isinstance(asked, str) else asked)):
            reason = "".join(run_once(facts.plan.graph, facts.plan.schedule, [fact.op]).values()) \
                if key == "recompute" and not op.not_recomputable_because else ""
            lines.append("asked for: %s=%r says %s it%s" % (
                key, asked, words, ", without effect: " + reason if reason else ""))
    if not fact.again and fact.group == "keep" and not fact.held_bytes:
        lines.append("none of its bytes wait in memory for backward, so there is nothing to save")
    return lines


def _variants(facts: Facts, fact: OpFacts) -> List[str]:
    """What else could stand in the op's place, or why nothing can."""
    plan = facts.plan
    asked = plan.options.get("variants", "none")
    if asked == "none" or _variant_in_use(fact):
        return []
    offered = [variant.name for variant in plan.graph.variants if variant.op == fact.op]
    if offered:
        return ["could run as the variant %s" % " or ".join(offered)]
    return plan.record.refused_variants(plan, fact.name, asked)
