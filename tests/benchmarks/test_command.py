"""Mistakes on the command line of ``python -m benchmarks``, and ``memonger bench``."""
from __future__ import annotations

from pathlib import Path

import pytest
from forked import python

from benchmarks.__main__ import main

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("words, code, message", [
    ("alexnet --set imag=64", 1, "alexnet has no option 'imag'; it has"),
    ("alexnet --batch -1", 1, "the batch must be a whole number of at least 1, not -1"),
    ("alexnet --set image=big", 1, "the option image of alexnet is a value like 224"),
    ("alexnet --budget 40%", 1, "python -m benchmarks without --process has no --budget"),
    ("--process alexnet -o out", 1, "python -m benchmarks --process has no --output"),
    ("--process nonesuch", 1, "no network 'nonesuch' in the zoo"),
    ("--process alexnet --ctx cpu:1", 1, "python -m benchmarks --process has no --ctx"),
    ("scaling --steps 3", 1, "python -m benchmarks scaling has no --steps"),
    ("operators alexnet", 1, "no variant 'alexnet' in this table; there are mask_relu"),
    ("--published --methods chen", 1, "--published compares auto:none, auto:exact, auto:all"),
    ("--published vgg16 unheard", 1, "no network 'unheard' in the zoo"),
    ("--published --batch 4", 1, "python -m benchmarks --published has no --batch"),
    ("alexnet --from passwd", 1, "python -m benchmarks --from shows all rows; leave out alexnet"),
    ("--from passwd --batch 4", 1, "python -m benchmarks --from has no --batch"),
    ("--from passwd", 1, "passwd is no results.json of python -m benchmarks"),
    ("--from nothere", 1, "cannot read the results nothere: No such file or directory"),
    ("no/graph.json", 1, "cannot read no/graph.json: No such file"),
    ("passwd passwd.txt --methods nonesuch", 1, "no method 'nonesuch' for graphs; there are auto"),
    ("./passwd", 1, "no symbol JSON of MXNet, which sym.save('net-symbol.json') writes, and no"),
    ("./passwd alexnet", 1, "files or networks of the zoo, not both; leave out alexnet"),
    ("./passwd --measure", 1, "python -m benchmarks FILE has no --measure"),
    ("./passwd --budgets half", 1, "cannot read the budgets 'half'"),
    ("alexnet --update nothere.md", 1, "cannot read nothere.md: No such file"),
    ("alexnet --update passwd -o passwd", 1, "File exists: passwd"),
])
def test_mistakes_are_told_in_the_words_of_the_command_line(tmp_path, monkeypatch, capsys, words,
                                                            code, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "passwd").write_text("root:x:0:0", encoding="utf-8")
    assert main(words.split()) == code
    err = capsys.readouterr().err
    assert message in err and err.count("\n") == 1


def test_memonger_bench_runs_the_benchmarks_of_a_checkout():
    done = python("-m", "memonger", "bench", "--list", folder=str(ROOT))
    assert done.returncode == 0 and "vgg16" in done.stdout
