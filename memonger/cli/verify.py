"""``memonger verify``."""
from __future__ import annotations

import argparse
from dataclasses import asdict
from typing import Any, Dict

from ..mx.calls import plan as api
from ..plans.plan import Plan
from ..plans.verification import Verification
from . import torch_model
from .arguments import add_context, add_shapes, context, count, load_network, load_symbol
from .command import EXIT_OK, EXIT_VERIFICATION, Command, UsageError, answer


class Verify(Command):
    """Train a planned network and the original side by side and compare every number.

    Outputs, all gradients and all aux states are compared after a few steps, bit for bit; where
    bits differ, float64 judges. The exit code is 4 when they differ by more than rounding explains.

      memonger verify plan.json
      memonger verify planned-symbol.json net-symbol.json --shape data=32,3,224,224
    """

    name = "verify"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("planned", metavar="PLAN",
                            help="a plan file, or a planned *-symbol.json file")
        parser.add_argument("original", metavar="ORIGINAL", nargs="?",
                            help="the original *-symbol.json file; a plan file brings its own")
        add_shapes(parser)
        torch_model.add_arguments(parser)
        add_context(parser)
        parser.add_argument("--control", action="store_true",
                            help="of a network of MXNet: train the original once more with another "
                                 "number of threads, to see how far stock MXNet is from itself")
        parser.add_argument("--steps", type=count, default=2,
                            help="training steps to compare; default %(default)s")

    def run(self, args: argparse.Namespace) -> int:
        if torch_model.is_model_or_its_plan(args.planned):
            return torch_model.verify(args)
        planned, options = load_network(args, args.planned)
        if isinstance(planned, Plan) and args.original:
            raise UsageError("a plan file brings its own original; give one of the two")
        original = load_symbol(args.original) if args.original else None
        result = api.verify(planned, original, steps=args.steps, ctx=context(args.ctx),
                            control=args.control, **options)
        answer(args, lambda: verification_record(result), lambda: str(result))
        if not args.json:
            result.check()
        return EXIT_OK if result.ok else EXIT_VERIFICATION


def verification_record(result: Verification) -> Dict[str, Any]:
    """The verdict, and the tensors that are not bit for bit the same."""
    return {"ok": result.ok, "identical": result.identical, "steps": result.steps,
            "tolerance": result.tolerance, "tensors": len(result.differences),
            "different": [asdict(d) for d in result.differences if not d.identical],
            "judge": result.judge,
            "lost_casts": dict(result.lost_casts),
            "control": {"threads": list(result.control_threads),
                        "different": [asdict(d) for d in result.control if not d.identical]}
            if result.control else None,
            "different_in_float64": [asdict(d) for d in result.in_double if not d.identical]}
