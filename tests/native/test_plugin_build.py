"""A package that came without the plugin builds it when it is first needed."""
from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest

from memonger.util import plugin_build
from memonger.util.errors import PluginMissing

#: Stands for plugins/build.py, which tests/native/test_build.py tests.
BUILDER = """
class BuildError(Exception):
    pass

def build(out, cache, names):
    cache.mkdir(exist_ok=True)
    %s
    for name in names:
        (out / name).write_text("made")
"""


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A package with sources that do as told."""
    monkeypatch.setenv("MEMONGER_NATIVE_DIR", str(tmp_path / "native"))
    monkeypatch.setenv("MEMONGER_CACHE_DIR", str(tmp_path / "cache"))

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


def test_objects_of_a_build_that_ended_behind_the_link_are_cleaned(package):
    package()
    folder = plugin_build.build_plugin("lib.so").parent
    (folder / "objects").mkdir()
    assert plugin_build.build_plugin("lib.so").parent == folder
    assert not (folder / "objects").exists()


@pytest.mark.parametrize("which", ["lib.so", ".", ".."])
def test_what_others_can_write_is_not_loaded(package, which):
    package()
    path = plugin_build.build_plugin("lib.so")
    at_fault = path if which == "lib.so" else path.parent if which == "." else path.parents[1]
    mode = at_fault.stat().st_mode
    at_fault.chmod(mode | 0o002)
    with pytest.raises(PluginMissing, match="others can write to .*MEMONGER_CACHE_DIR"):
        plugin_build.build_plugin("lib.so")
    at_fault.chmod(mode)
    assert plugin_build.build_plugin("lib.so") == path


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_what_belongs_to_another_user_is_not_loaded(package):
    package()
    path = plugin_build.build_plugin("lib.so")
    os.chown(str(path), 12345, 12345)
    with pytest.raises(PluginMissing, match="lib.so belongs to user 12345"):
        plugin_build.build_plugin("lib.so")


def builds(count):
    """Processes that each ask for the plugin and print where it is."""
    code = "from memonger.util.plugin_build import build_plugin; print(build_plugin('lib.so'))"
    return [subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE,
                             stderr=subprocess.DEVNULL, universal_newlines=True)
            for _ in range(count)]


def test_builds_at_once_wait_for_one_another(package, tmp_path):
    package("import time; time.sleep(1.0); open(%r, 'a').write('built once\\n')"
            % str(tmp_path / "log"))
    answers = {process.communicate(timeout=120)[0] for process in builds(3)}
    assert len(answers) == 1 and "lib.so" in answers.pop()
    assert (tmp_path / "log").read_text() == "built once\n"


def test_a_build_that_was_killed_leaves_nothing_for_good(package, tmp_path):
    slow = tmp_path / "slow"
    slow.touch()
    package("(cache / 'half').write_text('made'); import os, time\n"
            "    while os.path.exists(%r): time.sleep(0.02)" % str(slow))
    [process] = builds(1)
    deadline_s = time.monotonic() + 60
    while not list(tmp_path.glob("cache/plugin/*/objects/half")):
        assert time.monotonic() < deadline_s
        time.sleep(0.02)
    process.kill()
    process.communicate()
    slow.unlink()
    path = plugin_build.build_plugin("lib.so")
    assert path.read_text() == "made" and not (path.parent / "objects").exists()
    assert len(list(path.parents[1].iterdir())) == 1
