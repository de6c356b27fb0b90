"""``memonger bench --process``."""
from __future__ import annotations

import json

from memonger.bench.process import Row, render, rows
from memonger.bench.run import main


def test_processes_are_measured_with_mkldnn_and_without(capsys):
    """A network so small that only the form of the answer is certain."""
    code = main(["--process", "attention_small", "--json", "--time-limit", "0.2",
                 "--budget", "90%"])
    found = json.loads(capsys.readouterr().out)
    assert [row["mkldnn"] for row in found] == [True, False]
    for row in found:
        assert not row["error"]
        assert row["promised_bytes"] < row["promised_unplanned_bytes"]
        assert row["planned_bytes"] > 0
    assert code == int(not all(row["holds"] for row in found))


def test_a_network_whose_plan_fails_has_a_row():
    row, = rows(["attention_small"], "off", budget="1 parsec")
    assert "parsec" in row.error and not row.holds
    assert "parsec" in render([row])


def test_a_row_holds_when_nine_tenths_are_saved():
    assert Row("a", 1, True, 200, 100, 250, 160).holds
    assert not Row("a", 1, True, 200, 100, 250, 161).holds
    assert not Row("a", 1, True, 200, 100, 250, 251).holds
