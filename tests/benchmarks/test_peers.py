"""The comparison with the rivals' graphs: rows and table without them, optima with them."""
from __future__ import annotations

import json

import pytest

from benchmarks.__main__ import main
from benchmarks.mxnet import peers
from memonger.util.errors import InputError


def row(cost, percent, known=None, known_percent=None):
    case = peers.Case("x.json", 0.9, known, known_percent, "somebody")
    return peers.Row(case, cost, percent, 0.1, 1.0)


@pytest.mark.parametrize("mine, reached", [
    (row(105.0, 5.0, 105.0), True), (row(106.0, 6.0, 105.0), False),
    (row(105.0, 1.1288, None, 1.129), True), (row(105.0, 1.13, None, 1.129), False),
    (row(None, None, None, 1.0), False), (row(None, None), True), (row(1.0, 0.0), False)])
def test_reached_means_at_least_as_good(mine, reached):
    assert mine.reached is reached


def test_table_has_a_line_for_each_row():
    text = peers.table([row(105.0, 5.0, 105.0), row(None, None)])
    assert len(text.splitlines()) == 4
    assert "| x.json | 0.9 | 105 | 5.000 | 0.100 | 1.0 | 105 | somebody | yes |" in text
    assert "none found" in text and "infeasible" in text


def test_missing_folder_says_what_to_set(monkeypatch, tmp_path):
    monkeypatch.setenv("MEMONGER_PEERS", str(tmp_path))
    with pytest.raises(InputError, match="MEMONGER_PEERS"):
        peers.folder()


def test_the_command_compares_all_cases(monkeypatch, tmp_path, capsys):
    (tmp_path / "graphs").mkdir()
    (tmp_path / "graphs" / "x.txt").write_text(
        "6 7\n10 1 1\n10 1 1\n10 1 1\n1 2 0\n1 2 0\n1 2 0\n"
        "0 1\n1 2\n2 3\n3 4\n1 4\n4 5\n0 5\n")
    monkeypatch.setenv("MEMONGER_PEERS", str(tmp_path))
    monkeypatch.setattr(peers, "CASES", (peers.Case("x.txt", 0.7, 10.0, None, "by hand"),))
    assert main(["peers"]) == 0
    assert "| x.txt | 0.7 | 10 |" in capsys.readouterr().out
    assert main(["peers", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer[0]["reached"] is True and answer[0]["cost"] == 10.0


def available():
    try:
        return bool(peers.folder())
    except InputError:
        return False


@pytest.mark.skipif(not available(), reason="the rivals' graphs are not here")
def test_proven_optima_are_reached():
    cases = [case for case in peers.CASES if case.proven and case.file in (
        "VGG16.json", "VGG19.json", "vgg_unet.json")]
    assert cases and not [case for case in cases if not peers.run(case, peers.folder()).reached]


@pytest.mark.slow
@pytest.mark.skipif(not available(), reason="the rivals' graphs are not here")
@pytest.mark.parametrize("case", peers.CASES, ids=lambda case: "%s-%g" % (case.file, case.budget))
def test_best_known_values_are_reached(case):
    assert peers.run(case, peers.folder()).reached
