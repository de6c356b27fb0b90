"""``python -m benchmarks torch --measure``: small networks, trained in this process.

All methods of a network and mode take two steps in turn, of which the second counts, so that what
else the machine does meets all alike. Extra time is the median over the rounds of a step beside
that of the module as it is run without any of them: in mode "eager" without a compiler, which
checkpoints are, too; under Inductor by plain ``torch.compile``. Peaks are those of the allocator's
events.
"""
from __future__ import annotations

import copy
import gc
import statistics
import time
from functools import partial
from typing import Any, Callable, Dict, Iterable, Iterator, List, NamedTuple, Sequence, Tuple

import torch
import torch.nn as nn

import memonger.torch as mt
from memonger.errors import InfeasibleBudget
from memonger.torch.check.measure import training_step
from memonger.torch.pytorch.allocations import peak_bytes
from memonger.torch.pytorch.module_step import bytes_before, parameters_of

from .methods import as_written, by_blocks, memonger, selective, torch_budget
from .nets import build

NAMES = ("gpt2", "resnet50", "unet", "mobilenetv2", "vit_b")
BATCH = 8
SHARES = ("75%", "60%", "50%", "40%")
#: PyTorch's budgets with their solvers: the usual one, and the other where they differ most.
TORCH_BUDGETS = ((0.5, "dp"), (0.2, "dp"), (0.1, "dp"), (0.2, "greedy"))
#: Rounds in which each method takes one step.
ROUNDS = 9
#: What is no further apart is the same, in shares of the module's step: rounds differ by as much.
NOISE = 0.01
#: Gradients that are further from the module's own are wrong: noise of floats is below.
RIGHT = 1e-3
Row = Dict[str, Any]


class Way(NamedTuple):
    """A method by name, and how it compiles a network of its own."""

    label: str
    made: Callable[[nn.Module], Any]


def ways(mode: str, profile: mt.Profile, rows: Sequence[Row]) -> Iterator[Way]:
    """All methods, what others are compared with first; ``rows``: of those before."""
    def of_blocks(change: Callable[[nn.Module], nn.Module], module: nn.Module) -> Any:
        return as_written(change(module), mode)

    yield Way("module", partial(as_written, mode=mode))
    yield Way("unplanned", partial(memonger, budget=None, mode=mode, costs=profile,
                                   time_limit=3.0))
    for share, (budget, solver) in zip(SHARES, TORCH_BUDGETS):
        yield Way("memonger " + share, partial(memonger, budget=share, mode=mode, costs=profile,
                                               time_limit=3.0))
        yield Way("PyTorch's budget %g, %s" % (budget, solver), partial(
            torch_budget, share=budget, mode=mode, solver=solver))
    yield Way("each block", partial(of_blocks, by_blocks))
    yield Way("selective", partial(of_blocks, selective))
    yield Way("selective, every second", partial(of_blocks, partial(selective, every=2)))
    for row in [r for r in _right(rows) if not r["method"].startswith("memonger")]:
        if share_of(row, rows[0]) < 1:
            yield Way("memonger, bytes of " + row["method"], partial(
                memonger, budget=total_bytes(row), mode=mode, costs=profile, time_limit=3.0))


def rows_of(name: str, mode: str, left_s: Callable[[], float],
            ways: Callable[[str, mt.Profile, Sequence[Row]], Iterable[Way]] = ways) -> List[Row]:
    """Each method on one network; those left out for which no time is left."""
    module, inputs = build(name, BATCH, tiny=True)
    rows: List[Row] = []
    steps: Dict[str, Callable[[], Any]] = {}
    first: List[torch.Tensor] = []
    for way in ways(mode, mt.profile(module, inputs, mode), rows):
        row: Row = {"net": name, "mode": mode, "method": way.label}
        rows.append(row)
        if left_s() <= 0:
            row["refused"] = "left out, no time"
            continue
        net = copy.deepcopy(module)
        began_s = time.perf_counter()
        try:
            call = way.made(net)
            step = training_step(partial(call, *inputs), parameters_of(net))
            step()
        except InfeasibleBudget:
            row["refused"] = "no plan"
            continue
        except RuntimeError as error:  # a checkpoint that PyTorch cannot compile
            row["refused"] = "fails (%s)" % str(error).splitlines()[0][:60]
            continue
        row["first_s"] = time.perf_counter() - began_s
        gradients = _gradients(net, step)
        first = first or gradients
        row["off"] = _distance(gradients, first)
        del gradients
        net.zero_grad(set_to_none=True)
        row.update(peak_bytes=peak_bytes(step, torch.device("cpu")),
                   before_bytes=bytes_before(net, inputs))
        if way.label.startswith("memonger"):
            [plan] = mt.plans(call)
            row.update(planning_s=plan.planning_s, overhead=plan.overhead,
                       predicted_bytes=plan.planned.pool_by_graph_bytes,
                       budget_bytes=plan.budget_bytes)
        steps[way.label] = step
    for label, (step_s, extra) in step_times(steps, ROUNDS).items():
        next(row for row in rows if row["method"] == label).update(step_s=step_s, extra=extra)
    return rows


def _gradients(net: nn.Module, step: Callable[[], Any]) -> List[torch.Tensor]:
    """Those of a step with the same random numbers for all methods."""
    torch.manual_seed(1)
    step()
    return [p.grad.detach().clone() for p in net.parameters() if p.grad is not None]


