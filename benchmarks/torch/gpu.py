"""``python -m benchmarks torch-gpu``: step time and peak on a device.

Rows come in order of weight and are printed at once. A row that does not fit in what is left of the
time limit is named and left out.
"""
from __future__ import annotations

import argparse
import dataclasses
import datetime
import gc
import json
import subprocess
import time
from typing import Any, Dict, List, Optional, Tuple

import torch

import memonger.torch as mt
from memonger.errors import InfeasibleBudget
from memonger.util.files import write_whole

from . import published
from .methods import by_blocks, memonger, torch_budget
from .nets import build

Row = Dict[str, Any]
#: A plan that may also move values to the host.
HOSTED = "memonger, host"
#: Network, batch, mode, method, budget, and seconds that must be left to begin; the most telling
#: first. "module" is the module without a compiler: rows of eager kernels are compared with it.
#: Budgets that name a system are the least memory that it published for the network.
ROWS: Tuple[Tuple[str, int, str, str, Any, float], ...] = (
    ("resnet50", 184, "module", "unplanned", None, 10),
    ("resnet50", 184, "eager", "unplanned", None, 10),
    ("resnet50", 184, "eager", "memonger", "50%", 15),
    ("resnet50", 184, "eager", "memonger", "MONeT", 20),
    ("resnet50", 184, "eager", HOSTED, "50%", 25),
    ("resnet50", 184, "module", "each block", None, 10),
    ("resnet50", 64, "module", "unplanned", None, 10),
    ("resnet50", 64, "eager", "memonger", "OGC", 20),
    ("gpt2", 16, "module", "unplanned", None, 10),
    ("gpt2", 16, "eager", "memonger", "60%", 20),
    ("gpt2", 16, "eager", HOSTED, "60%", 25),
    ("gpt2", 16, "eager", "torch budget", 0.3, 15),
    ("gpt2_chunks", 16, "module", "unplanned", None, 10),
    ("gpt2_chunks", 16, "eager", "memonger", "60%", 20),
    ("gpt2", 16, "inductor", "unplanned", None, 35),
    ("gpt2", 16, "inductor", "memonger", "75%", 40),
    ("gpt2", 16, "inductor", "memonger", "50%", 40),
    ("gpt2_chunks", 16, "inductor", "memonger", "60%", 40),
    ("gpt2", 16, "inductor", "torch budget", 0.3, 35),
    ("densenet121", 32, "module", "unplanned", None, 10),
    ("densenet121", 32, "eager", "memonger", "OGC", 20),
    ("unet", 11, "module", "unplanned", None, 10),
    ("unet", 11, "eager", "memonger", "MONeT", 20),
    ("resnet50", 64, "inductor", "unplanned", None, 40),
    ("resnet50", 64, "inductor", "memonger", "50%", 40),
    ("vit_b", 64, "module", "unplanned", None, 10),
    ("vit_b", 64, "eager", "memonger", "50%", 20),
    ("resnet50", 184, "eager", "memonger", "25%", 25),
    ("mobilenetv2", 272, "module", "unplanned", None, 10),
    ("mobilenetv2", 272, "eager", "memonger", "MONeT", 20),
    ("googlenet", 320, "module", "unplanned", None, 10),
    ("googlenet", 320, "eager", "memonger", "MONeT", 20),
    ("vgg16", 176, "module", "unplanned", None, 10),
    ("vgg16", 176, "eager", "memonger", "MONeT", 20),
    ("vgg16", 64, "module", "unplanned", None, 10),
    ("vgg16", 64, "eager", "memonger", "OGC", 20),
)


