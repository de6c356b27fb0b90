"""The data of the HTML report: columns of numbers, small enough for any network.

Sizes are in KiB (or in the units of a graph that is not MXNet's). Long training steps are cut into
buckets that keep their largest step; small ops and small tensors are added up.
"""
from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import Any, Dict, List, Sequence, Tuple

from ..memory.timeline import CATEGORIES, Timeline, live_by
from ..plans.categories import pool_name
from ..plans.frontier import frontier, knee
from ..plans.plan import Plan
from .charts.timeline import (
    COLOURS,
    HOST,
    common_steps,
    measured_pool,
    pool_budget,
    tried_pool,
)
from .diagram.model import LEGEND, drawn_group
from .facts import Facts, OpFacts
from .formatting import Units, with_plan
from .streams import transfers

MAX_STEPS, MAX_OPS, MAX_BLOCKS = 2500, 2000, 600
#: Colours of modules, as many as are told apart.
MODULES = ("#66c2a5", "#fc8d62", "#8da0cb", "#e78ac3", "#a6d854", "#ffd92f", "#e5c494", "#b3b3b3",
           "#80b1d3", "#fb8072")
#: The group of rows that stand for the smallest ops of a large network.
SMALL = "small"


def page_data(facts: Facts, sweep: Sequence[Plan] = ()) -> Dict[str, Any]:
    """Everything that the page's script draws and sorts."""
    plan = facts.plan
    units = Units.of(plan)
    unit = 1 if units.plain else 1024
    across = common_steps(facts)
    planned, unplanned = facts.timeline, facts.baseline_timeline
    pools = {"planned": planned.pool_bytes, "unplanned": unplanned.pool_bytes,
             "budget": pool_budget(plan), "tried": tried_pool(plan),
             "measured": measured_pool(plan),
             "measured_original": measured_pool(plan, original=True)}
    return {
        "plain": units.plain, "plain_times": units.plain_times, "unit": unit,
        "backward": next((i for i, late in enumerate(unplanned.is_backward) if late),
                         len(unplanned)),
        "pool_name": pool_name(plan.graph), "with_plan": with_plan(plan),
        "pool": {name: None if size is None else round(size / unit, 2)
                 for name, size in pools.items()},
        "transfers": _transfers(facts, across(planned)), "host_colour": HOST,
        "planned": _line(planned, across(planned), unit),
        "unplanned": _line(unplanned, across(unplanned), unit),
        "categories": [[name, COLOURS[name]] for name in CATEGORIES],
        "modules": _modules(planned, unit),
        "ops": _ops(facts, unit),
        "colours": {**{group: colour for group, (colour, _) in LEGEND.items()},
                    SMALL: LEGEND["free"][0]},
        "frontier": _frontier(plan, sweep),
    }


