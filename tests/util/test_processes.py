"""Children import what their parent imports, and answer or fail in a line."""
from __future__ import annotations

import pytest

import memonger
from memonger.util.errors import MemongerError
from memonger.util.processes import ask_module


def test_a_child_imports_from_where_its_parent_does(tmp_path, monkeypatch):
    (tmp_path / "fractions.py").write_text("")  # not the one of Python
    (tmp_path / "told.py").write_text(
        "import fractions, json, memonger, sys\n"
        "print(json.dumps([fractions.__file__, memonger.__file__, json.load(sys.stdin)]))\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.chdir(tmp_path)
    assert ask_module("told", {"a": 1}) == [str(tmp_path / "fractions.py"), memonger.__file__,
                                            {"a": 1}]


@pytest.mark.parametrize("code, words", [
    ("raise SystemExit('last words')", "last words"), ("raise SystemExit(3)", "status 3"),
    ("import os; os.kill(os.getpid(), 9)", "it was killed"), ("", "status 0")])
def test_the_last_words_of_a_child_are_told(tmp_path, monkeypatch, code, words):
    (tmp_path / "dying.py").write_text(code)
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(MemongerError, match=words):
        ask_module("dying", {})


def test_a_child_that_takes_too_long_is_ended(tmp_path, monkeypatch):
    (tmp_path / "slow.py").write_text("import time\ntime.sleep(60)")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(MemongerError, match="more than 0.5 s"):
        ask_module("slow", {}, timeout_s=0.5)
