"""model.py:build and plans of PyTorch modules on the command line, where PyTorch is missing."""
from __future__ import annotations

import importlib
from importlib.metadata import PackageNotFoundError, version

import pytest
from footprints import pair, plan_with

from memonger.cli import main
from memonger.graph.schedule import expand
from memonger.graph.types import Graph, Op, Tensor


def installed(name):
    """Not by its spec: tests/torch is a folder of that name."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None


without_torch = pytest.mark.skipif(bool(installed("torch")), reason="PyTorch is installed")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The working folder, with a module that PyTorch would make."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.py").write_text("import torch\n\ndef build():\n    return torch.nn.ReLU()\n")
    return tmp_path


def save_plan(path, **options):
    """A plan file as memonger.torch.plan saves it; ``options``: what the command line adds."""
    graph = Graph(tensors=(Tensor("data", 8, -1, "input", space="outside"),
                           Tensor("relu", 8, 0, "output")),
                  ops=(Op.of("relu", "relu", (0,), (1,), time_s=1e-3),), outputs=(1,))
    plan = plan_with(pair(8, 8, {"inputs": 8}), graph, expand(graph, {}), method="chen")
    plan.changed(options={"torch": "2.13.0", "mode": "eager", **options}).save(str(path))


@without_torch
def test_a_missing_pytorch_is_an_error_that_says_what_to_do(folder, capsys):
    save_plan(folder / "plan.json", model="net.py:build", inputs=("4,32",))
    for words in ("plan net.py:build --input 4,32 --budget 60%", "estimate net.py:build",
                  "plan net.py:build --sweep", "max-batch net.py:build --budget 1GB",
                  "profile net.py:build", "measure net.py:build"):
        assert main(words.split()) == 1
        assert capsys.readouterr().err == (
            "error: net.py:build is for PyTorch, which is not installed: pip install "
            "'memonger[torch]'. A network of MXNet is saved first: "
            "symbol.save(\"net-symbol.json\"); then memonger plan net-symbol.json --shape "
            "data=32,3,224,224\n")
    for words in ("verify plan.json", "measure plan.json"):
        assert main(words.split()) == 1
        assert capsys.readouterr().err == (
            "error: plan.json is for PyTorch, which is not installed: pip install "
            "'memonger[torch]'\n")


def test_a_missing_file_is_told_before_pytorch_is_needed(folder, capsys):
    assert main(["plan", "nofile.py:build"]) == 1
    assert capsys.readouterr().err == "error: there is no file nofile.py\n"


@without_torch
def test_importing_the_frontend_without_pytorch_says_what_to_install():
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'memonger\[torch\]'") as error:
        importlib.import_module("memonger.torch")
    assert error.value.name == "torch"


def test_the_help_says_whose_model_py_is(capsys):
    for command in ("plan", "estimate", "max-batch", "profile", "measure"):
        assert main([command, "--help"]) == 0
        assert "PyTorch's model.py:build" in " ".join(capsys.readouterr().out.split())


def test_a_plan_made_in_python_is_run_in_python(folder, capsys):
    save_plan(folder / "plan.json")
    for command in ("verify", "measure"):
        assert main([command, "plan.json"]) == 1
        error = capsys.readouterr().err
        assert "plan.json was made in Python by memonger.torch and names no model.py:build" in error
        assert "memonger.torch.%s(compiled, " % command in error


def test_a_plans_module_is_looked_for_here_and_beside_the_plan(folder, capsys):
    (folder / "plans").mkdir()
    save_plan(folder / "plans" / "plan.json", model="other.py:build", inputs=("4,32",))
    assert main(["verify", "plans/plan.json"]) == 1
    error = capsys.readouterr().err
    assert "plans/plan.json plans a module of other.py, and there is no such file" in error
    assert str(folder / "other.py") in error and str(folder / "plans" / "other.py") in error
    save_plan(folder / "plans" / "plan.json", model="/none/other.py:build", inputs=("4,32",))
    assert main(["verify", "plans/plan.json"]) == 1
    assert capsys.readouterr().err == "error: there is no file /none/other.py\n"


@pytest.mark.parametrize("text, example", [
    ("net.py", "net.py:build"), ("none/other.py", "none/other.py:build"),
    ("net.py:", "net.py:build"), ("net.py:build()", "net.py:build"),
    ("net:build", "model.py:build"), ("package.net:build", "model.py:build")])
def test_what_is_nearly_a_module_is_told_the_form(folder, capsys, text, example):
    for command in (["plan"], ["estimate"], ["max-batch", "--budget", "1GB"], ["profile"],
                    ["measure"], ["verify"]):
        assert main([*command, text]) == 2
        error = capsys.readouterr().err
        assert "%s names no function of a file" % text in error and example in error


def test_a_file_with_a_colon_in_its_name_is_a_file(folder, capsys):
    (folder / "net:1").write_text("no graph")
    assert main(["plan", "net:1"]) == 1
    assert "net:1 is no symbol JSON of MXNet" in capsys.readouterr().err
