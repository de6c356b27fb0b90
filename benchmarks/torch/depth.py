"""``python -m benchmarks torch --depth``: what the deepest plans for Inductor take.

In one run for each small network and each held-out module: plain ``torch.compile``, each block a
checkpoint under it, and plans for shares of what plain ``torch.compile`` takes, for what the
checkpoints take, and the least. With ``--published``: MONeT's and OGC's rows with the least memory,
planned at their size.
"""
from __future__ import annotations

import time
from functools import partial
from typing import Any, Dict, Iterator, List, Optional, Sequence, Tuple

import torch
import torch.nn as nn

import memonger.torch as mt
from memonger.errors import InfeasibleBudget
from memonger.torch.calls.tracing import traced
from memonger.torch.step.request import Request

from . import measured, published
from .held_out import HELD_OUT
from .measured import Row, Way
from .methods import as_written, by_blocks, memonger
from .nets import build, unfilled

SHARES = (0.75, 0.6, 0.5, 0.4)
#: Aims: of each network a share of the total of plain ``torch.compile`` and the most extra time.
AIMS: Dict[str, Tuple[float, Optional[float]]] = {
    "gpt2": (0.42, 0.03), "resnet50": (0.5, 0.0), "unet": (0.5, 0.1), "mobilenetv2": (0.55, None),
    **dict.fromkeys(HELD_OUT, (0.65, None))}
#: How far predicted peaks may be off, and gradients from those of plain ``torch.compile``.
MOST_OFF, MOST_APART = 0.02, 1e-6
#: Seconds that a search may take.
TIME_LIMIT_S = 3.0
AT_BLOCKS = "memonger, bytes of each block"


def label_of(share: float) -> str:
    """What a row of ours for a share is called."""
    return "memonger %g%%" % (100 * share)


def ways(name: str, mode: str, profile: mt.Profile, rows: Sequence[Row]) -> Iterator[Way]:
    """Plain ``torch.compile``, each block, and ours; ``rows``: of those before."""
    yield Way("module", partial(as_written, mode=mode))
    yield Way("each block", lambda net: as_written(by_blocks(net), mode))
    ours = partial(memonger, mode=mode, costs=profile, time_limit=TIME_LIMIT_S)
    shares = {*SHARES, AIMS[name][0]} if name in AIMS else SHARES
    for share in sorted(shares, reverse=True):
        yield Way(label_of(share), partial(ours, budget=int(share * measured.total_bytes(rows[0]))))
    if "peak_bytes" in rows[1]:
        yield Way(AT_BLOCKS, partial(ours, budget=measured.total_bytes(rows[1])))

    def least(net: nn.Module) -> Any:
        return mt.compile(net, plan=mt.plan(net, build(name, measured.BATCH, tiny=True)[1], None,
                                            mode, costs=profile, overhead=None,
                                            time_limit=TIME_LIMIT_S))
    yield Way("memonger least", least)


def verdicts(rows: Sequence[Row]) -> List[str]:
    """Of one network each aim, what was found, and whether that is it."""
    found = {row["method"]: row for row in rows if "step_s" in row}
    ours = [row for method, row in found.items() if method.startswith("memonger")]

    def at(method: str) -> str:
        return "%.1f %% %+.1f %%" % (100 * measured.share_of(found[method], rows[0]),
                                     100 * found[method]["extra"]) if method in found else "no plan"

    def said(aim: str, shown: str, met: bool) -> str:
        return "%-12s %s: %s: %s" % (rows[0]["net"], aim, shown, "met" if met else "NOT MET")

    lines = []
    if "each block" in found:
        lines.append(said("each block's memory and time, %s" % at("each block"), at(AT_BLOCKS),
                          AT_BLOCKS in found and found[AT_BLOCKS]["extra"] <= found[
                              "each block"]["extra"]))
    if rows[0]["net"] in AIMS:
        share, most = AIMS[rows[0]["net"]]
        method = label_of(share)
        lines.append(said("%g %% of memory%s" % (
            100 * share, "" if most is None else ", time at most %+g %%" % (100 * most)),
            at(method), method in found and (most is None or found[method]["extra"] <= most)))
    for aim, shown, values, most in (
            ("predicted peaks within %g %%" % (100 * MOST_OFF), "%.1f %% off at most",
             [100 * abs(measured.prediction_off(row)) for row in ours], 100 * MOST_OFF),
            ("gradients within %g" % MOST_APART, "%.0e off at most",
             [row["off"] for row in ours], MOST_APART)):
        if values:
            lines.append(said(aim, shown % max(values), max(values) <= most))
    return lines


def at_size(time_limit: float, nets: Sequence[str]) -> Iterator[str]:
    """The published rows with the least memory, beside plans for Inductor's code."""
    for system, net in published.PAIRS:
        if nets and net not in nets:
            continue
        row = published.least(system, net)
        module, inputs = unfilled(net, row.batch)
        torch._dynamo.reset()
        base = traced(module, inputs, Request(mode="inductor", costs="reference",
                                              unplanned=True)).plan
        budget = published.budget_bytes(row, {
            "peak_bytes": base.pool_bytes, "before_bytes": base.total_bytes - base.pool_bytes})
        began_s = time.process_time()
        try:
            plan = mt.plan(module, inputs, budget, "inductor", costs="reference",
                           time_limit=time_limit)
            ours = "%+.1f %%, none below %+.1f %%" % (100 * plan.overhead, 100 * plan.bound)
        except InfeasibleBudget as error:
            ours = "no plan; the least is %.1f %% of the total, the budget %.1f %%" % tuple(
                100 * n / base.total_bytes for n in (error.minimum_bytes, budget))
        yield "%-12s batch %3d, %s, %+.1f %%: %s (%.0f s)" % (
            net, row.batch, published.label(row), 100 * row.overhead, ours,
            time.process_time() - began_s)


def run(nets: Sequence[str], depth: bool, at_full_size: bool, limit_s: float,
        time_limit: float) -> int:
    """Print all rows as they come, then whether each aim is met; 1 where one is not."""
    torch._inductor.config.compile_threads = 1
    torch._dynamo.config.recompile_limit = 64  # as many methods compile the same code
    end_s = time.perf_counter() + limit_s
    found: List[str] = []
    for name in (nets or (*measured.NAMES, *HELD_OUT)) if depth else ():
        torch._dynamo.reset()
        rows = measured.rows_of(name, "inductor", lambda: end_s - time.perf_counter(),
                                partial(ways, name))
        for row in rows:
            print(measured.words(row, rows[0]), flush=True)
        lines = verdicts(rows)
        print("\n".join(lines), flush=True)
        found += lines
    for line in at_size(time_limit, nets) if at_full_size else ():
        print(line, flush=True)
    return int(any(line.endswith("NOT MET") for line in found))
