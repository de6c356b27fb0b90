"""``python -m benchmarks FILE``, and the command where there is no MXNet."""
from __future__ import annotations

import json
import sys

import pytest

from benchmarks.__main__ import main

CHAIN = "4 4\n4 1 1\n4 1 1\n1 1 0\n1 1 0\n0 1\n1 2\n2 3\n0 3\n"


@pytest.fixture
def graph(tmp_path):
    path = tmp_path / "chain.txt"
    path.write_text(CHAIN)
    return str(path)


@pytest.fixture
def without(monkeypatch):
    """Makes imports of a package fail as where it is not installed, in what was loaded as well."""
    def remove(name):
        for module in [m for m in sys.modules if m.split(".")[0] in (name, "benchmarks")
                       or m.startswith("memonger.torch")]:
            monkeypatch.delitem(sys.modules, module)
        monkeypatch.setitem(sys.modules, name, None)
    return remove


def test_all_methods_on_a_graph(graph, capsys):
    assert main([graph, "--budgets", "88,50", "--time-limit", "1"]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert [line[:2] for line in lines[1:4]] == [
        ["chain", "sublinear"], ["chain", "chen"], ["chain", "ogc"]]
    assert lines[4][:8] == ["chain", "auto", "88", "%", "8", "88.9", "%", "+25.0"]
    assert lines[5] == "chain auto 50 % no plan: at least 8".split()


def test_rows_as_json(graph, capsys):
    assert main([graph, "--methods", "auto", "--budgets", "88", "--json"]) == 0
    row, = json.loads(capsys.readouterr().out)
    assert (row["graph"], row["method"], row["budget_percent"]) == ("chain", "auto", 88)
    assert (row["total_bytes"], row["unplanned_total_bytes"], row["overhead"]) == (8, 9, 0.25)
    assert main([graph, "--methods", "auto", "--budgets", "10", "--json"]) == 1
    row, = json.loads(capsys.readouterr().out)
    assert row["error"] == "no plan: at least 8" and "total_bytes" not in row


def test_graphs_need_no_mxnet_and_networks_say_what_they_need(graph, without, capsys):
    without("mxnet")
    assert main([graph, "--methods", "chen"]) == 0
    assert main(["--list"]) == 0
    capsys.readouterr()
    for words in ("resnet18", "--published", "--process alexnet", "ready_plans alexnet",
                  "operators", "ablation", "scaling"):
        assert main(words.split()) == 1, words
        err = capsys.readouterr().err
        assert err.startswith("error: memonger needs MXNet 1.9.1: pip install"), words
        assert err.count("\n") == 1


@pytest.mark.parametrize("table", ["torch", "torch-gpu", "torch-models"])
def test_tables_of_pytorch_say_what_they_need(table, without, capsys):
    without("torch")
    assert main([table]) == 1
    assert capsys.readouterr().err == \
        "error: this table needs PyTorch: pip install 'memonger[torch]'\n"
