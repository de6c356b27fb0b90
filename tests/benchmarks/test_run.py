"""memonger bench: cases, rows, tables, and the command itself."""
from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

pytest.importorskip("mxnet")
from needed import needs_plugin

from benchmarks.__main__ import main
from benchmarks.mxnet import run as command
from benchmarks.mxnet import tables
from benchmarks.mxnet.cases import COMPARED, Case, Row, by_network, comparison, published_cases
from benchmarks.mxnet.published import PUBLISHED, Published
from benchmarks.mxnet.runner import Settings, run_cases
from memonger.util.errors import InfeasibleBudget, InputError

SMALL = {"image": 64, "classes": 10}
THEIRS = Published("MONeT", "resnet50", 184, "total", 15060, 4990, 0.1195)


def row(method="auto:exact", target="total 33.1341%", overhead=0.05, total=33, **more):
    return Row("resnet50", 184, method, target, 90, 100, total - 10, total, overhead,
               planning_s=1.25, status="feasible", **more)


def test_published_rows_hold_the_numbers_of_the_papers():
    by_system = {}
    for item in PUBLISHED:
        by_system.setdefault(item.system, []).append(item)
    assert {name: len(rows) for name, rows in by_system.items()} == {
        "MONeT": 30, "OGC": 18, "dmlc": 1}
    # The cuts that OGC prints beside its megabytes, in per cent.
    printed = {"alexnet": 34, "vgg11": 22, "vgg13": 31, "vgg16": 31, "vgg19": 31, "resnet18": 35,
               "resnet34": 55, "resnet50": 63, "resnet101": 74, "resnet152": 81, "densenet121": 78,
               "densenet161": 82, "densenet169": 82, "densenet201": 85, "inception_v3": 71,
               "nasnet_cifar10": 81, "amoebanet_cifar10": 79, "darts_cifar10": 80}
    assert {r.network: round(100 * r.cut) for r in by_system["OGC"]} == printed


def test_targets_are_read():
    assert Case("vgg16", "auto:all", "pool 37.5%").goal() == ("pool", 0.375)
    assert Case("vgg16", "chen").goal() is None
    for wrong in ("pool", "half", "total 3GB", "total -5%", "total nan%", "total inf%"):
        with pytest.raises(InputError, match="cannot read the target"):
            Case("vgg16", "auto:all", wrong)
    with pytest.raises(InputError, match="no method 'best'"):
        Case("vgg16", "best")


def test_comparison_gives_budgets_only_to_methods_that_take_them():
    cases = comparison(["vgg16", "unet"], ["mxnet", "auto:none"], [50, 25])
    assert [(c.network, c.method, c.target) for c in cases] == [
        ("vgg16", "mxnet", ""), ("vgg16", "auto:none", "total 50%"),
        ("vgg16", "auto:none", "total 25%"), ("unet", "mxnet", ""),
        ("unet", "auto:none", "total 50%"), ("unet", "auto:none", "total 25%")]
    assert [len(group) for group in by_network(cases)] == [3, 3]
    with pytest.raises(InputError, match="no network"):
        comparison(["vgg17"])


def test_published_cases_ask_for_the_published_memory():
    cases = published_cases([THEIRS], ["auto:exact"])
    assert [(c.target, c.batch) for c in cases] == [("total 33.1341%", 184)]


def test_the_command_makes_the_cases_it_names():
    import argparse
    parser = argparse.ArgumentParser()
    command.configure(parser)
    words = ["unet", "--published", "--methods", "auto:exact"]
    args = parser.parse_args(words)
    assert {(c.network, c.method, c.target.split()[0]) for c in command.make_cases(args)} == {
        ("unet", "auto:exact", "total")}
    with pytest.raises(InputError, match="no published row is about squeezenet1_0"):
        command.make_cases(parser.parse_args(["squeezenet1_0", "--published"]))


@pytest.mark.parametrize("overhead,verdict", [
    (0.05, "at most half"), (0.09, "less, not half"), (0.13, "behind")])
def test_verdicts(overhead, verdict):
    group, = tables.beside([row(overhead=overhead, published=THEIRS)])
    assert group.verdict == verdict


def test_a_smaller_gain_than_the_published_one_is_behind():
    theirs = Published("MONeT", "vgg16", 176, "total", 14.12, 9.7, -0.053)
    group, = tables.beside([row(published=theirs, overhead=-0.017)])
    assert group.verdict == "behind"


def test_a_published_row_names_the_variants_of_our_plan():
    (*_, ours, _, _, verdict), = tables.published_cells([row(published=THEIRS, overhead=0.05)])
    assert (ours, verdict) == ("+5.0 % (exact)", "at most half")


