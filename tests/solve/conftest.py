"""Solver tests run on the built library; without one, the core is compiled for the session."""
from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from memonger import native

PLUGINS = Path(__file__).resolve().parents[2] / "plugins"


@pytest.fixture(scope="session", autouse=True)
def core_library(tmp_path_factory):
    """``libmemonger_core.so`` where :func:`memonger.native.core` finds it."""
    if (native.folder() / "libmemonger_core.so").exists() or shutil.which("g++") is None:
        yield
        return
    folder = tmp_path_factory.mktemp("native")
    subprocess.run(["g++", "-O2", "-std=c++14", "-fPIC", "-shared", "-iquote", str(PLUGINS),
                    *sorted(map(str, (PLUGINS / "core").rglob("*.cc"))),
                    "-o", str(folder / "libmemonger_core.so")], check=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MEMONGER_NATIVE_DIR", str(folder))
        yield
