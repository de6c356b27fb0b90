"""Which versions of PyTorch plans are made with, and what happens with others."""
from __future__ import annotations

import re
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
import torch
from torch.utils.flop_counter import flop_registry

import memonger.torch as mt
from memonger.errors import InputError
from memonger.torch.calls import versions
from memonger.torch.pytorch import private_joint
from memonger.util.version import TORCH_VERSIONS

ROOT = Path(__file__).resolve().parents[2]
NEXT = "%d.%d.0" % (TORCH_VERSIONS[-1][0], TORCH_VERSIONS[-1][1] + 1)


@pytest.fixture
def newer(monkeypatch):
    """This PyTorch, taken for a newer one than all that were tested."""
    monkeypatch.setattr(torch, "__version__", NEXT)
    versions._probed.cache_clear()
    yield
    versions._probed.cache_clear()


def example():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.GELU(), torch.nn.Linear(16, 16),
                               torch.nn.GELU()), torch.randn(32, 16)


def test_private_parts_of_pytorch_are_used_in_files_of_that_name():
    private_part = re.compile(r"torch(\.\w+)*\._[a-z]|_schema|_cdata|_boxed_call|_pytree")
    for path in sorted((ROOT / "memonger" / "torch").rglob("*.py")):
        text = path.read_text().replace("torch.ops.aten._", "")
        assert bool(private_part.search(text)) == path.name.startswith("private"), path.name


def test_the_extra_and_the_pages_name_the_versions():
    first, last = ("%d.%d" % version for version in (TORCH_VERSIONS[0], TORCH_VERSIONS[-1]))
    assert '\ntorch = ["torch>=%s"]\n' % first in (ROOT / "pyproject.toml").read_text()
    for page in ("README.md", "docs/torch.md", "CHANGELOG.md"):
        text = " ".join((ROOT / page).read_text(encoding="utf-8").split())
        assert re.search(r"PyTorch %s to %s\b" % (first, last), text), page


def test_the_badge_names_the_versions():
    first, last = ("%d.%d" % version for version in (TORCH_VERSIONS[0], TORCH_VERSIONS[-1]))
    assert "badge/PyTorch-%s_to_%s-" % (first, last) in (ROOT / "README.md").read_text("utf-8")


def test_importing_leaves_the_tables_of_pytorch_alone():
    assert not [formula for formula in flop_registry.values()
                if "memonger" in str(getattr(formula, "__module__", ""))]
    assert not [op for op in flop_registry if str(op).startswith("memonger.")]


def test_an_older_pytorch_gets_one_clear_line(monkeypatch):
    monkeypatch.setattr(torch, "__version__", "2.3.1+cpu")
    module, x = example()
    for call in (lambda: mt.plan(module, (x,), "70%"), lambda: mt.compile(module, "70%"),
                 lambda: mt.options("8GB")):
        with pytest.raises(InputError, match="PyTorch 2.11 and later, and this is 2.3.1"):
            call()


@pytest.mark.parametrize("mode", ["eager", "inductor"])
def test_a_newer_pytorch_is_tried_out_once_and_then_planned_for(newer, mode, monkeypatch):
    module, x = example()
    state = torch.get_rng_state()
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        plan = mt.plan(module, (x,), budget="90%", mode=mode)
        assert plan.schedule.recomputed()
        assert torch.equal(state, torch.get_rng_state())
        versions._probed.cache_clear()  # another process, which does not try again
        monkeypatch.setattr(versions, "_probe_eager", None)
        assert mt.plan(module, (x,), budget="90%", mode=mode).total_bytes == plan.total_bytes


@pytest.mark.parametrize("part, wrong", [
    ("place", lambda node, in_backward: None),  # a tag with another name
    ("is_tangent", lambda node: False),
    ("extract", None)])
def test_where_the_probe_fails_a_module_trains_without_a_plan(newer, monkeypatch, part, wrong):
    monkeypatch.setattr(private_joint, part, wrong)
    module, x = example()
    with pytest.warns(RuntimeWarning, match="without a plan.*%s is newer.*probe fails" % NEXT):
        compiled = mt.compile(module, budget="1KB", mode="eager")
    compiled(x).sum().backward()
    found = [parameter.grad.clone() for parameter in module.parameters()]
    module.zero_grad()
    module(x).sum().backward()
    assert all(map(torch.allclose, found, (p.grad for p in module.parameters())))
    assert mt.plans(compiled) == []
    with pytest.raises(InputError, match="no plan can be made: PyTorch %s is newer" % NEXT):
        mt.plan(module, (x,), budget="90%", mode="eager")


def test_a_part_that_is_gone_stops_no_import():
    script = """if True:
        import warnings
        import torch
        import torch._dynamo.backends.common
        from torch._functorch import compile_utils, partitioners
        del compile_utils.fx_graph_cse
        torch.__version__ = "%s"
        import memonger.torch as mt
        module, x = torch.nn.Linear(4, 4), torch.ones(2, 4)
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            compiled = mt.compile(module, budget="80%%", mode="eager")
        assert any("without a plan" in str(one.message) for one in seen), seen
    """ % NEXT
    subprocess.run([sys.executable, "-c", script], check=True, cwd=str(ROOT))
