"""The libraries of pip's CUDA packages are open when MXNet's own is loaded after memonger."""
from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy
import pytest

import memonger

#: As MXNet's library would: by the name alone, which the loader knows only of what is open.
MXNET = "import ctypes\nctypes.CDLL('libcudnn.so.8')\n"


@pytest.fixture
def site(tmp_path):
    """A folder of packages with a cuDNN and MXNet."""
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
    return tmp_path


def run(site: Path, code: str) -> str:
    """What a Python prints, or the last line of its error, that has ``site`` as site-packages."""
    environment = {name: value for name, value in os.environ.items() if name != "LD_LIBRARY_PATH"}
    environment["PYTHONPATH"] = os.pathsep.join(
        str(folder) for folder in [site, *(Path(module.__file__).resolve().parents[1]
                                           for module in (memonger, numpy))])
    done = subprocess.run([sys.executable, "-S", "-c", code], env=environment,
                          cwd=str(site), stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          universal_newlines=True)
    return (done.stdout.splitlines() or [""])[-1]


LOADED = "; import sys; print(sorted({'mxnet', 'memonger'} & set(sys.modules)))"


def test_mxnet_finds_them_behind_memonger(site):
    assert "libcudnn.so.8: cannot open" in run(site, "import mxnet")
    assert run(site, "import memonger, mxnet" + LOADED) == "['memonger', 'mxnet']"


def test_where_mxnet_is_for_cpus_nothing_is_opened(site):
    shutil.rmtree(str(site / "nvidia"))
    (site / "mxnet" / "__init__.py").write_text("")
    code = "import memonger, mxnet"
    assert run(site, code + LOADED) == "['memonger', 'mxnet']"
    assert run(site, code + "; print('cudnn' in open('/proc/self/maps').read())") == "False"


def test_importing_memonger_changes_nothing_of_python_s_imports(site):
    code = ("import sys; before = list(sys.meta_path), list(sys.path_hooks); import memonger; "
            "print(before == (sys.meta_path, sys.path_hooks))")
    assert run(site, code) == "True"