def _line(line: Timeline, x: Sequence[float], unit: int) -> Dict[str, Any]:
    steps = _representatives(line)
    number = {step: i for i, step in enumerate(steps)}
    blocks = sorted(_blocks(line, steps), key=lambda p: -p[2])[:MAX_BLOCKS]
    return {
        "x": [round(x[step], 2) for step in steps],
        "names": [line.names[step] for step in steps],
        "live": [line.live_bytes[step] // unit for step in steps],
        "host": [line.host_bytes[step] // unit for step in steps if line.host_bytes],
        "parts": [[line.by_category[name][step] // unit for step in steps]
                  for name in CATEGORIES],
        "peak": number.get(line.peak_step, -1),
        "cut": len(line) - len(steps),
        "blocks": {"first": [p[0] for p in blocks], "last": [p[1] for p in blocks],
                   "size": [p[2] // unit for p in blocks], "name": [p[3] for p in blocks]}}


def _modules(line: Timeline, unit: int) -> List[List[Any]]:
    """Name, colour and bytes at each drawn step of the modules that a step's ops are of."""
    graph, steps = line.graph, line.storage.program.steps
    owner = [op if own.forward_op < 0 else own.forward_op for op, own in enumerate(graph.ops)]
    paths = {op: graph.ops[op].name.rpartition("/")[0] for op in set(owner)}
    if not any(paths.values()):
        return []  # names of MXNet's ops have no paths

    def parts_at(label_of: Dict[int, str]) -> Dict[str, Tuple[int, ...]]:
        return live_by(line.storage, lambda value: label_of[
            owner[steps[line.storage.program.values[value].step].op]])
    label_of, depth_of = dict.fromkeys(paths, ""), {"": 0}
    while True:  # the largest is divided, while the palette lasts
        parts = parts_at(label_of)
        for label in sorted(parts, key=lambda name: -sum(parts[name])):
            depth = depth_of[label] + 1
            inner = {op: ".".join(paths[op].split(".")[:depth])
                     for op, old in label_of.items() if old == label}
            label_of_all = {**label_of, **inner}
            if set(inner.values()) != {label} and len(set(label_of_all.values())) <= len(MODULES):
                break
        else:
            break
        depth_of.update(dict.fromkeys(inner.values(), depth))
        label_of = label_of_all
    drawn = _representatives(line)
    return [[label or "(outside its modules)", colour, [column[step] // unit for step in drawn]]
            for (label, column), colour in zip(parts.items(), MODULES)]


def _transfers(facts: Facts, x: Sequence[float]) -> List[List[Any]]:
    """(from, to, name) of each transfer on the axis: from its own step to the first that waits."""
    return [[round(x[step], 2), round(x[reader], 2), facts.step_name(step)]
            for step, reader in transfers(facts)][:MAX_BLOCKS]


def _representatives(line: Timeline) -> List[int]:
    """The steps that are drawn: all, or the largest of each bucket; always the peak."""
    if len(line) <= MAX_STEPS:
        return list(range(len(line)))
    chosen = set() if line.peak_step < 0 else {line.peak_step}
    for bucket in range(MAX_STEPS):
        first, last = (bucket * len(line) // MAX_STEPS, (bucket + 1) * len(line) // MAX_STEPS)
        chosen.add(max(range(first, last), key=lambda step: (line.live_bytes[step], -step)))
    return sorted(chosen)


def _blocks(line: Timeline, steps: Sequence[int]) -> List[tuple]:
    """(first, last, bytes, tensor) of every block of memory, in numbers of drawn steps."""
    storage, graph = line.storage, line.graph
    name = [""] * len(storage.blocks.blocks)
    for value, number in zip(storage.program.values, storage.blocks.block_of):
        if number >= 0 and not name[number]:
            name[number] = graph.tensors[value.tensor].name
    blocks = []
    for block, label in zip(storage.blocks.blocks, name):
        first, last = bisect_left(steps, block.start), bisect_right(steps, block.end) - 1
        if first <= last and block.bytes:
            blocks.append((first, last, block.bytes, label))
    return blocks


def _at_least_one(size_bytes: int, unit: int) -> int:
    """Whole units; anything above zero counts as one at least."""
    return max(1, size_bytes // unit) if size_bytes else 0


def _ops(facts: Facts, unit: int) -> Dict[str, Any]:
    """The op table by column; the smallest ops of large networks as one row a kind."""
    ranked = sorted(facts.ops, key=lambda f: (-f.size_bytes, f.op))
    shown = sorted(ranked[:MAX_OPS], key=lambda f: f.op)
    rest: Dict[str, List[OpFacts]] = {}
    for fact in ranked[MAX_OPS:]:
        rest.setdefault(fact.kind, []).append(fact)
    rows: List[List[Any]] = [
        [f.name, f.kind, list(f.shape), _at_least_one(f.size_bytes, unit),
         _at_least_one(f.held_bytes, unit), f.time_s * 1e6, f.decision, drawn_group(f), f.again,
         f.why] for f in shown]
    for kind, facts_of_kind in sorted(rest.items()):
        rows.append(["(%d smaller %s)" % (len(facts_of_kind), kind), kind, [],
                     sum(f.size_bytes for f in facts_of_kind) // unit,
                     sum(f.held_bytes for f in facts_of_kind) // unit,
                     sum(f.time_s for f in facts_of_kind) * 1e6, "", SMALL,
                     sum(f.again for f in facts_of_kind), "too small to be listed"])
    names = ("name", "kind", "shape", "makes", "holds", "time", "decision", "group", "again",
             "why")
    columns = list(map(list, zip(*rows))) if rows else [[] for _ in names]
    table: Dict[str, Any] = dict(zip(names, columns))
    table["time"] = [float("%.4g" % value) for value in table["time"]]
    table["shape"] = ["x".join(map(str, shape)) for shape in table["shape"]]
    for name in ("kind", "shape", "decision", "group", "why"):
        distinct = list(dict.fromkeys(table[name]))
        index_of = {value: i for i, value in enumerate(distinct)}
        table[name] = {"of": distinct, "at": [index_of[value] for value in table[name]]}
    return table


def _frontier(plan: Plan, sweep: Sequence[Plan]) -> Dict[str, Any]:
    """Points (total bytes, overhead, bound) of the sweep, and the chosen one."""
    turn = knee(sweep) if sweep else None
    points = [[p.total_bytes, p.overhead, p.bound or None, p is turn] for p in frontier(sweep)]
    return {"points": points, "chosen": [plan.total_bytes, plan.overhead],
            "baseline": plan.baseline_total_bytes, "minimum": plan.minimum_total_bytes,
            "bound": plan.bound or None}
