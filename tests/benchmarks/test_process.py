"""``python -m benchmarks --process``."""
from __future__ import annotations

import json
from dataclasses import asdict

from benchmarks.__main__ import main
from benchmarks.mxnet import process
from benchmarks.mxnet.process import Row, measure_network, render, rows
from memonger.util.errors import MemongerError


def test_a_process_is_measured_with_mkldnn(capsys):
    """A network so small that only the form of the answer is certain."""
    code = main(["--process", "attention_small", "--json", "--time-limit", "0.2",
                 "--budget", "90%", "--mkldnn", "on"])
    row, = json.loads(capsys.readouterr().out)
    assert row["mkldnn"] and not row["error"]
    assert row["promised_bytes"] < row["promised_unplanned_bytes"]
    assert row["planned_bytes"] > 0
    assert code == int(not row["holds"])


def test_each_network_has_a_process_with_mkldnn_and_one_without(monkeypatch):
    def ask_module(module, request, environment):
        name, options = request
        return asdict(Row(name, options["batch"], environment["MXNET_MKLDNN_ENABLED"] == "1"))
    monkeypatch.setattr(process, "ask_module", ask_module)
    assert list(rows(["alexnet", "gan"], batch=2)) == [
        Row(name, 2, on) for name in ("alexnet", "gan") for on in (True, False)]


def test_a_network_whose_plan_fails_has_a_row():
    row = measure_network("attention_small", budget="1 parsec")
    assert "parsec" in row.error and not row.holds
    assert "parsec" in render([row])


def test_a_process_that_dies_has_a_row(monkeypatch):
    def dies(*_):
        raise MemongerError("last words")
    monkeypatch.setattr(process, "ask_module", dies)
    row, = rows(["attention_small"], "off")
    assert row.error == "its process failed: last words" and not row.mkldnn


def test_a_row_holds_when_nine_tenths_are_saved():
    assert Row("a", 1, True, 200, 100, 250, 160).holds
    assert not Row("a", 1, True, 200, 100, 250, 161).holds
    assert not Row("a", 1, True, 200, 100, 250, 251).holds
