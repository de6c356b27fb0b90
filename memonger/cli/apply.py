"""``memonger apply``."""
from __future__ import annotations

import argparse

from ..mx.calls import plan as api
from ..mx.symbol.common_subexpressions import to_json
from ..plans import plan_file
from ..util.errors import InputError
from ..util.files import write_whole
from ..util.json_files import read_text
from .arguments import add_output, is_plan, load_symbol
from .command import EXIT_OK, Command, UsageError, answer


class Apply(Command):
    """Write the planned network of a plan file as a *-symbol.json file, or remove the plan of one.

    The planned file has the arguments, aux states and outputs of the original, so checkpoints
    interchange. SYMBOL, where given, must be the network that the plan was made for.

    A process that reads the planned file calls memonger.native.load() first: the file may hold
    operators of memonger's plugin, and without the plugin MXNet ignores the plan's attributes.

      memonger apply plan.json net-symbol.json -o planned-symbol.json
      memonger apply --strip planned-symbol.json -o net-symbol.json
    """

    name = "apply"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("plan", metavar="PLAN", help="a plan file; with --strip a symbol file")
        parser.add_argument("symbol", metavar="SYMBOL", nargs="?",
                            help="the original network, to check that the plan is for it")
        parser.add_argument("--strip", action="store_true",
                            help="take memonger's marks off the symbol file PLAN")
        add_output(parser, "-o", "--output", required=True, help="the *-symbol.json file to write")

    def run(self, args: argparse.Namespace) -> int:
        if args.strip:
            if args.symbol:
                raise UsageError("--strip takes one symbol file")
            if is_plan(read_text(args.plan)):
                raise InputError("%s is a plan file; --strip takes the planned *-symbol.json that "
                                 "memonger apply wrote" % args.plan)
            symbol = load_symbol(args.plan)
            planned = api.strip(symbol)
            if to_json(planned) == to_json(symbol):
                raise InputError("%s carries no plan; there is nothing to remove" % args.plan)
        else:
            plan = plan_file.load_plan(args.plan)
            if plan.symbol_json is None:
                raise InputError("%s plans a graph that is not MXNet's; there is no symbol to "
                                 "write" % args.plan)
            if args.symbol:
                planned = api.apply_plan(plan, load_symbol(args.symbol))
            else:
                planned = plan.symbol
        write_whole(args.output, to_json(planned))
        hint = "" if args.strip else \
            "\nbefore MXNet reads it: import memonger; memonger.native.load()"
        answer(args, {"output": args.output}, "wrote %s%s" % (args.output, hint))
        return EXIT_OK
