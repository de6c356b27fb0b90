"""``memonger explain``."""
from __future__ import annotations

import argparse
import fnmatch
from typing import List

from ..plans import plan_file
from ..plans.plan import Plan
from ..report.op_table import op_rows, op_table
from .command import EXIT_OK, Command, answer


class Explain(Command):
    """Tell why an op got its decision, what that saves, costs and depends on.

      memonger explain plan.json                   a table of all ops
      memonger explain plan.json stage3_unit2_bn1
      memonger explain plan.json layers.3          a PyTorch module: all its ops
    """

    name = "explain"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("plan", metavar="PLAN", help="a plan file")
        parser.add_argument("ops", metavar="OP", nargs="*",
                            help="names of forward ops or modules, or patterns such as "
                                 "'stage1_*'; without one all ops are listed")

    def run(self, args: argparse.Namespace) -> int:
        plan = plan_file.load_plan(args.plan)
        if not args.ops:
            answer(args, lambda: op_rows(plan), lambda: op_table(plan))
            return EXIT_OK
        names = [name for pattern in args.ops for name in _matching(plan, pattern)]
        texts = [plan.explain(name) for name in names]
        answer(args, lambda: [{"op": name, "decision": plan.decisions[name], "text": text}
                              for name, text in zip(names, texts)], "\n\n".join(texts))
        return EXIT_OK


def _matching(plan: Plan, pattern: str) -> List[str]:
    """The forward ops that a pattern matches, or that are a module's; the name itself where it is
    neither.
    """
    for one in (pattern, pattern + "[./]*"):
        names = [name for name in plan.decisions if fnmatch.fnmatchcase(name, one)]
        if names:
            return names
    return [pattern]  # explain names ops that are close
