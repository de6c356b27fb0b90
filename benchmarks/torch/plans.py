"""``python -m benchmarks torch``: predicted peaks and times of all methods.

Every method's forward and backward graph is counted in the same way (:mod:`.count`): bytes that
its operators make, node by node, and roofline times of a device with 10 TFLOP/s and 600 GB/s.
Nothing runs: it takes planning time only. Where a plan of ours states another peak than is counted,
to the byte, its row says so and the command fails.
"""
from __future__ import annotations

import argparse
import itertools
import time
from functools import partial
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Tuple
from unittest import mock

import torch
import torch.nn as nn

from memonger.errors import InfeasibleBudget
from memonger.torch.calls.tracing import traced
from memonger.torch.pytorch import private_joint
from memonger.torch.rewrite.apply import split
from memonger.torch.step.compilation import PlannedGraph
from memonger.torch.step.planning import make_plan
from memonger.torch.step.request import MODES, Request

from . import depth, measured, planning
from .count import both
from .held_out import HELD_OUT
from .methods import by_blocks, checkpointed, selective
from .nets import NETS, unfilled

NAMES = ("resnet50", "gpt2", "densenet121", "unet")
SHARES = ("75%", "60%", "50%", "35%", "25%")
#: PyTorch's budgets and the solvers of its knapsack that are tried.
TORCH_BUDGETS = (0.8, 0.6, 0.4, 0.2, 0.1)
TORCH_SOLVERS = ("dp", "greedy")
Row = Dict[str, Any]


def ours(unplanned: PlannedGraph, time_limit: float) -> Iterator[Row]:
    """Plans for :data:`SHARES` of the unplanned total."""
    captured = unplanned.captured
    for share in SHARES:
        began_s = time.perf_counter(), time.process_time()
        row: Row = {"method": "memonger %s" % share}
        try:
            plan = make_plan(captured, Request(budget=share, mode="eager", time_limit=time_limit))
        except InfeasibleBudget as error:
            row["refused"] = "impossible, proven" if error.bound_bytes > error.budget_bytes \
                else "no plan"
        else:
            row.update(modules=split(captured, plan.schedule), bound=plan.bound,
                       status=plan.status.value, predicted_bytes=plan.pool_bytes)
        row["planning_s"] = time.process_time() - began_s[1]
        yield row


def torch_budgets(unplanned: PlannedGraph) -> Iterator[Row]:
    """PyTorch's ``activation_memory_budget`` over a grid."""
    for solver, budget in itertools.product(TORCH_SOLVERS, TORCH_BUDGETS):
        began_s = time.process_time()
        with torch._functorch.config.patch(activation_memory_budget=budget,
                                           activation_memory_budget_solver=solver):
            modules = private_joint.partitioners.min_cut_rematerialization_partition(
                private_joint.copied(unplanned.captured.joint), (),
                num_fwd_outputs=unplanned.captured.num_forward_outputs)
        yield {"method": "PyTorch's budget %g, %s" % (budget, solver), "modules": modules,
               "planning_s": time.process_time() - began_s}


def by_hand(name: str, batch: int) -> Iterator[Row]:
    """Each block a checkpoint, or a selective one; segments of a sequence of blocks."""
    def made(label: str, change: Callable[[nn.Module], Any]) -> Row:
        module, inputs = unfilled(name, batch)
        change(module)
        modules, _ = halves_as_written(module, inputs)
        return {"method": label, "modules": modules, "planning_s": 0.0}

    yield made("each block", by_blocks)
    yield made("selective", selective)
    yield made("selective, every second", partial(selective, every=2))
    module, _ = unfilled(name, batch)
    blocks = getattr(module.net, "blocks", None)
    if blocks is None or hasattr(module.net, "down"):
        return
    for segments in (2, 3, 4, 6, 8):
        if segments < len(blocks):
            yield made("%d segments" % segments, partial(in_segments, segments=segments))


def halves_as_written(module: nn.Module, inputs: Any) -> Tuple[private_joint.Modules, int]:
    """Forward and backward with the checkpoints that the module has, and the outputs' number."""
    captured = traced(module, inputs, Request(mode="eager", unplanned=True, costs="reference"),
                      normalize=False).captured
    # Attention counts as random, though it drops nothing here.
    with mock.patch.object(private_joint.partitioners, "has_recomputable_rng_ops",
                           lambda joint: False):
        return private_joint.partitioners.default_partition(
            captured.joint, (), num_fwd_outputs=captured.num_forward_outputs), \
            captured.num_forward_outputs


def in_segments(module: nn.Module, segments: int) -> None:
    """The blocks as ``checkpoint_sequential`` runs them, which Dynamo does not read."""
    blocks = list(module.net.blocks)
    size = len(blocks) // segments
    parts = [nn.Sequential(*blocks[k * size:(k + 1) * size]) for k in range(segments - 1)]
    for part in parts:
        part.forward = checkpointed(part.forward)
    module.net.blocks = nn.ModuleList([*parts, *blocks[(segments - 1) * size:]])


def table_of(name: str, batch: int, time_limit: float) -> List[Row]:
    """All rows of one network."""
    module, inputs = unfilled(name, batch)
    unplanned = traced(module, inputs, Request(mode="eager", unplanned=True,
                                               costs="reference"))
    captured = unplanned.captured
    first: Row = {"method": "unplanned", "planning_s": 0.0,
                  "modules": split(captured, unplanned.plan.schedule)}
    fixed = sum(captured.outside_bytes.values())
    rows: List[Row] = []
    for row in itertools.chain([first], ours(unplanned, time_limit), torch_budgets(unplanned),
                               by_hand(name, batch)):
        if "modules" in row:
            forward, backward = row.pop("modules")
            row["peak_bytes"], row["time_s"] = both(forward, backward,
                                                    captured.num_forward_outputs)
        row.update(net=name, batch=batch or NETS[name].batch, ops=len(captured.graph.ops),
                   fixed_bytes=fixed)
        rows.append(row)
        print(words(row, rows[0]), flush=True)
    return rows


