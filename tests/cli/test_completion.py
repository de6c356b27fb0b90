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


def test_other_shells_and_a_missing_library_are_named(monkeypatch, capsys):
    pytest.importorskip("shtab")
    assert main(["--print-completion", "nosuch"]) == 2
    assert "no completion for nosuch; there is bash" in capsys.readouterr().err
    monkeypatch.setitem(sys.modules, "shtab", None)
    assert main(["--print-completion", "bash"]) == 2
    assert "memonger[completion]" in capsys.readouterr().err
