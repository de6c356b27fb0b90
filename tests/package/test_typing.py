"""A type checker knows the public calls and refuses what is none."""
from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

CODE = """
import memonger
reveal_type(memonger.verify)
memonger.plan("graph.json", budget="50%", data=(8, 3))
memonger.plan("graph.json", budgett="50%")
memonger.nosuch()
"""


@pytest.mark.slow
def test_mypy_sees_wrong_names(tmp_path, monkeypatch):
    api = pytest.importorskip("mypy.api")
    path = tmp_path / "user.py"
    path.write_text(CODE, encoding="utf-8")
    monkeypatch.setenv("MYPYPATH", str(ROOT))
    monkeypatch.chdir(tmp_path)
    out, _, _ = api.run(["--ignore-missing-imports", "--follow-imports=silent", str(path)])
    lines = {int(line.split(":")[1]): line for line in out.splitlines() if ".py:" in line}
    assert "Verification" in lines[3] and 4 not in lines
    assert 'Argument "budgett" to "plan"' in lines[5]
    assert 'no attribute "nosuch"' in lines[6]
