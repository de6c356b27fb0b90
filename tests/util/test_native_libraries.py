"""What is said where a library is not there."""
from __future__ import annotations

from pathlib import Path

import pytest

from memonger.errors import PluginMissing
from memonger.util import native_libraries

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("name, build", [
    ("libmemonger_core.so", "--core (it needs g++)"),
    ("libmemonger_mxnet.so", "(it needs g++ and an installed MXNet 1.9.1)")])
def test_a_source_tree_names_what_builds_the_missing_library(tmp_path, monkeypatch, name, build):
    monkeypatch.setattr(native_libraries, "__file__",
                        str(ROOT / "memonger" / "util" / "native_libraries.py"))
    with pytest.raises(PluginMissing, match="build here") as missing:
        native_libraries.library_path(name, tmp_path)
    assert str(missing.value).endswith("build here: python plugins/build.py " + build)
    monkeypatch.setattr(native_libraries, "__file__", str(tmp_path / "a" / "b" / "module.py"))
    with pytest.raises(PluginMissing, match="reinstall memonger"):
        native_libraries.library_path(name, tmp_path)
