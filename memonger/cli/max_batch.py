"""``memonger max-batch``."""
from __future__ import annotations

import argparse
import re
import shlex
import sys
from typing import Sequence

from ..mx.calls import plan as api
from ..plans.max_batch import MaxBatch as MaxBatchResult
from ..report.progress import ProgressBar
from . import arguments, torch_model
from .command import EXIT_BUDGET, EXIT_OK, Command, answer

#: An option that gives sizes, and the first of them.
_SIZES = re.compile(r"(--(?:input|shape)[ =](?:\w+=)?)(\d+)(?=[,x: ]|$)")


class MaxBatch(Command):
    """Find the largest batch that fits a budget, without a plan and with one.

    The first dimension of each --shape or --input is the batch; its value does not matter. The exit
    code is 3 when not even one sample fits.

      memonger max-batch net-symbol.json --shape data=1,3,224,224 --budget 8GB
    """

    name = "max-batch"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        arguments.add_network(parser, "a *-symbol.json file of MXNet, or PyTorch's model.py:build")
        torch_model.add_arguments(parser)
        arguments.add_place(parser)
        arguments.add_budget(parser, required=True, shares="")
        arguments.add_search(parser)
        arguments.add_optimizer(parser)

    def run(self, args: argparse.Namespace) -> int:
        result = torch_model.max_batch(args, self) if torch_model.is_model(args.network) \
            else self._of_symbol(args)
        if result.reason:
            sys.stderr.write("error: %s\n" % result)
            if args.json:
                answer(args, result.to_dict, "")
            return EXIT_BUDGET
        answer(args, result.to_dict, lambda: "\n".join(
            [str(result), *next_command(args.words, result.planned)]))
        return EXIT_OK

    def _of_symbol(self, args: argparse.Namespace) -> MaxBatchResult:
        symbol = arguments.load_symbol(args.network)
        with ProgressBar() as bar:
            return api.max_batch(symbol, budget=args.budget, progress=bar,
                                 **arguments.call_arguments(args, symbol))


def next_command(words: Sequence[str], batch: int) -> Sequence[str]:
    """A line with the command that plans so large a batch; none where no option gives sizes.

    ``words``: those of the command line, beginning with ``max-batch``.
    """
    text = shlex.join(["memonger", "plan", *words[1:], "-o", "plan-%d.json" % batch])
    first = _SIZES.search(text)
    if first is None:
        return []
    return ["next: " + _SIZES.sub(lambda found: found[1] + (
        str(batch) if found[2] == first[2] else found[2]), text)]
