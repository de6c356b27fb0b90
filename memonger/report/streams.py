"""What a plan says of streams: how long each runs, and how long compute waits for the others."""
from __future__ import annotations

from typing import List, Tuple

from ..graph.clock import COMPUTE, STREAMS, Times
from ..plans.plan import Plan
from .facts import Facts, OpFacts
from .formatting import Units


def stream_lines(plan: Plan) -> List[str]:
    """A line for a plan whose graph has several streams; none for others."""
    graph, schedule, units = plan.graph, plan.schedule, Units.of(plan)
    if not graph.has_streams:
        return []
    times = schedule.times(graph)
    runs_s = dict.fromkeys(STREAMS, 0.0)
    for step, start_s, end_s in zip(schedule.steps, times.start_s, times.end_s):
        runs_s[graph.ops[step.op].stream] += end_s - start_s
    words = ["compute runs %s and waits %s for other streams" % (
        units.time(runs_s[COMPUTE]), units.time(max(0.0, times.total_s - runs_s[COMPUTE])))]
    words += ["%s runs %s" % (name, units.time(runs_s[name]))
              for name in STREAMS[1:] if runs_s[name]]
    if plan.host_bytes:
        words.append("values on the host take %s" % graph.format_size(plan.host_bytes))
    return ["streams: " + ", ".join(words)]


def transfer_lines(facts: Facts, fact: OpFacts) -> List[str]:
    """What runs on other streams by the variant in use that is named after an op."""
    plan = facts.plan
    graph, schedule = plan.graph, plan.schedule
    ops = {op for number in schedule.variants if graph.variants[number].op == fact.op
           for op, _ in graph.variants[number].choices if graph.ops[op].stream != COMPUTE}
    if not ops:
        return []
    times, units = schedule.times(graph), Units.of(plan)
    lines = []
    for number, step in enumerate(schedule.steps):
        if step.op in ops:
            waiter, waits_s = _first_wait(facts, times, number)
            lines.append("%s runs on stream %s from %s to %s of the step%s" % (
                facts.step_name(number), graph.ops[step.op].stream,
                units.time(times.start_s[number]), units.time(times.end_s[number]),
                "; %s waits %s for it" % (facts.step_name(waiter), units.time(waits_s))
                if waits_s else ", beside compute"))
    return lines


def transfers(facts: Facts) -> List[Tuple[int, int]]:
    """Each step on a stream other than compute, with the first step of compute that reads it."""
    steps, ops = facts.plan.schedule.steps, facts.plan.graph.ops
    return [(number, next((reader for reader in facts.readers[number]
                           if ops[steps[reader].op].stream == COMPUTE), number))
            for number, step in enumerate(steps) if ops[step.op].stream != COMPUTE]


def _first_wait(facts: Facts, times: Times, step: int) -> Tuple[int, float]:
    """The first step of compute that reads what a step makes, and how long it waits for it."""
    graph, steps = facts.plan.graph, facts.plan.schedule.steps
    for reader in facts.readers[step]:
        if graph.ops[steps[reader].op].stream == COMPUTE:
            free_s = times.compute_s[reader - 1] if reader else 0.0
            return reader, max(0.0, times.end_s[step] - free_s)
    return step, 0.0
