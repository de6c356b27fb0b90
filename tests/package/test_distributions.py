"""The wheel and the source distribution carry what they must; a build that cannot work fails."""
from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LIBRARIES = {"memonger/_native/libmemonger_core.so", "memonger/_native/libmemonger_mxnet.so"}

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """A copy of the repository without anything built in it."""
    folder = tmp_path_factory.mktemp("source") / "memonger"
    shutil.copytree(str(ROOT), str(folder), ignore=shutil.ignore_patterns(
        ".git", ".venv*", "build", "dist", "out", "*.so", "*.egg-info", "__pycache__", ".*_cache",
        "_native"))
    return folder


def build_wheel(source: Path, out: Path, **environment: str) -> "subprocess.CompletedProcess[str]":
    """Build against the MXNet of this environment, which is what `make` does."""
    pytest.importorskip("wheel")
    return subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "-w", str(out),
         str(source)], env={**os.environ, **environment}, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, universal_newlines=True, cwd=str(out))


@pytest.fixture(scope="module")
def wheel(source, tmp_path_factory):
    out = tmp_path_factory.mktemp("wheel")
    done = build_wheel(source, out)
    assert done.returncode == 0, done.stdout[-3000:]
    found = list(out.glob("*.whl"))
    assert len(found) == 1
    return found[0]


def test_one_wheel_serves_every_python(wheel):
    assert "-py3-none-linux_" in wheel.name


def test_the_wheel_carries_libraries_and_kernels_and_no_tests(wheel):
    names = set(zipfile.ZipFile(str(wheel)).namelist())
    assert LIBRARIES <= names and {"memonger/py.typed"} <= names
    assert not [name for name in names if name.endswith(".pth")]
    sources = (ROOT / "plugins" / "ops" / "cuda").iterdir()
    assert {"memonger/_native/cuda/" + path.name for path in sources} <= names
    assert not [n for n in names if n.startswith(("tests/", "plugins/", "examples/"))]


def test_neither_mxnet_is_a_requirement(wheel):
    archive = zipfile.ZipFile(str(wheel))
    name = next(n for n in archive.namelist() if n.endswith("METADATA"))
    required = [line for line in archive.read(name).decode().splitlines()
                if line.startswith("Requires-Dist")]
    assert not [line for line in required if "mxnet" in line and "extra ==" not in line]
    assert {line.split("extra == ")[1].strip("\"'") for line in required if "mxnet" in line} == \
        {"cpu", "cu112"}


@pytest.mark.parametrize("version", ["3.8", "3.9", "3.10", "3.11"])
def test_the_core_library_loads_in_every_python(wheel, tmp_path, version):
    python = find_python(version)
    if python is None:
        pytest.skip("no Python %s here" % version)
    zipfile.ZipFile(str(wheel)).extractall(str(tmp_path))
    code = "import memonger.native as n; n.core(); print(n.__file__)"
    done = subprocess.run([python, "-c", code], cwd=str(tmp_path), stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, universal_newlines=True)
    assert done.returncode == 0, done.stdout
    assert done.stdout.strip().startswith(str(tmp_path))


def test_the_plugin_of_the_wheel_loads_into_mxnet(wheel, tmp_path):
    pytest.importorskip("mxnet")
    zipfile.ZipFile(str(wheel)).extractall(str(tmp_path))
    # As if it were installed: Python reads the file that lies beside the package.
    code = ("import os, site; site.addsitedir(os.getcwd())\n"
            "import mxnet as mx\n"
            "mx.sym.load_json(%r)\n"
            "from memonger import native\n"
            "print(native.folder(), native.backend(), mx.sym.memonger_mask_relu.__name__)"
            % '{"nodes": [{"op": "null", "name": "x", "inputs": []}, {"op": "memonger_mask_relu", '
              '"name": "a", "inputs": [[0, 0, 0]]}], "arg_nodes": [0], "heads": [[1, 0, 0]]}')
    clean = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "MEMONGER_NATIVE_DIR")}
    done = subprocess.run([sys.executable, "-c", code], cwd=str(tmp_path), env=clean,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [str(tmp_path / "memonger" / "_native"), "plugin",
                                   "memonger_mask_relu"]


def find_python(version: str):
    """A Python of that version that runs: on the PATH, or of pyenv."""
    pyenv = Path(os.environ.get("PYENV_ROOT", str(Path.home() / ".pyenv"))) / "versions"
    candidates = [shutil.which("python" + version)] + sorted(
        str(path) for path in pyenv.glob(version + ".*/bin/python"))
    for candidate in filter(None, candidates):
        if subprocess.run([candidate, "-c", ""], stderr=subprocess.DEVNULL).returncode == 0:
            return candidate
    return None


def test_the_source_distribution_carries_what_the_build_needs(source, tmp_path):
    done = subprocess.run([sys.executable, "setup.py", "-q", "sdist", "-d", str(tmp_path)],
                          cwd=str(source), stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          universal_newlines=True)
    assert done.returncode == 0, done.stdout[-3000:]
    with tarfile.open(str(next(tmp_path.glob("*.tar.gz")))) as archive:
        names = {name.split("/", 1)[1] for name in archive.getnames() if "/" in name}
    tracked = {str(path.relative_to(source)) for folder in ("plugins", "memonger", "examples")
               for path in (source / folder).rglob("*")
               if path.is_file() and path.suffix not in (".pyc", ".so", ".o")}
    assert tracked - names == set()
    assert {"LICENSE", "README.md", "Makefile", "pyproject.toml", "tools/find_python.sh",
            "benchmarks/__main__.py"} <= names


def test_a_build_without_a_compiler_fails_and_says_so(source, tmp_path):
    done = build_wheel(source, tmp_path, CXX="no-such-compiler")
    assert done.returncode != 0 and not list(tmp_path.glob("*.whl"))
    assert "CXX=no-such-compiler is not on the PATH" in done.stdout


def test_a_build_without_mxnet_makes_the_core_and_brings_the_plugin_s_sources(source, tmp_path):
    code = ("import importlib.util as u, runpy, sys, sysconfig\n"
            "sysconfig.get_path = lambda *a: '/nowhere'\n"
            "real = u.find_spec\n"
            "u.find_spec = lambda name, *a: None if name == 'mxnet' else real(name, *a)\n"
            "sys.argv = ['setup.py', '-q', 'build_ext', '-b', %r]\n"
            "runpy.run_path('setup.py', run_name='__main__')" % str(tmp_path))
    done = subprocess.run([sys.executable, "-c", code], cwd=str(source), stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, universal_newlines=True)
    assert done.returncode == 0, done.stdout
    assert "the plugin for MXNet is built when it is first needed" in done.stdout
    native = tmp_path / "memonger" / "_native"
    assert [path.name for path in native.glob("*.so")] == ["libmemonger_core.so"]
    assert (native / "plugins" / "build.py").exists()
    assert (native / "plugins" / "ops" / "cuda" / "activations.cu").exists()
