"""Each command asks the API for the right thing, answers in the right place, ends in its code.

The API is replaced by recorders here; the real thing runs in test_end_to_end.py.
"""
from __future__ import annotations

import json

import pytest
from footprints import pair, plan_with

import memonger
from memonger.cli import main
from memonger.graph.schedule import expand
from memonger.graph.types import Graph, Op, Tensor
from memonger.mx.calls import plan as api
from memonger.plans import plan_file
from memonger.plans.plan import Plan, Status
from memonger.util import errors

mx = pytest.importorskip("mxnet")


@pytest.fixture
def symbol_file(tmp_path):
    net = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=4, name="fc")
    path = tmp_path / "net-symbol.json"
    net.save(str(path))
    return str(path)


def small_plan() -> Plan:
    """relu runs again for its gradient."""
    graph = Graph(
        tensors=(Tensor("data", 8, -1, "input", space="outside"), Tensor("relu", 2**20, 0),
                 Tensor("loss", 4, 1, "output"), Tensor("grad", 2**20, 2)),
        ops=(Op.of("relu", "relu", (0,), (1,), time_s=1e-3),
             Op.of("loss", "sum", (1,), (2,), time_s=1e-3),
             Op.of("relu_backward", "relu", (1, 2), (3,), is_backward=True, forward_op=0,
                   time_s=2e-3)), outputs=(2,), name="small")
    return plan_with(pair(2**20, 2**21, {"parameters": 100}), graph, expand(graph, {0: {}}),
                     status=Status.OPTIMAL, method="auto", bound=0.25)


class Recorder:
    """Stands for a call of the API: keeps the arguments, gives a result or raises it."""

    def __init__(self, result):
        self.result, self.calls = result, []

    def __call__(self, *args, **kwargs):
        self.calls.append((args, kwargs))
        if isinstance(self.result, BaseException):
            raise self.result
        return self.result


@pytest.fixture
def fake(monkeypatch):
    def replace(name, result):
        recorder = Recorder(result)
        monkeypatch.setattr(api, name, recorder)
        return recorder
    return replace


def test_plan_passes_on_everything_that_was_said(symbol_file, fake, capsys):
    call = fake("plan", small_plan())
    code = main(["plan", symbol_file, "--shape", "data=2,3", "--type", "data=float16",
                 "--grad-req", "fc_bias=null", "--budget", "60%", "--method", "milp",
                 "--variants", "none", "--keep", "fc*", "--recompute", "a", "--recompute", "b",
                 "--costs", "v100", "--time-limit", "3", "--optimizer", "sgd,momentum=0.9",
                 "--max-clones", "1", "--json"])
    out, err = capsys.readouterr()
    assert (code, err) == (0, "")
    (symbol,), options = call.calls[0]
    assert symbol.list_arguments() == ["data", "fc_weight", "fc_bias"]
    assert callable(options.pop("progress"))
    assert options == {
        "shapes": {"data": (2, 3)}, "type_dict": {"data": "float16"},
        "grad_req": {"data": "write", "fc_weight": "write", "fc_bias": "null"},
        "budget": "60%", "method": "milp", "variants": "none", "keep": ["fc*"],
        "recompute": ["a", "b"], "costs": "v100", "time_limit": 3.0, "optimizer": "sgd",
        "optimizer_params": {"momentum": 0.9}, "ctx": mx.cpu(0),
        "max_clones": 1, "device": None, "overhead": None}
    record = json.loads(out)
    assert record["status"] == "optimal" and record["pool_bytes"] == 2**20
    assert record["overhead"] == pytest.approx(0.25)
    assert record["recomputed_s"] == pytest.approx(1e-3)
    assert record["decisions"] == {"keep": 1, "recompute": 1}


def test_a_sweep_is_asked_for_with_the_same_words(symbol_file, fake, capsys):
    call = fake("sweep", [small_plan()])
    assert main(["plan", symbol_file, "--sweep", "--optimizer", "sgd,momentum=0.9", "--variants",
                 "none", "--json"]) == 0
    options = call.calls[0][1]
    assert (options["optimizer"], options["optimizer_params"]) == ("sgd", {"momentum": 0.9})
    assert options["variants"] == "none"


def test_a_sweep_tells_of_budgets_without_a_plan(symbol_file, fake, capsys):
    fake("sweep", [small_plan()] * 3)
    assert main(["plan", symbol_file, "--sweep"]) == 0
    assert "no plan was found for the 7 tightest of the 10 budgets" in capsys.readouterr().out
    fake("sweep", [small_plan()] * 10)
    assert main(["plan", symbol_file, "--sweep"]) == 0
    assert "no plan was found" not in capsys.readouterr().out


@pytest.mark.parametrize("overhead", ["10%", "500%", "0.1"])
def test_an_overhead_instead_of_a_budget(symbol_file, fake, capsys, overhead):
    call = fake("plan", small_plan())
    assert main(["plan", symbol_file, "--overhead", overhead, "--json"]) == 0
    assert call.calls[0][1]["overhead"] == overhead  # as calls of the API take it
    assert call.calls[0][1]["budget"] is None


