"""The commands on a real network: one file leads to the next, as a user would go."""
from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys

import pytest

import memonger
from memonger.cli import main
from memonger.cli.max_batch import next_command

mx = pytest.importorskip("mxnet")


def residual_network() -> "mx.sym.Symbol":
    data = mx.sym.Variable("data")
    body = mx.sym.Convolution(data, kernel=(3, 3), pad=(1, 1), num_filter=8, name="conv0")
    for i in range(1, 5):
        branch = mx.sym.BatchNorm(body, name="bn%d" % i, fix_gamma=False)
        branch = mx.sym.Activation(branch, act_type="relu", name="relu%d" % i)
        branch = mx.sym.Convolution(branch, kernel=(3, 3), pad=(1, 1), num_filter=8,
                                    name="conv%d" % i)
        body = body + branch
    body = mx.sym.FullyConnected(mx.sym.Flatten(body), num_hidden=10, name="fc")
    return mx.sym.SoftmaxOutput(body, name="softmax")


SHAPE = ["--shape", "data=8,3,16,16"]
#: A little search is enough for so small a network.
QUICK = [*SHAPE, "--time-limit", "0.3"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with a network, and a plan for it made by the command line."""
    path = tmp_path_factory.mktemp("cli")
    with mx.name.NameManager():
        residual_network().save(str(path / "net-symbol.json"))
    return path


@pytest.fixture(scope="module")
def plan_file(folder):
    path = folder / "plan.json"
    code = main(["plan", str(folder / "net-symbol.json"), *SHAPE, "--budget", "75%",
                 "--variants", "none", "--time-limit", "1", "-o", str(path)])
    assert code == 0
    return str(path)


def answer_of(capsys, *arguments: str, code: int = 0):
    """What the command prints with --json."""
    assert main([*arguments, "--json"]) == code
    return json.loads(capsys.readouterr().out)


def test_plan_says_what_it_saves(folder, capsys):
    record = answer_of(capsys, "plan", str(folder / "net-symbol.json"), *QUICK, "--budget", "75%")
    assert record["total_bytes"] <= record["budget_bytes"] < record["baseline_total_bytes"]
    assert record["bound"] <= record["overhead"] + 1e-12
    assert record["decisions"].get("recompute", 0) + len(record["decisions"]) > 1
    assert sum(record["decisions"].values()) == record["ops"]
    assert record["schema"] == 1 and record["version"] == memonger.__version__


def test_plan_prints_the_table_and_the_next_commands(folder, tmp_path, capsys):
    path = tmp_path / "plan.json"
    assert main(["plan", str(folder / "net-symbol.json"), *QUICK, "--budget", "75%",
                 "-o", str(path)]) == 0
    text = capsys.readouterr().out
    assert "budget" in text and "memonger verify %s" % path in text


def test_the_plan_file_is_the_same_for_the_same_input(folder, plan_file, tmp_path):
    again = tmp_path / "again.json"
    assert main(["plan", str(folder / "net-symbol.json"), *SHAPE, "--budget", "75%",
                 "--variants", "none", "--time-limit", "1", "-o", str(again)]) == 0
    with open(plan_file, encoding="utf-8") as file:
        assert file.read() == again.read_text(encoding="utf-8")


def test_a_budget_below_what_is_possible(folder, capsys):
    network = str(folder / "net-symbol.json")
    assert main(["plan", network, *QUICK, "--budget", "1%"]) == 3
    out, err = capsys.readouterr()
    assert out == "" and err.startswith("error: ") and "are alive" in err
    record = answer_of(capsys, "plan", network, *QUICK, "--budget", "1%", code=3)
    smallest = answer_of(capsys, "plan", network, *QUICK, "--budget",
                         str(record["minimum_total_bytes"]))
    assert smallest["total_bytes"] <= record["minimum_total_bytes"]


def test_estimate_and_its_budget(folder, capsys):
    network = str(folder / "net-symbol.json")
    record = answer_of(capsys, "estimate", network, *SHAPE, "--optimizer", "adam")
    assert record["total_bytes"] == sum(record["bytes"].values())
    assert record["bytes"]["optimizer"] == 2 * record["bytes"]["parameters"]
    total = record["total_bytes"]
    adam = ["--optimizer", "adam"]
    assert main(["estimate", network, *SHAPE, *adam, "--budget", str(total)]) == 0
    assert main(["estimate", network, *SHAPE, *adam, "--budget", str(total - 1)]) == 3


def test_the_graph_of_a_network_is_planned_to_the_totals_of_the_network(folder, tmp_path, capsys):
    network, graph = str(folder / "net-symbol.json"), str(tmp_path / "graph.json")
    told = answer_of(capsys, "estimate", network, *SHAPE, "--graph", graph)
    asked = ["--budget", "0.75", "--variants", "none"]
    from_file = answer_of(capsys, "plan", graph, *asked)
    record = answer_of(capsys, "plan", network, *QUICK, "--budget", "75%", *asked[2:])
    assert from_file["baseline_total_bytes"] == told["total_bytes"]
    assert from_file["costs"] == "as the graph's file says"
    for number in ("budget_bytes", "total_bytes", "pool_bytes", "baseline_pool_bytes"):
        assert from_file[number] == record[number], number
    assert {**from_file["fixed_bytes"], "head_gradients": 0} == record["fixed_bytes"]


def test_apply_writes_a_network_that_strip_takes_back(folder, plan_file, tmp_path, capsys):
    planned, stripped = str(tmp_path / "planned-symbol.json"), str(tmp_path / "net-symbol.json")
    assert main(["apply", plan_file, str(folder / "net-symbol.json"), "-o", planned]) == 0
    assert main(["apply", "--strip", planned, "-o", stripped]) == 0
    original = mx.sym.load(str(folder / "net-symbol.json"))
    assert mx.sym.load(stripped).tojson() == original.tojson()
    assert mx.sym.load(planned).tojson() != original.tojson()
    assert mx.sym.load(planned).list_arguments() == original.list_arguments()


def test_apply_tells_what_reads_the_file(plan_file, tmp_path, capsys):
    planned = str(tmp_path / "planned.json")
    assert main(["apply", plan_file, "-o", planned]) == 0
    assert "memonger.native.load()" in capsys.readouterr().out
    assert main(["apply", "--strip", planned, "-o", planned]) == 0
    assert "memonger.native.load()" not in capsys.readouterr().out


def test_only_calls_that_take_shares_say_so(capsys):
    for command, shares in (("plan", True), ("max-batch", False)):
        assert main([command, "--help"]) == 0
        assert ("60% of the" in " ".join(capsys.readouterr().out.split())) == shares


def test_apply_refuses_another_network(plan_file, tmp_path, capsys):
    other = tmp_path / "other-symbol.json"
    mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=4, name="fc").save(str(other))
    assert main(["apply", plan_file, str(other), "-o", str(tmp_path / "out.json")]) == 1
    assert "another network" in capsys.readouterr().err
    assert not (tmp_path / "out.json").exists()


def test_verify_a_plan_and_a_planned_symbol(folder, plan_file, tmp_path, capsys):
    record = answer_of(capsys, "verify", plan_file, "--control")
    assert record["ok"] and record["tensors"] > 0 and record["steps"] == 2
    assert len(set(record["control"]["threads"])) == 2
    assert main(["verify", plan_file, "--control"]) == 0
    assert re.search("\ncontrol: the unplanned network with . threads? in place of ",
                     capsys.readouterr().out)
    planned = str(tmp_path / "planned-symbol.json")
    assert main(["apply", plan_file, "-o", planned]) == 0
    capsys.readouterr()
    record = answer_of(capsys, "verify", planned, str(folder / "net-symbol.json"), *SHAPE)
    assert record["ok"]


def test_verify_finds_a_difference(plan_file, tmp_path, capsys):
    planned = tmp_path / "planned-symbol.json"
    assert main(["apply", plan_file, "-o", str(planned)]) == 0
    text = planned.read_text(encoding="utf-8")
    assert "relu" in text
    # Not the network it was: one activation is another function now.
    planned.write_text(text.replace('"act_type": "relu"', '"act_type": "tanh"', 1),
                       encoding="utf-8")
    original = memonger.load_plan(plan_file).record.original_json
    (tmp_path / "net-symbol.json").write_text(original, encoding="utf-8")
    arguments = ["verify", str(planned), str(tmp_path / "net-symbol.json"), *SHAPE]
    capsys.readouterr()
    assert main(arguments) == 4
    assert "differs by" in capsys.readouterr().err
    record = answer_of(capsys, *arguments, code=4)
    assert not record["ok"] and record["different"]


def test_measure_both_in_one_run_and_keep_it_in_the_plan(plan_file, tmp_path, capsys, monkeypatch):
    """Without the processes that measure; tests/api/test_calls.py runs those."""
    from memonger.mx.check import measure
    asked = []

    def answer(_, specification):
        asked.append((len(specification["symbols"]), specification["steps"]))
        return {"allocated_bytes": 100 * len(asked), "device": "cpu",
                "steps_s": [[0.3, 0.5], [0.2, 0.4]][:len(specification["symbols"])]}
    monkeypatch.setattr(measure, "ask_module", answer)
    out = tmp_path / "measured.json"
    record = answer_of(capsys, "measure", plan_file, "--steps", "2", "-o", str(out))
    assert asked == [(1, 1), (1, 1), (2, 2)]
    assert (record["allocated_bytes"], record["original"]["allocated_bytes"]) == (100, 200)
    assert record["step_s"] == 0.4 and record["overhead"] == pytest.approx(1 / 3)
    assert memonger.load_plan(str(out)).measured["allocated_bytes"] == record["allocated_bytes"]


def test_explain(plan_file, capsys):
    plan = memonger.load_plan(plan_file)
    name = next(n for n, decision in plan.decisions.items() if decision != "keep")
    (record,) = answer_of(capsys, "explain", plan_file, name)["results"]
    assert record["decision"] == plan.decisions[name] and name in record["text"]
    records = answer_of(capsys, "explain", plan_file, "relu*")["results"]
    assert [record["op"] for record in records] == [n for n in plan.decisions
                                                    if n.startswith("relu")]
    records = answer_of(capsys, "explain", plan_file)["results"]
    assert {record["op"]: record["decision"] for record in records} == plan.decisions
    assert sum(record["held_bytes"] for record in records) > 0


def test_max_batch(folder, plan_file, capsys):
    stock_total = memonger.load_plan(plan_file).baseline_total_bytes
    record = answer_of(capsys, "max-batch", str(folder / "net-symbol.json"), *SHAPE, "--budget",
                       str(stock_total), "--method", "sublinear", "--time-limit", "0.1")
    assert record["unplanned"] == 8 and record["planned"] > 8
    assert record["total_bytes"] <= stock_total


def test_the_largest_batch_comes_with_the_command_that_plans_it(
        folder, plan_file, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    budget = str(memonger.load_plan(plan_file).baseline_total_bytes)
    assert main(["max-batch", str(folder / "net-symbol.json"), *SHAPE, "--budget", budget,
                 "--time-limit", "1"]) == 0
    batches, command = capsys.readouterr().out.splitlines()
    [planned] = re.findall(r"(\d+) planned", batches)
    assert command.startswith("next: memonger plan ") and "=%s," % planned in command
    assert main(shlex.split(command)[2:]) == 0
    assert memonger.load_plan("plan-%s.json" % planned).total_bytes <= int(budget)


@pytest.mark.parametrize("words, command", [
    ("n.py:f --input 16,128:int64 --input 16,8 --input 8 --budget 1GB",
     "n.py:f --input 99,128:int64 --input 99,8 --input 8 --budget 1GB"),
    ("s.json --shape=data=4x16 --budget 16MB --time-limit 4",
     "s.json --shape=data=99x16 --budget 16MB --time-limit 4"),
    ("n.py:f --budget 16MB", None)])
def test_only_sizes_of_inputs_change_in_the_command(words, command):
    found = next_command(["max-batch", *words.split()], 99)
    assert found == ([] if command is None else [
        "next: memonger plan %s -o plan-99.json" % command])


def test_profile_serves_a_plan(folder, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    network = str(folder / "net-symbol.json")
    path = tmp_path / "profile.json"
    record = answer_of(capsys, "profile", network, *SHAPE, "--repeats", "1", "-o", str(path))
    assert record["times"] > 0 and path.is_file()
    record = answer_of(capsys, "plan", network, *QUICK, "--budget", "80%", "--costs", str(path))
    assert record["costs"].startswith("profile")


def test_sweep_is_a_frontier(folder, capsys):
    records = answer_of(capsys, "plan", str(folder / "net-symbol.json"), *SHAPE, "--sweep",
                        "--time-limit", "0.1")["results"]
    assert len(records) > 2
    totals = [r["total_bytes"] for r in records]
    overheads = [r["overhead"] for r in records]
    assert totals == sorted(totals, reverse=True) and overheads == sorted(overheads)


def test_a_graph_of_another_planner(tmp_path, capsys):
    # Four forward nodes of 4 units, then their gradients; each node costs 1.
    lines = ["8 11"] + ["4 1 1"] * 4 + ["1 1 0"] * 4
    lines += ["%d %d" % edge for edge in (
        (0, 1), (1, 2), (2, 3), (3, 4), (4, 5), (5, 6), (6, 7), (2, 5), (1, 6), (0, 7), (3, 5))]
    path = tmp_path / "graph.txt"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    record = answer_of(capsys, "plan", str(path), "--budget", "0.8")
    assert record["total_bytes"] == record["pool_bytes"] <= record["budget_bytes"]
    assert record["step_s"] == 8 and record["bound"] <= record["overhead"] <= 0.5
    for option in (["--shape", "data=1"], ["--optimizer", "adam"], ["--costs", "v100"],
                   ["--ctx", "gpu"], ["--device", "v100"], ["--input", "1,2"],
                   ["--mode", "eager"]):
        for command in ("plan", "estimate"):
            if option[0] != "--costs" or command == "plan":
                assert main([command, str(path), *option]) == 2
                assert "it takes no " + option[0] in capsys.readouterr().err
    for command in (["verify"], ["measure"], ["report", "-o", str(tmp_path / "x.html")]):
        assert main([command[0], str(path), *command[1:]]) == 1
        assert "it is a graph; memonger plan -o writes plan files" in capsys.readouterr().err


def test_a_graph_file_is_estimated_and_swept_in_its_own_units(tmp_path, capsys):
    path = tmp_path / "graph.txt"
    lines = ["8 11"] + ["4000 1 1"] * 4 + ["1000 1 0"] * 4
    lines += ["%d %d" % edge for edge in (
        (0, 1), (1, 2), (2, 3), (3, 4), (4, 5), (5, 6), (6, 7), (2, 5), (1, 6), (0, 7), (3, 5))]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    told = answer_of(capsys, "estimate", str(path))
    assert told["total_bytes"] == told["pool_bytes"] == told["peak_live_bytes"] == 18000
    assert main(["estimate", str(path), "--budget", "0.5"]) == 3
    out = capsys.readouterr().out
    assert out.split() == "peak 18,000 budget 9,000 exceeded by 9,000".split()
    frontier = answer_of(capsys, "plan", str(path), "--sweep", "--time-limit", "1")["results"]
    totals = [row["total_bytes"] for row in frontier]
    assert totals == sorted(totals, reverse=True) and totals[0] == 18000 > totals[-1]
    assert main(["plan", str(path), "--sweep", "--time-limit", "1"]) == 0
    out = capsys.readouterr().out
    assert out.split()[:4] == ["peak", "of", "unplanned", "extra"] and "18,000" in out
    assert main(["plan", str(path), "--budget", "0.1"]) == 3
    refused = capsys.readouterr().err
    assert "fits 1,800; " in refused and " B" not in refused and "batch" not in refused
    assert main(["max-batch", str(path), "--budget", "1GB"]) == 1
    assert "is a graph, with the sizes and times of one batch" in capsys.readouterr().err


@pytest.mark.parametrize("words,where,code,message", [
    ("explain {plan} relu1", ">&-", 0, ""),
    ("report {plan} -o x.html", "", 1, "cannot write x.html .*No such file or directory")])
def test_closed_output_and_a_deleted_working_directory(plan_file, tmp_path, words, where, code,
                                                       message):
    gone = tmp_path / "gone"
    gone.mkdir()
    script = "cd %s && rmdir %s && %s -m memonger %s %s" % (
        gone, gone, sys.executable, words.format(plan=plan_file), where)
    package = os.path.dirname(os.path.dirname(os.path.abspath(memonger.__file__)))
    done = subprocess.run(["sh", "-c", script], stderr=subprocess.PIPE, text=True, check=False,
                          env={**os.environ, "PYTHONPATH": package})
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr and re.search(message, done.stderr)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full here")
@pytest.mark.parametrize("words, unbuffered", [
    ("--help", ""), ("--help", "1"), ("--version", ""),
    ("explain {plan} relu1", ""),
    ("plan {net} --shape data=2,3,16,16 --budget 1KB --time-limit 0.1 --json", "")])
def test_an_answer_that_a_full_disk_does_not_take_is_an_error(plan_file, folder, words, unbuffered):
    command = words.format(plan=plan_file, net=folder / "net-symbol.json").split()
    package = os.path.dirname(os.path.dirname(os.path.abspath(memonger.__file__)))
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "memonger", *command], stdout=full, stderr=subprocess.PIPE,
            text=True, check=False, cwd=str(folder),
            env={**os.environ, "PYTHONPATH": package, "PYTHONUNBUFFERED": unbuffered})
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == \
        "error: cannot write to standard output: No space left on device"


@pytest.mark.parametrize("words, name", [
    ("plan {net} --shape data=2,3,16,16 --method sublinear -o x.json", "x.json"),
    ("estimate {net} --shape data=2,3,16,16 --graph x.json", "x.json"),
    ("apply {plan} -o x-symbol.json", "x-symbol.json"), ("report {plan} -o x.html", "x.html"),
    ("report {plan} --graph x.dot", "x.dot"), ("report {plan} --timeline x.png", "x.png"),
    ("profile {net} --shape data=2,3,16,16 --time-limit 1 --repeats 1 -o x.json", "x.json")])
def test_a_file_that_cannot_be_written_is_named(forked, plan_file, folder, tmp_path, words, name):
    """As on a full disk: no file may grow beyond 512 bytes."""
    command = words.format(plan=plan_file, net=folder / "net-symbol.json").split()
    done = forked.command(command, tmp_path, file_bytes=512)
    assert done.returncode == 1
    assert re.search(r"^error: .*cannot write \S*%s \(.*\): File too large" % name, done.stderr,
                     re.MULTILINE)
    assert "Traceback" not in done.stderr and os.listdir(tmp_path) == []
