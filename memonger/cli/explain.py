"""``memonger explain``."""
from __future__ import annotations

import argparse

from ..mx.calls import calls as api
from .command import EXIT_OK, Command, answer


class Explain(Command):
    """Tell why an op got its decision, what that saves, costs and depends on.

      memonger explain plan.json stage3_unit2_bn1
    """

    name = "explain"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("plan", metavar="PLAN", help="a plan file")
        parser.add_argument("ops", metavar="OP", nargs="+", help="names of forward ops")

    def run(self, args: argparse.Namespace) -> int:
        plan = api.load_plan(args.plan)
        texts = [plan.explain(name) for name in args.ops]
        answer(args, lambda: [{"op": name, "decision": plan.decisions[name], "text": text}
                              for name, text in zip(args.ops, texts)], "\n\n".join(texts))
        return EXIT_OK
