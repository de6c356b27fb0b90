"""The command line: ``memonger plan``, ``apply``, ``estimate``, ...

Exit codes: 0 success, 1 error, 2 wrong usage, 3 the budget is impossible (or is exceeded, with
``estimate --budget``), 4 verification failed, 130 interrupted. Results go to standard output,
everything else to standard error.
"""
from __future__ import annotations

import argparse
import logging
import os
import sys
from typing import Any, Iterator, Optional, Sequence, Type

from ..util.files import write_out
from ..util.version import __version__
from .command import EXIT_ERROR, EXIT_INTERRUPTED, EXIT_USAGE, Command, Parser, UsageError
from .failure import report_failure


def commands() -> Sequence[Type[Command]]:
    """All subcommands, in the order of the help."""
    from .apply import Apply
    from .bench import Bench
    from .doctor import Doctor
    from .estimate import Estimate
    from .explain import Explain
    from .max_batch import MaxBatch
    from .measure import Measure
    from .plan import MakePlan
    from .profile import Profile
    from .report import Report
    from .verify import Verify
    return (MakePlan, Apply, Estimate, Verify, Measure, Explain, Report, MaxBatch, Profile, Bench,
            Doctor)


#: Metavars of arguments that name files.
_FILES = ("FILE", "NETWORK", "PLAN", "SYMBOL", "ORIGINAL", "SOURCE")


class PrintCompletion(argparse.Action):
    """Prints a shell's completion script, made by shtab, and exits."""

    def __call__(self, parser: argparse.ArgumentParser, namespace: argparse.Namespace,
                 shell: Any, option_string: Optional[str] = None) -> None:
        try:
            import shtab
        except ImportError:
            parser.error("completion needs shtab: pip install shtab")
        if shell not in shtab.SUPPORTED_SHELLS:
            parser.error("no completion for %s; there is %s"
                         % (shell, ", ".join(shtab.SUPPORTED_SHELLS)))
        for action in _actions(parser):
            if any(word in str(action.metavar) for word in _FILES):
                action.complete = shtab.FILE  # type: ignore[attr-defined]
        write_out(shtab.complete(parser, shell) + "\n")
        parser.exit(0)


def _actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    """The arguments of a parser and of its subcommands."""
    for action in parser._actions:
        yield action
        if isinstance(action, argparse._SubParsersAction):
            for name in action.choices:
                yield from _actions(action.choices[name])


def make_parser() -> Parser:
    """The parser of the whole command line."""
    parser = Parser(prog="memonger",
                    description="Plans the training memory of MXNet networks and PyTorch modules.",
                    epilog="memonger COMMAND --help tells more about a command.")
    parser.add_argument("--version", action="version", version="memonger " + __version__)
    parser.add_argument("--print-completion", metavar="SHELL", action=PrintCompletion,
                        help="print the completion script of a shell, such as bash (needs shtab)")
    subparsers = parser.add_subparsers(dest="command", metavar="COMMAND")
    for kind in commands():
        subparser = subparsers.add_parser(
            kind.name, help=kind.help(), description=kind.description(),
            formatter_class=argparse.RawDescriptionHelpFormatter)
        command = kind()
        command.configure(subparser)
        subparser.add_argument("--json", action="store_true", help="print the result as JSON")
        subparser.add_argument("-v", "--verbose", action="count", default=0,
                               help="log what is done to standard error (-vv: more)")
        subparser.set_defaults(run=command.run, prog=subparser.prog)
    return parser


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Run the command line and return its exit code.

    ``argv``: the arguments without the program's name; by default those of the process.
    """
    try:
        return _run(argv)
    except KeyboardInterrupt:  # also while modules are being imported
        logging.getLogger("memonger").info("interrupted here", exc_info=True)
        sys.stderr.write("\ninterrupted before there was a result\n")
        return EXIT_INTERRUPTED


def _run(argv: Optional[Sequence[str]]) -> int:
    parser = make_parser()
    if sys.stdout is None:  # closed by the shell: >&-
        sys.stdout = open(os.devnull, "w")
    if hasattr(sys.stdout, "reconfigure"):  # what the terminal's encoding does not have is escaped
        sys.stdout.reconfigure(errors="backslashreplace")
    args = argparse.Namespace(json=False)
    words = list(sys.argv[1:] if argv is None else argv)
    if words[:1] == ["bench"] and words[1:] != ["--help"]:  # all that follows is for the benchmarks
        words.insert(1, "--")
    try:
        try:
            args = parser.parse_args(words, argparse.Namespace(words=words))
        except SystemExit as end:  # argparse has said why
            return int(end.code or 0)
        return _answer(parser, args)
    except UsageError as error:
        sys.stderr.write("error: %s\n  see: %s --help\n" % (error, args.prog))
        return EXIT_USAGE
    except BrokenPipeError:  # the reader (head, less) has seen enough
        return EXIT_ERROR
    except Exception as error:
        return report_failure(error, args)


def _answer(parser: Parser, args: argparse.Namespace) -> int:
    if args.command is None:
        parser.print_help(sys.stderr)
        return EXIT_USAGE
    if args.verbose:
        logging.basicConfig(level=logging.DEBUG if args.verbose > 1 else logging.INFO,
                            format="%(name)s: %(message)s")
    code: int = args.run(args)
    write_out("")  # whatever was printed is there
    return code