@pytest.mark.parametrize("arguments, words", [
    (["plan", "F", "--budget", "1GB", "--overhead", "1%"], "exclude each other"),
    (["plan", "F", "--budget", "4XB"], "cannot read the size '4XB'"),
    (["plan", "F", "--sweep", "-o", "x.json"], "takes no --budget"),
    (["plan", "F", "--variants", "some"], "no 'some'; there are none, exact, all"),
    (["plan"], "NETWORK"),
    (["paln"], "no 'paln'; did you mean plan?"),
    (["plan", "F", "--budgt", "60%"], "--budgt; did you mean --budget?"),
    (["plan", "F", "--shape", "a=2,3", "b=2,3"], "b=2,3; did you mean --shape b=2,3?"),
    (["plan", "F", "--ctx", "gpu:x"], "write it as cpu, gpu or gpu:1"),
    (["plan", "F", "-o", "/nonexistent/plan.json"], "there is no folder /nonexistent"),
    (["plan", "F", "--sweep", "--plot", "frontier.jpg"], "ending must be one of .svg"),
    (["report", "F", "-o", "/nonexistent/plan.html"], "there is no folder /nonexistent"),
    (["profile", "F", "-o", "/"], "it is a folder"),
    (["max-batch", "F", "--shape", "data=1,3"], "--budget"),
    (["report", "F"], "nothing to draw"),
    (["report", "F", "-o", "plan.png"], "ending must be one of .html"),
    (["apply", "F", "G", "--strip", "-o", "H"], "takes one symbol file"),
    (["measure", "F", "-o", "x.json"], "needs a plan file"),
    (["verify", "F", "--steps", "0"], "whole number above 0"),
    (["plan", "F", "--shape", "data=2,3", "--ctx", "gpu", "--device", "v100"],
     "--ctx and --device exclude each other"),
])
def test_wrong_usage_is_code_2_with_a_next_step(symbol_file, capsys, arguments, words):
    code = main([symbol_file if word == "F" else word for word in arguments])
    out, err = capsys.readouterr()
    assert (code, out) == (2, "")
    assert err.startswith("error: ") and words in err and "--help" in err


def test_no_command_is_wrong_usage_and_shows_the_commands(capsys):
    assert main([]) == 2
    assert "max-batch" in capsys.readouterr().err


def test_an_impossible_budget_is_code_3_with_what_pins_it(symbol_file, fake, capsys, golden):
    pinned = [("fc1_weight grad", 392 * 2**20), ("pool1", 196 * 2**20)]
    fake("plan", errors.InfeasibleBudget(
        "budget 1.5GB is below the smallest this network can reach, 1.92 GiB",
        1_500_000_000, 2_060_000_000, pinned))
    assert main(["plan", symbol_file, "--budget", "1.5GB"]) == 3
    out, err = capsys.readouterr()
    assert out == ""
    golden("budget_impossible.txt", err)
    assert main(["plan", symbol_file, "--budget", "1.5GB", "--json"]) == 3
    record = json.loads(capsys.readouterr().out)
    assert record["minimum_total_bytes"] == 2_060_000_000
    assert record["pinned"][1] == {"name": "pool1", "bytes": 196 * 2**20}


@pytest.mark.parametrize("error, code", [
    (errors.ShapeError("the shape of data is missing", ["data"]), 1),
    (errors.SolverUnavailable("pip install highspy"), 1),
    (errors.VerificationError("fc_weight differs", "fc_weight", 1.0, 1.0), 4),
    (KeyboardInterrupt(), 130),
])
def test_errors_have_their_codes_and_go_to_standard_error(symbol_file, fake, capsys, error, code):
    fake("plan", error)
    assert main(["plan", symbol_file]) == code
    out, err = capsys.readouterr()
    assert out == "" and (str(error) in err)


def test_what_mxnet_says_is_an_error_without_its_frames(symbol_file, fake, capsys):
    fake("plan", mx.MXNetError("Traceback (most recent call last):\n  File \"../src/a.h\", line 4\n"
                               "MXNetError: float16 fully connected layer is not supported"))
    assert main(["plan", symbol_file]) == 1
    assert capsys.readouterr().err == \
        "error: MXNet failed: float16 fully connected layer is not supported\n"


def test_a_defect_keeps_its_traceback(symbol_file, fake):
    fake("plan", ZeroDivisionError("a defect"))
    with pytest.raises(ZeroDivisionError):
        main(["plan", symbol_file])