def words(row: Row, base: Row) -> str:
    label = "%-14s %-28s" % (row["net"], row["method"])
    if "refused" in row:
        return "%s %s (%.1f s)" % (label, row["refused"], row["planning_s"])
    return "%s peak %8.0f MiB %6.1f %% of the total, time %+5.1f %%%s (%.1f s)%s" % (
        label, row["peak_bytes"] / 2**20, 100 * share_of(row, base),
        100 * (row["time_s"] / base["time_s"] - 1),
        " bound %+.1f %%" % (100 * row["bound"]) if "bound" in row else "", row["planning_s"],
        "" if as_predicted(row) else "; PREDICTED %d bytes, COUNTED %d" % (
            row["predicted_bytes"], row["peak_bytes"]))


def as_predicted(row: Row) -> bool:
    """Whether the peak that a plan states is what was counted, to the byte."""
    return row.get("predicted_bytes", row.get("peak_bytes")) == row.get("peak_bytes")


def share_of(row: Row, base: Row) -> float:
    """Of the unplanned total, with what exists before the step."""
    return (row["peak_bytes"] + row["fixed_bytes"]) / (base["peak_bytes"] + base["fixed_bytes"])


def page(tables: List[List[Row]]) -> str:
    """One table of Markdown: our rows beside the best of each other method."""
    lines = ["| network | ours: share of the total, extra time (bound) | PyTorch's budget "
             "| by hand | selective | planning |", "|---|---|---|---|---|---|"]
    for rows in tables:
        base = rows[0]

        def cells(start: Tuple[str, ...], bound: bool = False,
                  rows: List[Row] = rows, base: Row = base) -> str:
            found = [r for r in rows[1:] if r["method"].startswith(start)]
            kept = [r for r in found if "time_s" in r and (bound or not any(
                o is not r and "time_s" in o and o["peak_bytes"] <= r["peak_bytes"]
                and o["time_s"] <= r["time_s"] and (o["peak_bytes"], o["time_s"]) != (
                    r["peak_bytes"], r["time_s"]) for o in found))]
            shown = ["%.0f %+.1f%s" % (
                100 * share_of(r, base), 100 * (r["time_s"] / base["time_s"] - 1),
                " (%.1f)" % (100 * r["bound"]) if "bound" in r else "")
                for r in sorted(kept, key=lambda r: -r["peak_bytes"])]
            refused = [r for r in found if "refused" in r]
            if refused:  # from the largest budget on
                shown.append("%s and less: %s" % (refused[0]["method"].split()[-1].rstrip("%"),
                                                  refused[0]["refused"]))
            return " · ".join(dict.fromkeys(shown))
        spent = [r["planning_s"] for r in rows if r["method"].startswith("memonger")]
        lines.append("| %s, batch %d, %d ops | %s | %s | %s | %s | %s s |" % (
            base["net"], base["batch"], base["ops"], cells(("memonger",), True),
            cells(("PyTorch",)), cells(("each", "2 ", "3 ", "4 ", "6 ", "8 ")),
            cells(("selective",)),
            " ".join("%.0f" % s for s in spent)))
    return "\n".join(lines) + "\n"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("nets", nargs="*", help="of %s; by default %s, and %s to measure" % tuple(
        ", ".join(names) for names in (NETS, NAMES, measured.NAMES)))
    parser.add_argument("--batch", type=int, default=0)
    parser.add_argument("--time-limit", type=float, default=10.0)
    parser.add_argument("--measure", action="store_true",
                        help="train small networks here instead, all methods in turn")
    parser.add_argument("--depth", action="store_true",
                        help="how little memory plans for Inductor take, and what they aim at: "
                             "the networks to measure, and %s" % ", ".join(HELD_OUT))
    parser.add_argument("--published", action="store_true",
                        help="plans for Inductor for MONeT's and OGC's least memory, on \"meta\"")
    parser.add_argument("--planning", action="store_true",
                        help="CPU seconds of planning: words of the measures' names")
    parser.add_argument("--beside", default="", metavar="FOLDER",
                        help="another checkout of the package, for ratios (with --planning)")
    parser.add_argument("--mode", choices=MODES, help="only this mode (with --measure)")
    parser.add_argument("--limit", type=float, default=720.0, metavar="SECONDS",
                        help="time for --measure and --depth; what does not fit is left out")
    parser.add_argument("-o", "--output", default="", help="write the table as Markdown")


def main(args: argparse.Namespace) -> int:
    torch.set_num_threads(1)
    if args.planning:
        return planning.run(args.nets, args.beside)
    if args.depth or args.published:
        return depth.run(args.nets, args.depth, args.published, args.limit, args.time_limit)
    if args.measure:
        text = measured.run(args.nets or measured.NAMES, [args.mode] if args.mode else MODES,
                            args.limit)
        if args.output:
            Path(args.output).write_text(text)
        print(text)
        return 0
    tables = []
    for name in args.nets or NAMES:
        torch._dynamo.reset()
        tables.append(table_of(name, args.batch, args.time_limit))
        if args.output:
            Path(args.output).write_text(page(tables))
    print(page(tables))
    return 0 if all(as_predicted(row) for rows in tables for row in rows) else 1
