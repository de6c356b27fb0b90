"""What all subcommands share: their form, how they are refused, and how they answer."""
from __future__ import annotations

import argparse
import difflib
import json
import re
import sys
import textwrap
from typing import IO, Any, Callable, Mapping, NoReturn, Optional, Sequence, Union

from ..util.files import write_out
from ..util.json_files import plain
from ..util.version import __version__

#: Version of what ``--json`` prints: rises when a key is removed or changes its meaning.
JSON_SCHEMA = 1

EXIT_OK = 0
EXIT_ERROR = 1
EXIT_USAGE = 2
EXIT_BUDGET = 3
EXIT_VERIFICATION = 4
EXIT_INTERRUPTED = 130


class UsageError(Exception):
    """The command line asks for something that makes no sense."""


class Parser(argparse.ArgumentParser):
    """Refuses in the words of all other errors: what was wrong, then what to do next."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        known, rest = super().parse_known_args(args, namespace)
        if rest:
            options = [word for action in self._actions for word in action.option_strings]
            hint = "; did you mean --shape %s?" % rest[0] \
                if "--shape" in options and re.match(r"\w+=\d", rest[0]) else \
                meant(rest[0], options)
            self.error("unknown argument: %s%s" % (rest[0], hint))
        return known, rest

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            choices = [str(choice) for choice in action.choices]
            raise argparse.ArgumentError(action, "no %r%s" % (
                value, meant(str(value), choices) or "; there are " + ", ".join(choices)))

    def error(self, message: str) -> NoReturn:
        sys.stderr.write("error: %s\n  see: %s --help\n" % (message, self.prog))
        sys.exit(EXIT_USAGE)

    def _print_message(self, message: str, file: Optional[IO[str]] = None) -> None:
        # argparse says nothing where its help cannot be written.
        if file is sys.stdout:
            write_out(message)
        else:
            sys.stderr.write(message)


def meant(word: str, known: Sequence[str]) -> str:
    """``"; did you mean plan?"``, or nothing where no known word is close."""
    close = difflib.get_close_matches(word, known, 1)
    return "; did you mean %s?" % close[0] if close else ""


class Command:
    """One subcommand; its help is the docstring of its class."""

    name = ""

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """Declare the arguments."""

    def run(self, args: argparse.Namespace) -> int:
        """Do the work and return the exit code."""
        raise NotImplementedError

    @classmethod
    def help(cls) -> str:
        """The first sentence, for the list of commands."""
        return cls.description().split("\n\n")[0].replace("\n", " ").rstrip(".")

    @classmethod
    def description(cls) -> str:
        # Of a class: all lines but the first are indented by four.
        return textwrap.dedent(" " * 4 + (cls.__doc__ or "")).strip()


def answer(args: argparse.Namespace, record: Union[Mapping[str, Any], Callable[[], Any]],
           text: Union[str, Callable[[], str]]) -> None:
    """Print the result: ``record`` as JSON with ``--json``, else ``text``.

    JSON is an object with the ``schema`` of its keys and memonger's ``version``; a list of records
    is its ``results``.
    """
    if args.json:
        data = record() if callable(record) else record
        keys = data if isinstance(data, Mapping) else {"results": data}
        data = {"schema": JSON_SCHEMA, "version": __version__, **keys}
        write_out(json.dumps(data, indent=2, sort_keys=True, default=plain) + "\n")
    else:
        write_out((text() if callable(text) else text) + "\n")
