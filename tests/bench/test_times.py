"""memonger bench times: what is counted, and that a small network comes out."""
from __future__ import annotations

import json

import pytest

pytest.importorskip("mxnet")
from needed import needs_plugin

from memonger.bench import times
from memonger.bench.rows import Row
from memonger.bench.times import Timing
from memonger.util.errors import InputError


def timing(planning_s=1.0, error="", **more) -> Timing:
    return Timing(Row("resnet50", 32, "auto:exact", planning_s=planning_s, error=error),
                  limit_s=2.0, **more)


def test_limits_are_those_of_time_and_memory() -> None:
    assert timing(1.9, process_bytes=10).kept
    assert not timing(2.1).kept
    assert not timing(process_bytes=11, limit_bytes=10).kept
    assert not timing(error="no plan fits").kept


def test_the_table_names_errors() -> None:
    text = times.render([times.failed("resnet50", "no plan fits")])
    assert "no plan fits" in text and "planning in all" in text


def test_timings_survive_json() -> None:
    for item in (timing(1.5, process_bytes=7), times.failed("lstm_500", "no plan fits")):
        assert Timing.from_dict(json.loads(json.dumps(item.to_dict()))) == item


def test_unknown_networks_are_named() -> None:
    with pytest.raises(InputError, match="resnet50"):
        times.main(["no_such"])


@needs_plugin
def test_a_network_is_planned_in_a_process_of_its_own(monkeypatch, capsys) -> None:
    assert times.main(["resnet50"], as_json=True) in (0, 1)
    found, = map(Timing.from_dict, json.loads(capsys.readouterr().out))
    assert not found.row.error and found.row.ops > 300
    assert 0 < found.reading_s < found.row.planning_s and found.process_bytes > 10 ** 7
    assert found.row.bound <= found.row.overhead + 1e-9


@needs_plugin
@pytest.mark.slow
def test_large_networks_are_planned_within_a_minute_and_four_gigabytes() -> None:
    rows = times.run(["transformer_96", "lstm_200"])
    assert all(row.kept for row in rows), times.render(rows)
