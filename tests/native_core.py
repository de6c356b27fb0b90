"""Compiles plugins/core/storage for tests, so that they need no finished build."""
from __future__ import annotations

import ctypes
import shutil
import subprocess
from pathlib import Path

import pytest

CORE = Path(__file__).resolve().parents[1] / "plugins" / "core"


@pytest.fixture(scope="session")
def storage_core(tmp_path_factory):
    """The C calls of storage_c.cc, freshly compiled."""
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("no g++")
    library = tmp_path_factory.mktemp("core") / "libstorage.so"
    subprocess.run([compiler, "-O2", "-std=c++14", "-Wall", "-Wextra", "-Werror", "-fPIC",
                    "-shared", *(str(CORE / name) for name in
                                 ("arena.cc", "packer.cc", "skyline.cc", "storage.cc",
                                  "storage_c.cc")),
                    "-o", str(library)], check=True)
    return ctypes.CDLL(str(library))
