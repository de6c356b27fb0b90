"""Errors in the words of the command line, and their exit codes."""
from __future__ import annotations

import argparse
import logging
import sys
from typing import Any, Dict, List

from ..util.errors import InfeasibleBudget, MemongerError, VerificationError
from ..util.messages import listed
from ..util.units import format_bytes
from .command import EXIT_BUDGET, EXIT_ERROR, EXIT_VERIFICATION, answer

#: As many of the tensors that pin the smallest plan are printed.
_PINNED_SHOWN = 6


def report_failure(error: Exception, args: argparse.Namespace) -> int:
    """Write what happened to standard error and return the exit code.

    Raises
    ------
    Exception
        ``error`` itself when it is none of ours: then it is a defect, and the traceback is what
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
    sys.stderr.write("\n".join(["error: %s" % error] + _details(error)) + "\n")
    if isinstance(error, InfeasibleBudget):
        try:
            if args.json:
                answer(args, infeasible_record(error), "")
        except MemongerError as lost:
            return report_failure(lost, args)
        return EXIT_BUDGET
    return EXIT_VERIFICATION if isinstance(error, VerificationError) else EXIT_ERROR


def _last_words(error: Exception) -> str:
    """What MXNet says behind its traceback of C++ frames."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1].replace("MXNetError: ", "") if lines else type(error).__name__


def _details(error: Exception) -> List[str]:
    if not isinstance(error, InfeasibleBudget):
        return []
    lines = []
    if error.pinned and error.pinned[0][0] not in str(error):
        lines.append("  pinned at the peak: " + listed(
            ["%s %s" % (name, format_bytes(size)) for name, size in error.pinned], _PINNED_SHOWN))
    lines.append("  try: --budget %d · a smaller batch (memonger max-batch tells which fits)"
                 % error.minimum_bytes)
    return lines


def infeasible_record(error: InfeasibleBudget) -> Dict[str, Any]:
    """What ``--json`` prints about an impossible budget."""
    return {"status": "infeasible", "budget_bytes": error.budget_bytes,
            "minimum_total_bytes": error.minimum_bytes,
            "pinned": [{"name": name, "bytes": size} for name, size in error.pinned]}
