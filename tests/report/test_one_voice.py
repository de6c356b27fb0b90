"""One plan, one set of figures: table, JSON, page and README agree in unit, sign and rounding."""
from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from report.graphs import plan_of, resnet

from memonger.cli.record import plan_record
from memonger.report import html, text

README = Path(__file__).resolve().parents[2] / "README.md"
UNITS = {"GiB": 2 ** 30, "MiB": 2 ** 20, "KiB": 2 ** 10, "bytes": 1}
SECONDS = {"s": 1.0, "ms": 1e-3, "us": 1e-6}
SIZE, TIME, EXTRA = r"(\S+) (GiB|MiB|KiB|bytes)", r"(\S+) (s|ms|us)\b", r"([+-]\d+\.\d) %"


def said(summary: str) -> dict:
    """The figures of a summary as printed, by the names of the JSON record."""
    rows = {line[:14].strip(): line for line in summary.splitlines()}
    before, after = rows["unplanned"], rows["with this plan"]
    done = next(line for line in summary.splitlines() if line.startswith("recomputed"))
    found = {}
    for prefix, row in (("baseline_", before), ("", after)):
        sizes = [" ".join(pair) for pair in re.findall(SIZE, row)]
        found[prefix + "total_bytes"], found[prefix + "pool_bytes"] = sizes[:2]
        found[prefix + "step_s"] = " ".join(re.findall(TIME, row)[-1])
    found["overhead"] = re.search(r"\(%s\)" % EXTRA, after).group(1)
    found["budget_bytes"] = " ".join(re.search(SIZE, rows["budget"]).groups())
    found["recomputed"] = re.search(r"\(%s of a step\)" % EXTRA, done).group(1)
    found["again"], found["ops"] = re.search(r"recomputed (\d+) of (\d+) ops", done).groups()
    variants = re.search(r"variants? \(%s;" % EXTRA, done)
    found["variants"] = variants.group(1) if variants else "+0.0"
    return found


def number(words: str) -> float:
    value, unit = words.split()
    return float(value) * (UNITS.get(unit) or SECONDS[unit])


@pytest.fixture(scope="module")
def plan():
    return plan_of(resnet((2, 3), 16, 64), budget_bytes=52 * 10**6, bound=0.05,
                   minimum_total_bytes=40 * 10**6, options={"budget": "52MB"})


def test_the_record_holds_what_the_table_rounds(plan):
    table, record = said(text.summary(plan)), json.loads(json.dumps(plan_record(plan)))
    for name in ("total_bytes", "baseline_total_bytes", "pool_bytes", "baseline_pool_bytes",
                 "budget_bytes"):
        assert number(table[name]) == pytest.approx(record[name], rel=0.005), name
    assert number(table["baseline_step_s"]) == pytest.approx(record["step_s"], rel=0.005)
    assert number(table["step_s"]) == pytest.approx(
        record["step_s"] * (1 + record["overhead"]), rel=0.005)
    assert table["overhead"] == "%+.1f" % (100 * record["overhead"])
    assert table["recomputed"] == "%+.1f" % (100 * record["recomputed_s"] / record["step_s"])
    assert int(table["ops"]) == record["ops"]
    assert int(table["again"]) == sum(count for decision, count in record["decisions"].items()
                                      if "recompute" in decision)


def test_the_page_says_what_the_table_says(plan):
    table, page = said(text.summary(plan)), re.sub(r"<[^>]*>", "\n", html.page(plan))
    page = page.replace("\u00a0", " ")
    lines = set(page.splitlines())
    for name in ("total_bytes", "baseline_total_bytes", "pool_bytes", "baseline_pool_bytes",
                 "step_s", "baseline_step_s", "budget_bytes"):
        assert table[name] in lines, name
    assert "%s → %s" % (table["baseline_total_bytes"], table["total_bytes"]) in lines
    assert "%s → %s" % (table["baseline_step_s"], table["step_s"]) in lines
    assert "%s %%" % table["overhead"] in lines
    assert "%s of %s ops" % (table["again"], table["ops"]) in lines
    assert "%s %% of a step" % table["recomputed"] in page


def test_the_parts_of_the_sample_in_the_readme_make_its_whole():
    sample = re.search(r"^resnet50 .*?^next:", README.read_text("utf-8"), re.M | re.S).group(0)
    found = said(sample)
    assert number(found["total_bytes"]) <= number(found["budget_bytes"])
    assert float(found["recomputed"]) + float(found["variants"]) == pytest.approx(
        float(found["overhead"]), abs=0.11)
    assert number(found["step_s"]) / number(found["baseline_step_s"]) - 1 == pytest.approx(
        float(found["overhead"]) / 100, abs=0.01)
