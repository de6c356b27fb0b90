"""Completion scripts for shells."""
from __future__ import annotations

import subprocess
import sys

import pytest

from memonger.cli import main


@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_the_script_knows_commands_and_options(shell, capsys):
    pytest.importorskip("shtab")
    assert main(["--print-completion", shell]) == 0
    script = capsys.readouterr().out
    assert "max-batch" in script and "--time-limit" in script
    if shell == "bash":
        done = subprocess.run(["bash", "-n"], input=script, text=True, capture_output=True)
        assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("words, expected", [
    ("max", ["max-batch"]), ("plan --meth", ["--method"]),
    ("plan --variants ''", ["none", "exact", "all"]), ("plan net-", ["net-symbol.json"]),
    ("plan x -o pla", ["plan.json"]), ("verify pla", ["plan.json"]),
    ("apply x net-", ["net-symbol.json"]), ("plan x --costs pla", ["plan.json"])])
def test_bash_completes_commands_options_and_files(tmp_path, capsys, words, expected):
    pytest.importorskip("shtab")
    main(["--print-completion", "bash"])
    for name in ("net-symbol.json", "plan.json"):
        (tmp_path / name).write_text("{}")
    script = capsys.readouterr().out + """
COMP_WORDS=(memonger %s); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _shtab_memonger 2>/dev/null
printf '%%s\\n' "${COMPREPLY[@]}"
""" % words
    done = subprocess.run(["bash"], input=script, text=True, capture_output=True, cwd=tmp_path)
    assert done.stdout.split() == expected


def test_other_shells_and_a_missing_library_are_named(monkeypatch, capsys):
    pytest.importorskip("shtab")
    assert main(["--print-completion", "nosuch"]) == 2
    assert "no completion for nosuch; there is bash" in capsys.readouterr().err
    monkeypatch.setitem(sys.modules, "shtab", None)
    assert main(["--print-completion", "bash"]) == 2
    assert "pip install shtab" in capsys.readouterr().err
