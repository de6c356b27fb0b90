"""What is said where a library is not there."""
from __future__ import annotations

import pytest

from memonger.errors import PluginMissing
from memonger.util.native_libraries import library_path


@pytest.mark.parametrize("name, build", [
    ("libmemonger_core.so", "--core (it needs g++)"),
    ("libmemonger_mxnet.so", "(it needs g++ and an installed MXNet 1.9.1)")])
def test_a_source_tree_names_what_builds_the_missing_library(tmp_path, name, build):
    with pytest.raises(PluginMissing, match="build here") as missing:
        library_path(name, tmp_path)
    assert str(missing.value).endswith("build here: python plugins/build.py " + build)
