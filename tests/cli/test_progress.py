"""Progress is a bar where somebody watches, and leaves nothing behind; a line elsewhere."""
from __future__ import annotations

import io
import time

import mxnet as mx
import pytest
from cli.test_graph_files import joint_graph

import memonger
from memonger.plans.plan import Progress
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
    assert [part.elapsed_s for part in seen] == sorted(part.elapsed_s for part in seen)
    assert seen[-1].elapsed_s < 1.0, "the call's own seconds"
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


def test_who_watches_sees_a_bar_of_a_long_call_unasked(monkeypatch):
    """A phase may be long: what was told before the two seconds is shown when they are over."""
    shown, given = [], []
    monkeypatch.setattr(module, "watched", lambda stream: True)
    monkeypatch.setattr(module, "UNASKED_AFTER_S", 0.05)
    monkeypatch.setattr(ProgressBar, "_show", lambda bar, news: shown.append(news))

    @shows_progress
    def call(seconds, progress=None):
        given.append(progress)
        if progress:
            progress(Progress("tracing", 0.0))
        time.sleep(seconds)

    call(0.0)
    assert shown == [], "a short call shows nothing"
    call(0.3)
    assert [news.phase for news in shown] == ["tracing"] and shown[0].elapsed_s > 0.0
    call(0.0, progress=False)
    monkeypatch.setattr(module, "watched", lambda stream: False)
    call(0.0)
    assert isinstance(given[1], ProgressBar) and given[2:] == [False, None]


def test_a_search_tells_its_share_of_the_work_and_finds_the_same():
    seen = []
    quiet = memonger.plan(joint_graph(), budget=0.6, time_limit=1)
    told = memonger.plan(joint_graph(), budget=0.6, time_limit=1, progress=seen.append)
    assert told == quiet and len(seen) > 2
    shares = [part.fraction for part in seen]
    assert shares == sorted(shares) and 0 <= shares[0] <= shares[-1] <= 1
    assert seen[-1].total_bytes == told.total_bytes


def test_each_batch_and_each_search_has_its_name():
    value = mx.sym.var("data")
    for _ in range(6):
        value = mx.sym.Activation(mx.sym.FullyConnected(value, num_hidden=64), act_type="tanh")
    net, seen = mx.sym.SoftmaxOutput(value, name="softmax"), []
    least = memonger.plan(net, time_limit=0.2, data=(8, 64)).total_bytes
    found = memonger.max_batch(net, least + 1000, time_limit=1, limit=8, data=(8, 64),
                               progress=seen.append)
    assert found.planned and any(
        part.phase.startswith("batch %d: " % found.planned) for part in seen)
    seen.clear()
    with pytest.raises(memonger.errors.InfeasibleBudget):
        memonger.plan(net, least // 3, time_limit=0.2, data=(8, 64), progress=seen.append)
    assert {part.phase.partition(":")[0] for part in seen} <= {
        "searching", "search 2 of at most 2"}
