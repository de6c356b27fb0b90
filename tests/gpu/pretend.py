"""A pretended GPU in the processes of tests.

The driver and NVRTC run our kernels on the CPU (``emulate.py``), which is
enough for our operators on data in CPU memory. With the other CUDA libraries pretended, too,
mxnet-cu112 works with ``mx.gpu(0)``: memory is managed and counted by MXNet as on a device, our
operators compute, and MXNet's own kernels do nothing.
"""
from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Dict, List, Optional

from gpu import emulate

HERE = Path(__file__).resolve().parent


def compile_c(source: str, target: Path, *options: str) -> None:
    """One C file to one shared library."""
    subprocess.run(["gcc", "-O1", "-fPIC", "-shared", "-w", str(HERE / source), "-o", str(target),
                    "-Wl,-soname," + target.name, "-ldl", *options], check=True)


def have_compilers() -> bool:
    """Whether gcc and g++ are there."""
    return bool(shutil.which("gcc") and shutil.which("g++"))


def make_driver(folder: Path) -> Path:
    """Lay libcuda.so.1 and libnvrtc.so.11.2 into the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    compile_c("fake_driver.c", folder / "libcuda.so.1")
    compile_c("fake_nvrtc.c", folder / "libnvrtc.so.11.2")
    return folder


def environment(folder: Path, **more: str) -> Dict[str, str]:
    """Variables for a process that finds the pretended libraries in ``folder``."""
    return {**os.environ, "LD_LIBRARY_PATH": str(folder),
            "MEMONGER_NVRTC": str(folder / "libnvrtc.so.11.2"),
            "MEMONGER_CACHE_DIR": str(folder / "cache"),
            "PRETEND_EMULATE": "%s %s" % (sys.executable, emulate.__file__), **more}


# ---------------------------------------------------------------------- mxnet-cu112
#: Libraries of the wheel's, and the files that say what their functions do where it matters.
LIBRARIES = {"libcudart.so.11.0": "fake_cudart.c", "libcudnn.so.8": "fake_cudnn.c",
             "libcublas.so.11": None, "libcusolver.so.11": None, "libcurand.so.10": None,
             "libcufft.so.10": None, "libnvToolsExt.so.1": None, "libnccl.so.2": None,
             "libcuda.so.1": "fake_driver.c", "libnvrtc.so.11.2": "fake_nvrtc.c"}
_UNVERSIONED = {"libnccl.so.2": "nccl", "libcuda.so.1": "cu[A-Z]"}


def find_cu112() -> Optional[Path]:
    """Folder that holds mxnet-cu112's package, from MEMONGER_TEST_CU112; None without it."""
    folder = os.environ.get("MEMONGER_TEST_CU112")
    if not folder:
        return None
    if not (Path(folder) / "mxnet" / "libmxnet.so").exists():
        raise FileNotFoundError("MEMONGER_TEST_CU112=%s has no mxnet-cu112" % folder)
    return Path(folder)


def make_cuda(folder: Path, libmxnet: Path) -> Path:
    """Lay all CUDA libraries that ``libmxnet.so`` needs into the folder.

    A function that nothing defines returns 0; one that creates a handle gives one.
    """
    folder.mkdir(parents=True, exist_ok=True)
    listing = subprocess.run(["nm", "-D", "--undefined-only", "--with-symbol-versions",
                              str(libmxnet)], stdout=subprocess.PIPE, universal_newlines=True,
                             check=True).stdout
    wanted = [line.split()[-1].partition("@")[::2] for line in listing.splitlines()]
    for library, source in LIBRARIES.items():
        prefix = _UNVERSIONED.get(library)
        names = sorted(name for name, version in wanted
                       if version.lstrip("@") == library or
                       (prefix and not version and re.match(prefix, name)))
        _compile_library(folder / library, source, names, not prefix)
    return folder


def _compile_library(target: Path, source: Optional[str], names: List[str],
                     versioned: bool) -> None:
    defined = set()
    text = (HERE / source).read_text() if source else ""
    for macro in re.findall(r"^#define ([A-Z]+)\(", text, re.MULTILINE):
        for arguments in re.findall(r"^%s\(([\w, ]+)\)" % macro, text, re.MULTILINE):
            defined |= set(arguments.split(", "))
    defined |= set(re.findall(r"^[\w ]+\*{0,2} (\w+)\(", text, re.MULTILINE))
    lines = [text]
    for name in names:
        if name in defined:
            continue
        if "Create" in name:
            lines.append("int %s(void** handle) { static long made[64]; "
                         "return *handle = made, 0; }" % name)
        else:
            lines.append("long %s(void) { return 0; }" % name)
    with tempfile.TemporaryDirectory() as folder:
        unit, script = Path(folder) / "library.c", Path(folder) / "versions"
        unit.write_text("\n".join(lines))
        script.write_text("%s { global: *; };" % target.name)
        options = ["-Wl,--version-script=%s" % script] if versioned else []
        compile_c(str(unit), target, *options)
