"""A package that came without the plugin builds it when it is first needed."""
from __future__ import annotations

import pytest

from memonger.mx import plugin_build
from memonger.util.errors import PluginMissing

#: Stands for plugins/build.py, which tests/native/test_build.py tests.
BUILDER = """
class BuildError(Exception):
    pass

def build(out, cache, names):
    cache.mkdir()
    %s
    for name in names:
        (out / name).write_text("made")
"""


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A package with sources that do as told."""
    monkeypatch.setenv("MEMONGER_NATIVE_DIR", str(tmp_path / "native"))
    monkeypatch.setenv("MEMONGER_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(plugin_build, "_failure", None)

    def make(work="pass"):
        sources = tmp_path / "native" / "plugins"
        sources.mkdir(parents=True, exist_ok=True)
        (sources / "build.py").write_text(BUILDER % work)
        return sources
    return make


def test_it_is_built_once_for_the_same_sources(package, capfd):
    sources = package()
    path = plugin_build.build_plugin("lib.so")
    assert path.read_text() == "made" and not (path.parent / "objects").exists()
    assert capfd.readouterr().err.count("\n") == 1
    assert plugin_build.build_plugin("lib.so") == path
    assert capfd.readouterr().err == ""
    (sources / "more.cc").write_text("int more;")
    assert plugin_build.build_plugin("lib.so").parent != path.parent


@pytest.mark.parametrize("work, words", [
    ("raise BuildError('no C++ compiler; on Debian: apt install g++')", "apt install g++"),
    ("raise OSError(28, 'No space left on device')", "No space left")])
def test_a_failure_is_told_and_not_tried_again(package, tmp_path, capfd, work, words):
    package(work)
    for _ in range(2):
        with pytest.raises(PluginMissing, match="cannot be built in .*: .*" + words.replace(
                "+", "[+]")):
            plugin_build.build_plugin("lib.so")
    assert capfd.readouterr().err.count("building") == 1


def test_a_source_tree_has_its_own_command(package):
    assert plugin_build.build_plugin("lib.so") is None
