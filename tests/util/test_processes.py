"""Children import what their parent imports."""
from __future__ import annotations

import memonger
from memonger.util.processes import run_module


def test_a_child_imports_from_where_its_parent_does(tmp_path, monkeypatch):
    (tmp_path / "json.py").write_text("")  # not the one of Python
    (tmp_path / "told.py").write_text("import json, memonger, sys\n"
                                      "print(json.__file__, memonger.__file__, *sys.argv[1:])\n"
                                      "print(sys.stdin.read())\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.chdir(tmp_path)
    done = run_module("told", "one", stdin="two")
    assert done.stdout.split() == [str(tmp_path / "json.py"), memonger.__file__, "one", "two"], \
        done.stderr