def _distance(one: List[torch.Tensor], other: List[torch.Tensor]) -> float:
    """Of all gradients as one vector, as a share of its length: some of them, as those of a bias
    before a BatchNorm, are nothing but rounding.
    """
    apart = sum(float((a - b).double().square().sum()) for a, b in zip(one, other))
    return (apart / sum(float(b.double().square().sum()) for b in other)) ** 0.5


def step_times(steps: Dict[str, Callable[[], Any]],
               rounds: int) -> Dict[str, Tuple[float, float]]:
    """Medians over the rounds: a step's seconds, and beside the first one's, 0.1 for +10 %."""
    seconds: Dict[str, List[float]] = {label: [] for label in steps}
    base = next(iter(seconds.values()), [])
    for _ in range(rounds):
        gc.collect()
        for label, step in steps.items():
            step()  # PyTorch looks at the code last used first, and all methods share one place
            began_s = time.perf_counter()
            step()
            seconds[label].append(time.perf_counter() - began_s)
    return {label: (statistics.median(found), statistics.median(
        mine / first - 1 for mine, first in zip(found, base)))
        for label, found in seconds.items()}


def total_bytes(row: Row) -> int:
    """The peak, and what exists before the step."""
    return int(row["peak_bytes"] + row["before_bytes"])


def share_of(row: Row, base: Row) -> float:
    """Of the total without a plan."""
    return total_bytes(row) / total_bytes(base)


def prediction_off(row: Row) -> float:
    """How far the plan's peak is from the measured one, as a share of that."""
    return row["predicted_bytes"] / row["peak_bytes"] - 1


def words(row: Row, base: Row) -> str:
    """One row in plain text."""
    label = "%-12s %-8s %-24s" % (row["net"], row["mode"], row["method"])
    if "refused" in row:
        return "%s %s" % (label, row["refused"])
    text = "%s %7.2f MiB %6.1f %% of the total, %.2f ms %+6.1f %%, gradients %s, first %.1f s" % (
        label, row["peak_bytes"] / 2**20, 100 * share_of(row, base), 1e3 * row["step_s"],
        100 * row["extra"], _equality(row), row["first_s"])
    if "predicted_bytes" in row:
        text += ", planning %.1f s, predicted %+.1f %%, %+.1f %% of the peak" % (
            row["planning_s"], 100 * row["overhead"], 100 * prediction_off(row))
    return text


def _equality(row: Row) -> str:
    return "equal" if not row["off"] else "off by %.0e" % row["off"]


def page(tables: Sequence[List[Row]]) -> str:
    """One table of Markdown, a line for each network and mode."""
    groups = (("ours", "memonger"), ("PyTorch's budget", "PyTorch"), ("each block", "each"),
              ("selective", "selective"))
    lines = ["| network | mode | unplanned | %s | ahead | first step | planning | predicted |"
             % " | ".join(title for title, _ in groups),
             "|---|---|---:|%s---|---|---|---|" % ("---|" * len(groups))]
    for rows in tables:
        base = rows[0]
        if "refused" in base:
            continue
        cells = [" · ".join(_cell(row, base) for row in rows if row["method"].startswith(start))
                 for _, start in groups]
        planned = [row for row in rows if "predicted_bytes" in row]
        lines.append("| %s | %s | %.1f MiB | %s | %s | %s s | %s s | %s %% |" % (
            base["net"], base["mode"], total_bytes(base) / 2**20,
            " | ".join(cells), ", ".join(ahead(rows)) or "–",
            " ".join("%.0f" % row["first_s"] for row in rows if "first_s" in row),
            " ".join("%.1f" % row["planning_s"] for row in planned),
            " ".join("%+.1f" % (100 * prediction_off(row)) for row in planned)))
    return "\n".join(lines) + "\n"


def ahead(rows: Sequence[Row]) -> List[str]:
    """The others that take less time than every plan of ours that takes no more memory."""
    found = [row for row in _right(rows) if "step_s" in row]
    ours = [row for row in found if row["method"].startswith("memonger")]
    return ["%s (%.0f %+.0f)" % (row["method"], 100 * share_of(row, rows[0]), 100 * row["extra"])
            for row in found if row not in ours and share_of(row, rows[0]) < 1 and not any(
                share_of(mine, rows[0]) <= share_of(row, rows[0]) + NOISE
                and mine["extra"] <= row["extra"] + NOISE for mine in ours)]


def _right(rows: Sequence[Row]) -> List[Row]:
    """Those of other methods than the module's own with its gradients."""
    return [row for row in rows[1:] if row.get("off", 1.0) < RIGHT and row["method"] != "unplanned"]


def _cell(row: Row, base: Row) -> str:
    if "refused" in row:
        return "%s: %s" % (row["method"].split()[-1].rstrip("%"), row["refused"].split(" (")[0])
    return "%.0f %+.0f%s" % (100 * share_of(row, base), 100 * row["extra"],
                             "" if row["off"] < RIGHT else " (wrong)")


def run(names: Sequence[str], modes: Sequence[str], limit_s: float) -> str:
    """The page; rows are printed as they come."""
    torch._dynamo.config.recompile_limit = 64  # as many methods compile the same code
    end_s = time.perf_counter() + limit_s
    tables: List[List[Row]] = []
    for mode in modes:
        for name in names:
            torch._dynamo.reset()
            tables.append(rows_of(name, mode, lambda: end_s - time.perf_counter()))
            for row in tables[-1]:
                print(words(row, tables[-1][0]), flush=True)
    return page(tables)