def test_a_row_that_failed_says_why_and_is_no_result():
    failed = row(published=THEIRS, error="smallest total 5.2 GiB")
    group, = tables.beside([failed])
    assert group.verdict == "not reached: smallest total 5.2 GiB"
    assert "smallest total 5.2 GiB" in tables.as_text([row(error="smallest total 5.2 GiB")])


def test_overhead_of_a_forward_pass_is_priced_by_our_times():
    theirs = Published("dmlc", "dmlc_resnet50", 32, "pool", 4899, 1658, 0.93, of_forward=True)
    group, = tables.beside([row(published=theirs, forward=0.35, overhead=0.12)])
    assert group.their_overhead == pytest.approx(0.93 * 0.35)
    assert group.verdict == "at most half"


def test_rows_survive_json():
    rows = [row(), row(published=THEIRS, measured={"batch": 4}), row(error="too small")]
    assert tables.from_json(tables.as_json(rows)) == rows


def test_documents_get_their_tables_between_the_marks():
    text = "before\n<!-- benchmarks: published -->\nold\n<!-- end -->\nafter\n"
    new = tables.documented([row(published=THEIRS)], text)
    assert new.startswith("before\n<!-- benchmarks: published -->\n| published by |")
    assert new.endswith("|\n<!-- end -->\nafter\n") and "old" not in new
    assert "| MONeT | resnet50 (184) | 66.9 % of total | +11.9 % |  | +5.0 % (exact) |" in new
    assert tables.documented([row(published=THEIRS)], new) == new
    assert tables.documented([], new) == new  # nothing to say about it
    measured = tables.documented([row(published=THEIRS, measured=MEASURED)], new)
    assert "| 66.9 % of total | +11.9 % | +20.0 % | +5.0 % (exact) |" in measured
    assert tables.documented([row(published=THEIRS)], measured) == measured
    with pytest.raises(InputError, match="no table 'publishd'"):
        tables.documented([], "<!-- benchmarks: publishd -->\n<!-- end -->")


DOCS = Path(__file__).resolve().parents[2] / "docs"


def documented_lines(document, table):
    """The table between its marks: header, rule and rows."""
    text = (DOCS / document).read_text()
    return re.search(r"<!-- benchmarks: %s -->\n(.*?)\n<!-- end -->" % table, text,
                     re.DOTALL).group(1).splitlines()


@pytest.mark.parametrize("table,rows", [("published", len(PUBLISHED)), ("methods", len(COMPARED))])
def test_the_documents_have_the_tables_that_the_command_makes_today(table, rows):
    stored = documented_lines("RESULTS.md", table)
    assert len(stored) == 2 + rows
    marks = "<!-- benchmarks: %s -->\n%%s\n<!-- end -->" % table
    some = [row(published=THEIRS, measured=MEASURED), row(published=THEIRS), row()]
    made = tables.documented(some, marks % "old").splitlines()
    assert made[1:3] == stored[:2], "the columns are others: make the table again"


def test_networks_at_a_glance():
    rows = [row("mxnet", "", 0.0, 100), row("chen", "", 0.3, 60),
            row("auto:exact", "total 50%", 0.05, 50), row("auto:none", "total 50%", error="no")]
    assert tables.at_a_glance_cells(rows) == [
        ("resnet50 (184)", "100 B", "", "", "40.0 %: +30.0 %", "", "-", "50.0 %: +5.0 %", "")]


def test_measured_rows_keep_predicted_and_measured_apart():
    found = {"batch": 4, "bytes": 60, "unplanned_bytes": 120, "predicted_bytes": 50,
             "predicted_unplanned_bytes": 110, "predicted_overhead": 0.1, "overhead": 0.2,
             "step_s": 0.5, "unplanned_step_s": 0.4, "device": "cpu"}
    line, = tables.measured_cells([row(measured=found), row()])
    assert line[3:] == ("4", "120 B", "110 B", "60 B", "50 B", "+20.0 %", "+10.0 %", "0.5 s")


MEASURED = {"batch": 4, "pool_cut": 0.689, "overhead": 0.2, "predicted_overhead": 0.1,
            "step_s": 0.5}


def test_what_was_measured_beside_a_published_row_has_a_table_of_its_own():
    rows = [row(published=THEIRS, measured=MEASURED),
            row("auto:all", published=THEIRS, measured={"batch": 4, "error": "too small"})]
    measured, failed = tables.published_measured_cells(rows)
    assert measured == ("MONeT", "resnet50", "184", "total", "66.9 %", "+11.9 %", "4", "68.9 %",
                        "+20.0 %", "+10.0 %", "0.5 s")
    assert failed[6:] == ("4", "", "", "", "too small")
    assert tables.measured_cells(rows) == []