class Run:
    """One run: its rows, its clock, and where it writes."""

    def __init__(self, args: argparse.Namespace):
        self.args, self.started_s = args, time.perf_counter()
        self.cuda = args.device.startswith("cuda")
        self.rows: List[Row] = []
        self.profiles: Dict[Tuple[str, int, str], mt.Profile] = {}
        self.gradients: Dict[Tuple[str, int, str], List[torch.Tensor]] = {}

    @property
    def left_s(self) -> float:
        return self.args.limit - (time.perf_counter() - self.started_s)

    def row(self, net: str, batch: int, mode: str, method: str, budget: Any = None,
            needs_s: float = 10.0) -> None:
        """Measure one row, or say why not."""
        theirs = published.least(budget, net) if budget in published.SYSTEMS else None
        budget = published.label(theirs) if theirs else budget
        label = "%s b%d %s %s%s" % (net, batch, mode, method, " %s" % budget if budget else "")
        if self.args.only and self.args.only not in label:
            return
        if self.left_s < (needs_s if self.cuda else 1):
            print("left out, no time: " + label, flush=True)
            return
        torch._dynamo.reset()
        gc.collect()
        if self.cuda:
            torch.cuda.empty_cache()
        began_s = time.perf_counter()
        try:
            found = self._measured(net, batch, mode, method, self._asked(
                net, batch, mode, theirs) if theirs else budget)
        except InfeasibleBudget as error:
            found = {"error": str(error).splitlines()[0].split(", of which")[0]}
        except Exception as error:
            found = {"error": "%s: %s" % (type(error).__name__, str(error).splitlines()[0][:160])}
        found.update(net=net, batch=batch, mode=mode, method=method, budget=budget,
                     row_s=round(time.perf_counter() - began_s, 1))
        if theirs:
            found["published"] = theirs
        self.rows.append(found)
        print("%-46s %s" % (label, self.words(found)), flush=True)

    def _measured(self, net: str, batch: int, mode: str, method: str, budget: Any) -> Row:
        module, inputs = build(net, batch, self.args.tiny, self.args.device)
        key, compared = (net, batch, mode), (net, batch, base_mode(mode))
        ours = method in ("memonger", HOSTED)
        if ours and key not in self.profiles and self.args.costs == "measured":
            self.profiles[key] = mt.profile(module, inputs, mode)
            if self.cuda:
                torch.cuda.empty_cache()
        step: Any = module
        if ours or method == "unplanned" and mode != "module":
            step = memonger(module, budget, mode, self.profiles.get(key, "auto"), 3.0,
                            host="auto" if method == HOSTED else None)
        elif method == "torch budget":
            step = torch_budget(module, budget, mode)
        elif method == "each block":
            step = by_blocks(module)
        torch.manual_seed(1)  # the same dropout for all methods
        found = mt.measure(step, inputs, self.args.steps)
        row: Row = {"peak_bytes": found.peak_bytes, "before_bytes": found.before_bytes,
                    "step_s": found.step_s}
        if ours:
            plan = mt.plans(step)[-1]
            row.update(predicted_bytes=plan.pool_bytes, overhead=plan.overhead, bound=plan.bound,
                       budget_bytes=plan.budget_bytes, ops=len(plan.graph.ops),
                       planning_s=plan.planning_s, total_bytes=plan.total_bytes,
                       host_bytes=plan.host_bytes)
            if plan.predicted_pool_bytes is not None:  # what was tried is what the plan states
                row["predicted_bytes"] = plan.predicted_pool_bytes
        gradients = [p.grad.detach().clone() for p in module.parameters() if p.grad is not None]
        if compared in self.gradients:
            row["gradients_off"] = max(
                float((a.cpu() - b).abs().max() / (b.abs().max() + 1e-30))
                for a, b in zip(gradients, self.gradients[compared]))
        elif method == "unplanned":
            self.gradients[key] = [g.cpu() for g in gradients]
        return row

    def _asked(self, net: str, batch: int, mode: str, theirs: published.Published) -> int:
        base = self.unplanned(net, batch, mode)
        if base is None:
            raise LookupError("no unplanned step to compare with")
        return published.budget_bytes(theirs, base)

    def unplanned(self, net: str, batch: int, mode: str) -> Optional[Row]:
        """The row that those of a network and mode are compared with, if there is one."""
        return next((r for r in self.rows if (r["net"], r["batch"], r["mode"], r["method"]) == (
            net, batch, base_mode(mode), "unplanned") and "peak_bytes" in r), None)

    def baseline(self, row: Row) -> Optional[Row]:
        """What a row is compared with."""
        return self.unplanned(row["net"], row["batch"], row["mode"])

    def beside_published(self) -> str:
        """MONeT's and OGC's rows that were reached, as a table of Markdown."""
        return published.table([(row, self.baseline(row)) for row in self.rows
                                if "published" in row])

    def words(self, row: Row) -> str:
        if "error" in row:
            return row["error"]
        base = self.baseline(row) or row
        words = "peak %9.1f MiB %6.1f %%  step %8.2f ms %+6.1f %%" % (
            row["peak_bytes"] / 2**20, 100 * row["peak_bytes"] / base["peak_bytes"],
            1e3 * row["step_s"], 100 * (row["step_s"] / base["step_s"] - 1))
        if "predicted_bytes" in row:
            words += "  predicted %.1f MiB %+.1f %% (bound %+.1f; %d ops, %.1f s)" % (
                row["predicted_bytes"] / 2**20, 100 * row["overhead"], 100 * row["bound"],
                row["ops"], row["planning_s"])
        if "gradients_off" in row:
            words += "  gradients off by %.1e" % row["gradients_off"]
        if row.get("host_bytes"):
            words += "  %.1f MiB on the host" % (row["host_bytes"] / 2**20)
        return words + "  [%.0f s]" % row["row_s"]

    def table(self) -> str:
        """All rows as a table of Markdown."""
        lines = ["| network | mode | method | peak MiB | share | predicted MiB | step ms | extra |"
                 " planned extra | gradients off |", "|---|---|---|---|---|---|---|---|---|---|"]
        for row in self.rows:
            name = "%s, batch %d" % (row["net"], row["batch"])
            method = row["method"] + (" %s" % row["budget"] if row["budget"] else "")
            if "error" in row:
                lines.append("| %s | %s | %s | %s |||||||" % (
                    name, row["mode"], method, row["error"].replace("|", "/")))
                continue
            base = self.baseline(row) or row
            planned = "predicted_bytes" in row
            lines.append("| %s | %s | %s | %.0f | %.1f %% | %s | %.2f | %+.1f %% | %s | %s |" % (
                name, row["mode"], method, row["peak_bytes"] / 2**20,
                100 * row["peak_bytes"] / base["peak_bytes"],
                "%.0f" % (row["predicted_bytes"] / 2**20) if planned else "",
                1e3 * row["step_s"], 100 * (row["step_s"] / base["step_s"] - 1),
                "%+.1f %%" % (100 * row["overhead"]) if planned else "",
                "%.0e" % row["gradients_off"] if "gradients_off" in row else ""))
        return "\n".join(lines)


