"""The libraries of pip's CUDA packages are open when MXNet's own is loaded, whoever comes first."""
from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy
import pytest

import memonger

ROOT = Path(__file__).resolve().parents[2]
#: As MXNet's library would: by the name alone, which the loader knows only of what is open.
MXNET = "import ctypes\nctypes.CDLL('libcudnn.so.8')\n"


@pytest.fixture
def site(tmp_path):
    """A folder of packages with a cuDNN, MXNet, and what memonger's package lays beside itself."""
    if not shutil.which("gcc"):
        pytest.skip("no gcc")
    folder = tmp_path / "nvidia" / "cudnn" / "lib"
    folder.mkdir(parents=True)
    (tmp_path / "empty.c").write_text("")
    subprocess.run(["gcc", "-shared", str(tmp_path / "empty.c"), "-o",
                    str(folder / "libcudnn.so.8"), "-Wl,-soname,libcudnn.so.8"], check=True)
    (tmp_path / "mxnet").mkdir()
    (tmp_path / "mxnet" / "__init__.py").write_text(MXNET)
    (tmp_path / "mxnet_cu112-1.9.1.dist-info").mkdir()
    (tmp_path / "mxnet_cu112-1.9.1.dist-info" / "METADATA").write_text(
        "Name: mxnet-cu112\nVersion: 1.9.1\n")
    shutil.copy(str(ROOT / "tools" / "memonger_mxnet.pth"), str(tmp_path))
    return tmp_path


def run(site: Path, code: str) -> str:
    """What a Python prints, or the last line of its error, that has ``site`` as site-packages.

    It reads no other such file (``-S``): the package under test may have brought one.
    """
    environment = {name: value for name, value in os.environ.items() if name != "LD_LIBRARY_PATH"}
    environment["PYTHONPATH"] = os.pathsep.join(
        str(folder) for folder in [site, *(Path(module.__file__).resolve().parents[1]
                                           for module in (memonger, numpy))])
    done = subprocess.run([sys.executable, "-S", "-c", code, str(site)], env=environment,
                          cwd=str(site), stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          universal_newlines=True)
    return (done.stdout.splitlines() or [""])[-1]


LOADED = "; import sys; print(sorted({'mxnet', 'memonger'} & set(sys.modules)))"


@pytest.mark.parametrize("first", ["import mxnet", "import mxnet, memonger",
                                   "import memonger, mxnet"])
def test_mxnet_finds_them_in_any_order(site, first):
    code = "import site, sys; site.addsitedir(sys.argv[1]); " + first + LOADED
    assert run(site, code) == "['memonger', 'mxnet']"


def test_without_the_file_memonger_comes_first(site):
    assert "libcudnn.so.8: cannot open" in run(site, "import mxnet")
    assert run(site, "import memonger, mxnet" + LOADED) == "['memonger', 'mxnet']"


def test_where_mxnet_is_for_cpus_nothing_is_opened(site):
    shutil.rmtree(str(site / "nvidia"))
    (site / "mxnet" / "__init__.py").write_text("")
    code = "import site, sys; site.addsitedir(sys.argv[1]); import mxnet"
    assert run(site, code + LOADED) == "['memonger', 'mxnet']"
    assert run(site, code + "; print('cudnn' in open('/proc/self/maps').read())") == "False"


def test_mxnet_is_imported_where_memonger_cannot_be(site):
    shutil.rmtree(str(site / "nvidia"))
    (site / "mxnet" / "__init__.py").write_text("")
    (site / "memonger.py").write_text("raise ImportError('No module named numpy')")
    code = "import site, sys; site.addsitedir(sys.argv[1]); import mxnet"
    assert run(site, code + LOADED) == "['mxnet']"
    assert run(site, "import warnings; warnings.simplefilter('error'); " + code) == (
        "RuntimeWarning: memonger cannot be imported beside MXNet: No module named numpy")
