"""Tests of ``memonger.torch``; ``make test-torch`` runs them where PyTorch is installed."""
from __future__ import annotations

import importlib.util

import pytest

_SPEC = importlib.util.find_spec("torch")
#: Without PyTorch the name finds this folder.
HAS_TORCH = _SPEC is not None and _SPEC.origin is not None
collect_ignore_glob = [] if HAS_TORCH else ["test_*.py"]


def pytest_collection_modifyitems(items):
    """PyTorch warns of its own old ways, which is not ours to mend."""
    for item in items:
        if "tests/torch/" in item.nodeid:
            item.add_marker(pytest.mark.filterwarnings("default"))


@pytest.fixture(autouse=True)
def no_profiles(tmp_path, monkeypatch):
    """What a test measures is not there for the next."""
    monkeypatch.setenv("MEMONGER_CACHE_DIR", str(tmp_path / "cache"))


@pytest.fixture(autouse=HAS_TORCH)
def one_thread():
    """Kernels in this process on one core, and no code of the test before."""
    import torch
    import torch._inductor.config as inductor
    torch.set_num_threads(1)
    inductor.compile_threads = 1
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()