def base_mode(mode: str) -> str:
    """Whose unplanned step a mode is compared with: the module's own, or torch.compile's code."""
    return "inductor" if mode == "inductor" else "module"


def driver() -> str:
    """The driver's version, by the vendor's tool; "" where there is none."""
    try:
        return subprocess.run(
            ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"],
            capture_output=True, text=True, timeout=20).stdout.strip().splitlines()[0]
    except (OSError, IndexError, subprocess.SubprocessError):
        return ""


def report(run: Run) -> str:
    """The page: where it was measured, and the table."""
    device = torch.cuda.get_device_name() if run.cuda else \
        "a CPU, small networks: no device has run it"
    return "\n".join([
        "# PyTorch on a GPU", "",
        "Written by `python -m benchmarks torch-gpu` on %s; PyTorch %s; %s%s; op times %s. "
        "Peak: bytes allocated in a step beside parameters, buffers and inputs. \"module\" is the "
        "module without a compiler, \"eager\" its graph run by eager kernels; shares, extra times "
        "and gradients of both are beside the module's own step, under Inductor beside the code of "
        "plain torch.compile." % (
            datetime.date.today().isoformat(), torch.__version__, device,
            ", driver %s" % driver() if run.cuda else "", run.args.costs), "", run.table(), "",
        "## Beside MONeT and OGC", "",
        "What they published, on their devices and with PyTorch 1: memory as a share of the "
        "unplanned step (MONeT's with parameters, OGC's without) and extra time. memonger plans "
        "the same network and batch for the same share.", "", run.beside_published(), ""])


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--tiny", action="store_true", help="small networks, batches of eight")
    parser.add_argument("--limit", type=float, default=330.0, metavar="SECONDS")
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--costs", choices=("measured", "estimated"), default="measured")
    parser.add_argument("--only", default="", metavar="WORDS", help="rows whose name has them")
    parser.add_argument("-o", "--output", default="", help="write the page as Markdown")
    parser.add_argument("--json", default="", metavar="FILE", help="all rows, one a line")


def main(args: argparse.Namespace) -> int:
    run = Run(args)
    if run.cuda:
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    else:
        torch.set_num_threads(1)
        torch._inductor.config.compile_threads = 1
    print(torch.__version__, args.device, "op times", args.costs, flush=True)

    def size(batch: int) -> int:
        return 8 if args.tiny else batch

    for net, batch, mode, method, budget, needs_s in ROWS:
        run.row(net, size(batch), mode, method, budget, needs_s)
        # After each row: a run that is cut off leaves what it measured.
        if args.output:
            write_whole(args.output, report(run))
        if args.json:
            write_whole(args.json, "\n".join(
                json.dumps(row, default=dataclasses.asdict) for row in run.rows) + "\n")
    print("%s\n%.0f s" % (report(run), time.perf_counter() - run.started_s))
    return 0
