"""``python -m benchmarks torch-models``: sixty models of other packages under a budget.

Each trains in a process of its own, with a limit for its time: plain, compiled by PyTorch, and by a
plan. Results go to a file, a line each; what is in it is not run again. It needs transformers,
timm, torchvision and diffusers; models are small ones of their own configurations, and nothing
is downloaded.
"""
from __future__ import annotations

import argparse
import json
import os
import sys
import time
from pathlib import Path
from typing import Any, Dict, List

from memonger.report.formatting import format_extra, format_percent, markdown
from memonger.util.errors import MemongerError
from memonger.util.processes import ask_module

from .models import NAMES

#: Where the budget is a share of the unplanned step, and its code keeps it.
SHARES = {"eager": 0.7, "inductor": 0.8}
_HEADER = ["model", "trains", "numbers beside the module's", "peak of the budget", "share",
           "extra time", "first step, plain", "with a plan", "planning"]


def row(name: str, found: Dict[str, Any]) -> List[str]:
    """A model's row of the table."""
    if "error" in found:
        return [name, "no: " + found["error"][:120], *[""] * (len(_HEADER) - 2)]
    apart = found["apart"]
    words = "the same bits" if not apart else "%.0e" % apart
    if apart and found.get("beside_plain_compile"):
        words += " (plain compile: %.0e)" % found["beside_plain_compile"]
    return [name, "yes", words, "%.3f" % found["kept"],
            format_percent(found["of_unplanned"])
            + (", the least" if found.get("infeasible") else ""),
            format_extra(found["extra"]), "%.1f s" % found["plain_compile_s"]
            if "plain_compile_s" in found else "fails", "%.1f s" % found["compile_s"],
            "%.1f s" % found["planning_s"]]


def page(results: Dict[str, Dict[str, Any]]) -> str:
    """The table, and in how many rows all is well."""
    trained = [found for found in results.values() if "error" not in found]
    return ("%s\n\n%d of %d train; %d keep the budget (within 0.2 %%), %d trained at the share "
            "asked for.\n") % (
        markdown(_HEADER, "<<<>>>>>>", [row(*item) for item in results.items()]), len(trained),
        len(results), sum(found["kept"] <= 1.002 for found in trained),
        sum(not found.get("infeasible") for found in trained))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("models", nargs="*", help="by default %d: %s" % (
        len(NAMES), ", ".join(NAMES)))
    parser.add_argument("--mode", choices=tuple(SHARES), default="eager")
    parser.add_argument("--share", type=float, default=0.0, help="of the unplanned step; by "
                        "default 0.7 in eager mode and 0.8 under Inductor")
    parser.add_argument("--limit", type=float, default=300.0, metavar="SECONDS",
                        help="time for each model")
    parser.add_argument("--time-limit", type=float, default=3.0, metavar="SECONDS",
                        help="work for each plan; default %(default)s")
    parser.add_argument("--total", type=float, default=0.0, metavar="SECONDS",
                        help="begin no further model after so long")
    parser.add_argument("--results", default="torch-models.jsonl", metavar="FILE",
                        help="what is known, and is added to; default %(default)s")


def main(args: argparse.Namespace) -> int:
    share, started_s = args.share or SHARES[args.mode], time.monotonic()
    unknown = [name for name in args.models if name not in NAMES]
    if unknown:
        sys.stderr.write("error: no model %s\n" % unknown[0])
        return 2
    path, results = Path(args.results), {}  # type: Path, Dict[str, Dict[str, Any]]
    for line in path.read_text().splitlines() if path.exists() else ():
        entry = json.loads(line)
        if (entry["mode"], entry["share"]) == (args.mode, share):
            results[entry["model"]] = entry
    for name in args.models or NAMES:
        if name in results or args.total and time.monotonic() - started_s > args.total:
            continue
        request = {"model": name, "mode": args.mode, "share": share,
                   "time_limit": args.time_limit}
        try:
            found = ask_module("benchmarks.torch_models.training", request, {
                "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "KINETO_LOG_LEVEL": "99"},
                timeout_s=args.limit)
        except MemongerError as error:
            found = {"error": str(error)}
        results[name] = {**request, **found}
        with path.open("a") as file:
            file.write(json.dumps(results[name]) + os.linesep)
        print(" · ".join(filter(None, row(name, results[name]))), flush=True)
    print(page({name: results[name] for name in NAMES if name in results}))
    return 0 if all("error" not in found for found in results.values()) else 1