@pytest.mark.parametrize("words, code, message", [
    ("plan F", 1, "cannot be inferred: data; give them as options: --shape data=32,3,224,224"),
    ("measure F", 1, "options: --shape data=32,3,224,224"),
    ("plan F --shape data=2,3 --budget 60", 1, "write 60% for a share"),
    ("estimate F --shape data=2,3 --budget auto", 1, "name the device with --ctx gpu, or"),
    ("plan F --shape data=2,3 --keep fcc", 1, "--keep 'fcc' names no op"),
    ("verify F --shape data=2,3", 1, "carries no plan"),
    ("apply --strip F -o out.json", 1, "carries no plan; there is nothing to remove"),
    ("apply --strip net.plan -o out.json", 1, "--strip takes the planned *-symbol.json"),
    ("apply F -o out.json", 1, "no memonger plan; it is an MXNet symbol; memonger plan -o writes"),
    ("plan F --shape data=2,3 --optimizer adma", 1, "unknown optimizer 'adma'"),
    ("max-batch F --shape data=2,300 --budget 1KB --json", 3, "no batch fits: with a batch of 1"),
    ("plan net.plan --shape data=2,3", 1, "is a plan already"),
    ("estimate net.plan", 1, "is a plan already"),
    ("plan passwd --shape data=2,3", 1, "passwd is no symbol JSON of MXNet, which sym.save"),
    ("bench alexnet", 1, "run python -m benchmarks in a checkout of memonger"),
    ("plan cut.txt", 1, "cut.txt: line 2: expected size, cost and whether node 0"),
])
def test_mistakes_are_told_in_the_words_of_the_command_line(symbol_file, tmp_path, monkeypatch,
                                                            capsys, words, code, message):
    monkeypatch.chdir(tmp_path)
    small_plan().save("net.plan")
    (tmp_path / "passwd").write_text("root:x:0:0", encoding="utf-8")
    (tmp_path / "cut.txt").write_text("3 2\n1 2\n", encoding="utf-8")
    assert main([symbol_file if word == "F" else word for word in words.split()]) == code
    err = capsys.readouterr().err
    assert message in err and err.count("\n") == 1


@pytest.mark.skipif(mx.runtime.Features().is_enabled("CUDA"), reason="this MXNet has CUDA")
def test_a_missing_gpu_names_the_option_that_needs_none(symbol_file, capsys):
    for command in ("plan", "measure", "profile"):
        assert main([command, symbol_file, "--shape", "data=2,3", "--ctx", "gpu"]) == 1
        err = capsys.readouterr().err
        assert "plan for a GPU by its name, as in --device v100, or for the CPU" in err, command


@pytest.mark.parametrize("content, words", [
    (None, "No such file"),
    (b"\xff\xfe\x00", "no text file"),
    (b'{"nodes": [{"op": "NoSuchOp", "name": "a", "inputs": []}], "arg_nodes": [], '
     b'"heads": [[0, 0, 0]]}', "MXNet cannot load"),
])
def test_files_that_cannot_be_used(tmp_path, capsys, content, words):
    path = tmp_path / "x.json"
    if content is not None:
        path.write_bytes(content)
    assert main(["plan", str(path), "--shape", "data=1"]) == 1
    out, err = capsys.readouterr()
    assert out == "" and err.startswith("error: ") and words in err and err.count("\n") == 1


def test_a_file_that_is_no_symbol_is_refused_where_only_symbols_will_do(tmp_path, capsys):
    path = tmp_path / "graph.json"
    path.write_text('{"nodes": [], "links": []}', encoding="utf-8")
    assert main(["max-batch", str(path), "--budget", "1GB"]) == 1
    assert "is a graph, with the sizes and times of one batch on one device; this needs the " \
        "network" in capsys.readouterr().err
    path.write_text('{"neither": 1}', encoding="utf-8")
    assert main(["max-batch", str(path), "--budget", "1GB"]) == 1
    assert "is no MXNet symbol; save one with sym.save" in capsys.readouterr().err


def test_explain_suggests_the_name_that_was_meant(monkeypatch, capsys):
    monkeypatch.setattr(plan_file, "load_plan", lambda path: small_plan())
    assert main(["explain", "plan.json", "rellu"]) == 1
    assert "did you mean relu?" in capsys.readouterr().err


def test_names_that_the_terminal_cannot_show_are_escaped(tmp_path, forked):
    mx.sym.tanh(mx.sym.Variable("data"), name="層").save(str(tmp_path / "net-symbol.json"))
    found = forked.run("import sys; sys.stdout.reconfigure(encoding='ascii')\n"
                       "from memonger.cli import main\n"
                       "sys.exit(main('plan net-symbol.json --shape data=2,3 -o x.json'.split()))",
                       str(tmp_path))
    assert (found.returncode, found.stderr) == (0, "")
    assert "\\xb7" in found.stdout


def test_every_command_has_help(capsys):
    from memonger.cli import commands
    for kind in commands():
        assert main([kind.name, "--help"]) == 0
        text = capsys.readouterr().out
        assert kind.description().splitlines()[0] in text and "--json" in text
    assert main(["plan", "--help"]) == 0
    words = set(capsys.readouterr().out.replace(",", " ").split())
    assert {"milp", "chen", "v100", "reference", "adam"} <= words


def test_version(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == "memonger %s\n" % memonger.__version__