def test_a_network_too_small_for_the_target_is_a_measured_row_that_says_so():
    line, = tables.measured_cells([row(measured={"batch": 4, "error": "pool 5% is too small"})])
    assert line[3:] == ("4", "", "", "", "", "", "", "pool 5% is too small")


@needs_plugin
def test_the_measured_plan_has_the_published_share_of_the_pool(monkeypatch):
    """Of a total the pool's share is less than the total's: the rest cannot be saved."""
    from benchmarks.mxnet import runner
    asked = []

    def refuse(case, net, pool_bytes, fixed_bytes, settings):
        asked.append((case.target, net.batch))
        raise InfeasibleBudget("no plan", budget_bytes=1, minimum_bytes=2 ** 20)

    monkeypatch.setattr(runner, "make_plan", refuse)
    monkeypatch.setattr(runner, "measured_costs", lambda net, settings: "auto")
    monkeypatch.setattr(runner, "measure", None)
    total = Published("MONeT", "attention_small", 64, "total", 100, 70, 0.1)
    pool = Published("OGC", "attention_small", 64, "pool", 100, 70, 0.1)
    trainer = runner.Trainer(Case("attention_small", "auto:exact", "total 70%", 64),
                             Settings(measure_bytes=10 ** 9, measure_batch=8))
    assert trainer.net.batch == 8
    for theirs in (total, pool):
        found = trainer.measure(Case("attention_small", "auto:exact", "total 70%", 64,
                                     published=theirs), row(published=theirs))
        assert found["error"].endswith("the smallest total found is 1.00 MiB")
    # 30 of 100 bytes are to be saved, of which 90 are the pool.
    assert asked == [("pool 66.6667%", 8), ("pool 70.0000%", 8)]


def test_the_list_of_networks_needs_no_mxnet(capsys):
    assert main(["--list"]) == 0
    assert "138,357,544" in capsys.readouterr().out
    assert main(["--list", "--json"]) == 0
    assert {"network": "vgg16", "batch": 64, "example": [3, 224, 224], "parameters": 138357544,
            "source": "torchvision"} in json.loads(capsys.readouterr().out)


@needs_plugin
def test_rows_of_a_network_are_bound_for_real():
    options = tuple(sorted(SMALL.items()))
    cases = [Case("resnet18", method, batch=4, options=options)
             for method in ("mxnet", "mirror", "sublinear")]
    plain, mirrored, planned = run_cases(cases, Settings())
    assert plain.pool_bytes == plain.unplanned_pool_bytes > 0
    assert plain.overhead == 0 and plain.total_cut == 0
    assert mirrored.overhead > 0
    assert planned.pool_bytes < plain.pool_bytes and not planned.error
    assert 0 < planned.overhead < 0.6


@needs_plugin
def test_an_error_is_a_row_and_not_the_end():
    cases = [Case("vgg11", "mxnet", batch=2, options=(("picture", 3),)),
             Case("attention_small", "mxnet")]
    broken, good = run_cases(cases, Settings())
    assert "no option 'picture'" in broken.error and not good.error


@pytest.mark.slow
@needs_plugin
def test_measured_and_predicted_stand_side_by_side(tmp_path, capsys):
    code = main(["attention_small", "--batch", "64", "--methods", "chen", "--measure",
                         "--measure-memory", "200MB", "--steps", "2", "-o", str(tmp_path)])
    assert code == 0
    printed = capsys.readouterr().out
    assert "Measured" in printed and "1 rows" in printed
    found = json.loads((tmp_path / "results.json").read_text())
    measured = found["rows"][0]["measured"]
    assert measured["bytes"] > 0 and measured["unplanned_bytes"] > 0
    assert main(["--from", str(tmp_path / "results.json")]) == 0
    assert "attention_small" in capsys.readouterr().out


@needs_plugin
def test_an_interrupted_run_keeps_its_rows(monkeypatch, capsys):
    from benchmarks.mxnet import runner
    whole = runner.NetworkRuns.run

    def run_one(self, case):
        if case.method == "mirror":
            raise KeyboardInterrupt
        return whole(self, case)

    monkeypatch.setattr(runner.NetworkRuns, "run", run_one)
    assert main(["attention_small", "--methods", "mxnet,mirror"]) == 0
    printed = capsys.readouterr()
    assert "1 rows" in printed.out and "interrupted: 1 of 2 rows" in printed.err


@pytest.mark.slow
@needs_plugin
def test_two_processes_give_the_rows_of_one():
    cases = comparison(["attention_small", "darts_cifar10"], ["mxnet"], batch=2)
    assert run_cases(cases, Settings(), jobs=2) == run_cases(cases, Settings())
