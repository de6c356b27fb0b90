"""The progress line is seen on terminals only and leaves nothing behind."""
from __future__ import annotations

import io

from memonger.cli.progress import ProgressLine, describe
from memonger.plan.plan import Progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def screen(text: str) -> str:
    """What a terminal shows after carriage returns have overwritten the line."""
    shown: list = []
    column = 0
    for character in text:
        if character == "\r":
            column = 0
            continue
        shown[column:column + 1] = [character]
        column += 1
    return "".join(shown).rstrip()


def test_describe():
    assert describe(Progress("reading", 0.25)) == "0.2 s  reading"
    assert describe(Progress("searching", 3.2, 2**30, 0.071, 0.068, 0.45)) == \
        "3.2 s  searching  total 1.00 GiB  +7.1 % time  (at least +6.8 %)  45 % done"


def test_line_is_rewritten_and_erased():
    terminal = Terminal()
    with ProgressLine(terminal) as line:
        line.callback(Progress("searching for the best plan", 1.0))
        line.callback(Progress("proving", 2.0))
        assert screen(terminal.getvalue()) == "2.0 s  proving"
        assert "\n" not in terminal.getvalue()
    assert screen(terminal.getvalue()) == ""


def test_nothing_is_written_where_nobody_watches():
    stream = io.StringIO()
    with ProgressLine(stream) as line:
        assert line.callback is None
        line(Progress("searching", 1.0))
    assert stream.getvalue() == ""
