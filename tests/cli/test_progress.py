"""Progress is a bar where somebody watches, and leaves nothing behind; a line elsewhere."""
from __future__ import annotations

import io

from memonger.plan.plan import Progress
from memonger.report import progress as module
from memonger.report.progress import ProgressBar, describe, numbered, shows_progress


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
    assert describe(Progress("searching", 3.2, 12000, own_units=True)) == \
        "3.2 s  searching  total 12,000"


def test_a_bar_is_rewritten_and_erased(monkeypatch):
    monkeypatch.setattr(module, "BAR_EVERY_S", 0.0)
    terminal = Terminal()
    with ProgressBar(terminal) as bar:
        bar(Progress("searching for the best plan", 1.0, fraction=0.25))
        bar(Progress("proving", 2.0, fraction=0.5))
        assert screen(terminal.getvalue()).endswith("2.0 s  proving  50 % done")
    assert screen(terminal.getvalue()) == ""


def test_a_pipe_gets_a_line_now_and_then(monkeypatch):
    stream = io.StringIO()
    with ProgressBar(stream) as bar:
        bar(Progress("searching", 1.0))
        assert stream.getvalue() == ""
        monkeypatch.setattr(module, "LINE_EVERY_S", 0.0)
        bar(Progress("searching", 11.0))
    assert stream.getvalue() == "11.0 s  searching\n"


def test_searches_of_one_call_are_numbered():
    seen = []
    for callback in numbered(seen.append, "budget", 2):
        callback(Progress("searching", 1.0, fraction=0.5))
    assert [(part.phase, part.fraction) for part in seen] == [
        ("budget 1 of 2: searching", 0.25), ("budget 2 of 2: searching", 0.75)]
    assert list(numbered(None, "budget", 2)) == [None, None]


def test_true_shows_a_bar(monkeypatch):
    given = []

    @shows_progress
    def call(progress=None):
        given.append(progress)

    call(progress=True)
    call(progress=print)
    call()
    assert isinstance(given[0], ProgressBar) and given[1:] == [print, None]
