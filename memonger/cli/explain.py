"""``memonger explain``."""
from __future__ import annotations

import argparse

from .. import api
from ..errors import UnknownOpError
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
        decisions = plan.decisions
        for name in args.ops:
            if name not in decisions:
                raise UnknownOpError(unknown_op(name, decisions))
        texts = [plan.explain(name) for name in args.ops]
        answer(args, lambda: [{"op": name, "decision": decisions[name], "text": text}
                              for name, text in zip(args.ops, texts)], "\n\n".join(texts))
        return EXIT_OK


def unknown_op(name: str, known: "dict[str, str]") -> str:
    """Say which names are close to the one that is not known."""
    import difflib
    close = difflib.get_close_matches(name, known, n=3) or [n for n in known if name in n][:3]
    hint = "did you mean %s?" % " or ".join(close) if close else \
        "the plan has %d ops, the first is %s" % (len(known), next(iter(known), "none"))
    return "no forward op is named %r; %s" % (name, hint)
