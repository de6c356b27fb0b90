"""The examples of docs/torch.md run."""
from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_the_examples_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {}
    text = (ROOT / "docs" / "torch.md").read_text(encoding="utf-8")
    for block in re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        exec(block, names)
    assert "plan" in names


def test_the_readme_prints_what_it_shows(capsys):
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    code, shown = re.search(r"^```py\n(.*?)^```\n\n```\n(.*?)^```$", text,
                            re.MULTILINE | re.DOTALL).groups()
    exec(code, {})
    printed = capsys.readouterr().out.splitlines()
    assert printed[:len(shown.splitlines())] == shown.splitlines()
