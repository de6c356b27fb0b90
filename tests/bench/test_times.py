"""memonger bench times: what is counted, and that a small network comes out."""
from __future__ import annotations

import json

import pytest

pytest.importorskip("mxnet")
from memonger import native
from memonger.bench import times
from memonger.bench.times import Timing
from memonger.errors import InputError

needs_plugin = pytest.mark.skipif(not (native.folder() / "libmemonger_mxnet.so").exists(),
                                  reason="the native libraries are not built")


def test_limits_are_those_of_time_and_memory() -> None:
    row = Timing("x", total_s=1.9, process_bytes=10, limit_s=2.0)
    assert row.kept
    assert not Timing("x", total_s=2.1, limit_s=2.0).kept
    assert not Timing("x", total_s=1.0, process_bytes=11, limit_s=2.0, limit_bytes=10).kept
    assert not Timing("x", total_s=1.0, limit_s=2.0, error="no plan fits").kept


def test_the_table_names_errors() -> None:
    text = times.render([Timing("resnet50", error="no plan fits", limit_s=2.0)])
    assert "no plan fits" in text and "planning in all" in text


def test_unknown_networks_are_named() -> None:
    with pytest.raises(InputError, match="resnet50"):
        times.main(["no_such"])


@needs_plugin
def test_a_network_is_planned_in_a_process_of_its_own(monkeypatch, capsys) -> None:
    assert times.main(["resnet50"], as_json=True) in (0, 1)
    row, = json.loads(capsys.readouterr().out)
    assert row["error"] == "" and row["ops"] > 300
    assert 0 < row["reading_s"] < row["total_s"] and row["process_bytes"] > 10 ** 7
    assert row["bound"] <= row["overhead"] + 1e-9


@needs_plugin
@pytest.mark.slow
def test_large_networks_are_planned_within_a_minute_and_four_gigabytes() -> None:
    rows = times.run(["transformer_96", "lstm_200"])
    assert all(row.kept for row in rows), times.render(rows)
