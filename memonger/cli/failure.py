"""Errors in the words of the command line, and their exit codes."""
from __future__ import annotations

import argparse
import logging
import re
import sys
from typing import Any, Dict, List

from ..plans.plan import Plan
from ..util.errors import InfeasibleBudget, MemongerError, VerificationError
from ..util.messages import listed
from ..util.units import format_bytes
from .command import EXIT_BUDGET, EXIT_ERROR, EXIT_VERIFICATION, answer

#: What messages say of Python's arguments, and what stands for it on a command line.
_OPTIONS = (
    (r"as keyword arguments, for example (\w+)=\(([\d, ]+)\)",
     lambda match: "as options: --shape %s=%s" % (match[1], match[2].replace(" ", ""))),
    (r"for example (\w+)=\(([\d, ]+)\)",
     lambda match: "for example --shape %s=%s" % (match[1], match[2].replace(" ", ""))),
    (r"ctx=mx\.gpu\(\) \(--ctx gpu\)", "--ctx gpu"), (r"\b(keep|recompute)=", r"--\1 "),
    (r'as in device="\w+" \((--device \w+)\)', r"as in \1"),
    (r"\btype_dict\b", "--type"), (r"\bgrad_req\b", "--grad-req"),
    (r"\btime_limit\b", "--time-limit"), (r"\bmax_clones\b", "--max-clones"),
    (r"\bmemonger\.(plan|estimate|verify|measure)\b", r"memonger \1"),
    (r"\bmax_batch\b", "memonger max-batch"), (r'"([\d.]+(?:%|[KMGT]i?B))"', r"\1"))
#: Most tensors to name of those that pin the smallest plan.
_PINNED_SHOWN = 6


def report_failure(error: Exception, args: argparse.Namespace) -> int:
    """Write what happened to standard error and return the exit code.

    Raises ``error`` itself when it is none of ours: then it is a defect, and the traceback is what
    its report needs.
    """
    if isinstance(error, OSError) and not isinstance(error, MemongerError):
        where = ": %s" % error.filename if error.filename else ""
        sys.stderr.write("error: %s%s\n" % (error.strerror or error, where))
        return EXIT_ERROR
    if type(error).__name__ == "MXNetError":  # not imported here: doctor works without MXNet
        sys.stderr.write("error: MXNet failed: %s\n" % _last_words(error))
        return EXIT_ERROR
    if not isinstance(error, MemongerError):
        raise error
    logging.getLogger("memonger").info("the error in full", exc_info=error)
    lines = ["error: %s" % in_options(str(error)), *_details(error, args)]
    sys.stderr.write("\n".join(lines) + "\n")
    if isinstance(error, InfeasibleBudget):
        try:
            if args.json:
                answer(args, infeasible_record(error), "")
        except MemongerError as lost:
            return report_failure(lost, args)
        return EXIT_BUDGET
    return EXIT_VERIFICATION if isinstance(error, VerificationError) else EXIT_ERROR


def in_options(message: str) -> str:
    """Advice about arguments of Python calls as advice about options."""
    for python, option in _OPTIONS:
        message = re.sub(python, option, message)
    return message


def _last_words(error: Exception) -> str:
    """What MXNet says behind its traceback of C++ frames."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1].replace("MXNetError: ", "") if lines else type(error).__name__


def _details(error: Exception, args: argparse.Namespace) -> List[str]:
    if not isinstance(error, InfeasibleBudget):
        return []
    lines = []
    graph = error.best_plan.graph if isinstance(error.best_plan, Plan) else None
    size = format_bytes if graph is None else graph.format_size
    if error.pinned and error.pinned[0][0] not in str(error):
        lines.append("  pinned at the peak: " + listed(
            ["%s %s" % (name, size(part)) for name, part in error.pinned], _PINNED_SHOWN))
    budget = "--budget %d" % error.minimum_bytes
    if graph is None or not graph.own_units:
        budget += " (%s)" % size(error.minimum_bytes)
    if not hasattr(args, "budget"):  # verify and measure have the plan's
        return [*lines, "  try: plan again with " + budget]
    lines.append("  try: %s%s" % (budget, getattr(
        args, "smaller", " · a smaller batch (memonger max-batch tells which fits)")))
    return lines


def infeasible_record(error: InfeasibleBudget) -> Dict[str, Any]:
    """What ``--json`` prints about an impossible budget."""
    return {"status": "infeasible", "budget_bytes": error.budget_bytes,
            "minimum_total_bytes": error.minimum_bytes,
            "pinned": [{"name": name, "bytes": size} for name, size in error.pinned]}
