"""memonger bench scaling: what is counted, and that a small network comes out."""
from __future__ import annotations

import json

import pytest

pytest.importorskip("mxnet")
from needed import needs_plugin

from benchmarks.mxnet import scaling
from benchmarks.mxnet.cases import Row
from benchmarks.mxnet.scaling import Timing
from memonger.util.errors import InputError


def timing(cpu_s=1.0, error="") -> Timing:
    return Timing(Row("resnet_180", 32, "auto:exact", "total 50%", error=error), cpu_s, limit_s=2.0)


def test_the_limit_is_one_of_cpu_time() -> None:
    assert timing(1.9).kept
    assert not timing(2.1).kept
    assert not timing(error="no plan fits").kept


def test_a_quarter_may_take_twice_as_long() -> None:
    half, quarter = (scaling.failed("resnet_180", budget, "x").limit_s for budget in ("50%", "25%"))
    assert quarter == 2 * half == 6.0


def test_the_table_names_errors() -> None:
    text = scaling.render([scaling.failed("resnet_180", "25%", "no plan fits")])
    line = text.splitlines()[1]
    assert "planning in all" in text and line.startswith("resnet_180") and "25%" in line
    assert line.endswith("no plan fits") and "+0.0 %" not in line


def test_timings_survive_json() -> None:
    for item in (timing(1.5), scaling.failed("resnet_700", "50%", "no plan fits")):
        assert Timing.from_dict(json.loads(json.dumps(item.to_dict()))) == item


def test_unknown_networks_are_named() -> None:
    with pytest.raises(InputError, match="resnet_180"):
        scaling.main(["no_such"])


@needs_plugin
def test_a_network_is_planned_in_a_process_of_its_own() -> None:
    found, = scaling.run(["resnet_100"], ["50%"])
    assert not found.row.error and 50 < found.row.ops < 200
    assert 0 < found.reading_s < found.cpu_s and found.process_bytes > 10 ** 7
    assert found.row.bound <= found.row.overhead + 1e-9


@needs_plugin
@pytest.mark.slow
def test_large_networks_are_planned_within_their_time() -> None:
    rows = scaling.run(["resnet_700", "resnet_10000"], ["50%"])
    assert all(row.kept for row in rows), scaling.render(rows)
