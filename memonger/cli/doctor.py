"""``memonger doctor``: the first thing to run, and to paste into a report, when something fails."""
from __future__ import annotations

import argparse
import contextlib
import ctypes
import importlib
import importlib.util
import os
import platform
import re
import shutil
import subprocess
import sys
from dataclasses import asdict, dataclass
from importlib import metadata
from typing import Any, Callable, Iterator, List, Optional, Tuple, Union

from ..mx.plugin import loading as native
from ..util import cuda_libraries
from ..util.errors import PluginError
from ..util.messages import one_line
from ..util.native_libraries import core
from ..util.units import format_bytes
from ..util.version import TORCH_VERSIONS, __version__, installed
from .command import EXIT_ERROR, EXIT_OK, Command, answer

OK, NOTE, WARNING, PROBLEM = "ok", "note", "warning", "problem"

#: Environment variables that change what is planned or run, how, and the values that mean the same
#: as an unset variable.
_VARIABLES = (
    ("MXNET_BACKWARD_DO_MIRROR", WARNING,
     "MXNet mirrors ops of networks without a plan; of planned ones only where the plugin is off",
     ("0", "")),
    ("MXNET_EXEC_ENABLE_INPLACE", WARNING, "changes in-place choices; plans assume it is unset",
     ()),
    ("MXNET_EXEC_NUM_TEMP", NOTE, "number of workspaces; more of them take more memory", ()),
    ("MXNET_USE_FUSION", NOTE, "1: point-wise ops are fused after the plan, pools may be larger",
     ()),
    ("MXNET_MKLDNN_ENABLED", NOTE, "0: a plan changes no bit; 1, the default: rounding only", ()),
    ("MXNET_SUBGRAPH_BACKEND", NOTE, "training binds are the same with and without it", ()),
    ("MXNET_ENGINE_TYPE", NOTE, "the engine that runs the ops", ()),
    ("MXNET_GPU_MEM_POOL_TYPE", NOTE, "how device memory is rounded", ()),
    ("MXNET_CUDNN_AUTOTUNE_DEFAULT", NOTE, "autotuning may take large workspaces", ()),
    ("MXNET_GPU_TEMP_COPY", WARNING, "above 1 each workspace counts as often; plans count one",
     ("0", "1", "")),
    ("MXNET_ENABLE_CUDA_GRAPHS", WARNING, "captured steps keep memory that plans do not count",
     ("0", "")),
)
#: Machine code in the cu112 wheel: compute capability 5.0 to 8.6, which 8.9 runs too.
_SERVED_CAPABILITIES = ((5, 0), (8, 9))
_MXNET_NEEDED = ("pip install mxnet==1.9.1, or mxnet-cu112==1.9.1 for a GPU "
                 "(one of them, not both)")
#: What needs MXNet, where PyTorch is there; else what runs and what does not.
_BESIDE_TORCH = "*-symbol.json files and Gluon blocks need it: "
_WITHOUT_MXNET = ("graphs from files and PyTorch modules need none; what cannot run: all calls and "
                  "commands for *-symbol.json files and Gluon blocks, and the benchmarks of "
                  "MXNet's networks: ")


@dataclass(frozen=True)
class Finding:
    """One line of the report."""

    subject: str
    value: str
    state: str = OK
    advice: str = ""


#: What was found of a subject: a version or the like; with the state; with advice, too.
Found = Union[str, Tuple[str, str], Tuple[str, str, str]]


class Doctor(Command):
    """Show versions, the plugin, helpers, devices and settings, and what is wrong with them.

    Works whatever is missing. The exit code is 1 when something that memonger cannot do without
    is missing or unfit: Python, NumPy, an installed MXNet, or memonger's own libraries.
    """

    name = "doctor"

    def run(self, args: argparse.Namespace) -> int:
        findings = examine()
        answer(args, {"findings": [asdict(f) for f in findings]}, lambda: describe(findings))
        return EXIT_ERROR if any(f.state == PROBLEM for f in findings) else EXIT_OK


def examine() -> List[Finding]:
    """All findings, in the order of :data:`CHECKS`, then those on settings."""
    return [*(Finding(subject, *([found] if isinstance(found, str) else found))
              for subject, check in CHECKS for found in check()), *_variables()]


def describe(findings: List[Finding]) -> str:
    """The report as text."""
    width = max(len(f.subject) for f in findings)
    lines = []
    for finding in findings:
        mark = "" if finding.state in (OK, NOTE) else finding.state + ": "
        lines.append("%s  %s%s" % (finding.subject.ljust(width), mark, finding.value))
        if finding.advice:
            lines.append(" " * width + "  " + finding.advice)
    problems = sum(f.state == PROBLEM for f in findings)
    warnings = sum(f.state == WARNING for f in findings)
    missing = [f.subject for f in findings if f.subject in ("mxnet", "torch")
               and f.value == "missing"]
    lines.append("problems: %d, warnings: %d" % (problems, warnings) if problems + warnings else
                 "all is well for graphs from files; networks need mxnet or torch"
                 if len(missing) == 2 else "all is well, without mxnet" if missing == ["mxnet"] else
                 "all is well")
    return "\n".join(lines)


def _has_mxnet() -> bool:
    """Whether an MXNet is installed, whatever its state."""
    return importlib.util.find_spec("mxnet") is not None


def _for_gpus() -> bool:
    """Whether MXNet is there, and for GPUs."""
    with contextlib.suppress(Exception):  # the check of MXNet says why
        return bool(importlib.import_module("mxnet.runtime").Features().is_enabled("CUDA"))
    return False


def _numbers(version: Optional[str]) -> Tuple[int, ...]:
    """Major and minor version; () where they cannot be read."""
    found = re.match(r"(\d+)\.(\d+)", version or "")
    return tuple(map(int, found.groups())) if found else ()


# ---------------------------------------------------------------------- checks
def _python() -> Iterator[Found]:
    fit = (3, 8) <= sys.version_info[:2] <= (3, 11)
    yield platform.python_version() if fit else (
        platform.python_version(), PROBLEM if _has_mxnet() else NOTE,
        "MXNet 1.9.1 runs on Python 3.8 to 3.11")


def _torch() -> Iterator[Found]:
    """PyTorch is not imported, which takes seconds: its version is that of its distribution."""
    present, oldest, newest = installed("torch"), TORCH_VERSIONS[0], TORCH_VERSIONS[-1]
    if present is None:
        yield "missing", NOTE, "memonger.torch needs it%s: pip install 'torch>=%d.%d'" % (
            ", in an environment without MXNet" if _has_mxnet() else "", *oldest)
    elif _numbers(present) < oldest:
        yield present, WARNING, "memonger.torch needs %d.%d or later" % oldest
    else:
        yield present if _numbers(present) <= newest else (
            present, NOTE, "newer than %d.%d, the newest that memonger.torch was tested with: it "
                           "tries this one out when it is first used" % newest)


def _distributions() -> Iterator[Found]:
    mxnets = sorted({(str(d.metadata["Name"]).lower(), d.version) for d in metadata.distributions()
                     if str(d.metadata["Name"]).lower().split("-")[0] == "mxnet"})
    for words in map(" ".join, mxnets):
        yield words if " 1.9.1" in words else (
            words, PROBLEM, "memonger is made for 1.9.1, the last release")
    if len(mxnets) > 1:
        yield ("%d of MXNet, one laid over the other" % len(mxnets), WARNING,
               "pip uninstall all of them, then install one")


def _numpy() -> Iterator[Found]:
    version, needed = installed("numpy"), "pip install numpy"
    if _has_mxnet():
        needed = "MXNet 1.9.1 needs numpy below 1.24: pip install 'numpy<1.24'"
    fit = version and not (_has_mxnet() and _numbers(version) >= (1, 24))
    yield version if version and fit else (version or "missing", PROBLEM, needed)


def _mxnet() -> Iterator[Found]:
    if not _has_mxnet():
        words = _BESIDE_TORCH if installed("torch") else _WITHOUT_MXNET
        yield "missing", NOTE, words + _MXNET_NEEDED
        return
    try:
        mxnet = importlib.import_module("mxnet")
    except ImportError as error:
        yield one_line(error), PROBLEM, _MXNET_NEEDED
    except Exception as error:  # OSError: a CUDA library is missing; AttributeError: numpy
        yield ("does not import: " + one_line(error), PROBLEM,
               cuda_libraries.advice(one_line(error)))
    else:
        words = "%s in %s" % (mxnet.__version__, os.path.dirname(str(mxnet.__file__)))
        yield words if mxnet.__version__ == "1.9.1" else (words, PROBLEM, _MXNET_NEEDED)


def _loads(load: Callable[[], Any], use: str) -> Found:
    """Whether a library of memonger's loads."""
    try:
        load()
    except Exception as error:  # PluginError with the reason, or MXNet's own
        return one_line(error), PROBLEM, use
    return "loaded"


def _plugin() -> Iterator[Found]:
    yield _loads(native.load, "networks of MXNet are planned with it") if _has_mxnet() else \
        "not needed without MXNet"


def _gpu_kernels() -> Iterator[Found]:
    """Operators run on a GPU when NVRTC can compile their kernels there."""
    try:
        if not importlib.import_module("mxnet.runtime").Features().is_enabled("CUDA"):
            yield "not needed: this MXNet is for CPUs"
            return
        yield "compiled by " + native.gpu_compiler()
    except PluginError as error:
        yield one_line(error), WARNING, "plans for a GPU must do without variants of operators"
    except Exception:  # the findings above said why
        return


def _package(name: str, state: str, use: str) -> Callable[[], Iterator[Found]]:
    """The check of a package that memonger can do without."""
    def check() -> Iterator[Found]:
        version = installed(name)
        yield version or ("missing", state, use)
    return check


def _program(name: str, option: str, use: str) -> Callable[[], Iterator[Found]]:
    """The check of a program: the first line that it prints."""
    def check() -> Iterator[Found]:
        program: Optional[str] = name
        if name == "c++":
            program = os.environ.get("CXX") or shutil.which("g++") or shutil.which("clang++")
        with contextlib.suppress(OSError, subprocess.SubprocessError):
            done = subprocess.run([program or name, option], stdout=subprocess.PIPE, check=True,
                                  stderr=subprocess.STDOUT, universal_newlines=True, timeout=20)
            yield (done.stdout.strip().splitlines() or [""])[0]
            return
        yield "missing", NOTE, use
    return check


def _driver() -> Iterator[Found]:
    version = ctypes.c_int()
    try:
        ctypes.CDLL("libcuda.so.1").cuDriverGetVersion(ctypes.byref(version))
        yield "CUDA %d.%d" % (version.value // 1000, version.value % 1000 // 10)
    except (OSError, AttributeError):
        yield "none: no libcuda.so.1"


def _cudnn() -> Iterator[Found]:
    """cuDNN, where MXNet is for GPUs."""
    with contextlib.suppress(OSError):  # the findings above said why
        if _for_gpus():
            library = ctypes.CDLL("libcudnn.so.8")
            library.cudnnGetVersion.restype = ctypes.c_size_t
            number = library.cudnnGetVersion()
            yield "%d.%d.%d" % (number // 1000, number % 1000 // 100, number % 100)


#: CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR and MINOR.
_CAPABILITY_MAJOR, _CAPABILITY_MINOR = 75, 76


def _gpus() -> Iterator[Found]:
    """What the driver says of each GPU that this process may use."""
    count = ctypes.c_int()
    with contextlib.suppress(OSError, AttributeError):
        driver = ctypes.CDLL("libcuda.so.1")
        if driver.cuInit(0) == 0:
            driver.cuDeviceGetCount(ctypes.byref(count))
    if not count.value:
        yield "none"
    for number in range(count.value):
        name, size = ctypes.create_string_buffer(256), ctypes.c_size_t()
        major, minor = ctypes.c_int(), ctypes.c_int()
        driver.cuDeviceGetName(name, len(name), number)
        driver.cuDeviceTotalMem_v2(ctypes.byref(size), number)
        driver.cuDeviceGetAttribute(ctypes.byref(major), _CAPABILITY_MAJOR, number)
        driver.cuDeviceGetAttribute(ctypes.byref(minor), _CAPABILITY_MINOR, number)
        found = gpu_found(name.value.decode(errors="replace"), (major.value, minor.value),
                          size.value)
        yield found if _has_mxnet() else found[0]


def gpu_found(name: str, capability: Tuple[int, int], memory_bytes: int) -> Tuple[str, str, str]:
    """Whether mxnet-cu112 serves a GPU."""
    lowest, highest = _SERVED_CAPABILITIES
    words = "%s, %d.%d, %s" % (name, *capability, format_bytes(memory_bytes))
    return (words, OK, "") if lowest <= capability <= highest else (
        words, WARNING, "mxnet-cu112 1.9.1 has code for compute capability 5.0 to 8.9 only; "
                        "MXNet's own kernels do not run on this device")


#: The lines of the report: a subject, and what finds its lines.
CHECKS: Tuple[Tuple[str, Callable[[], Iterator[Found]]], ...] = (
    ("memonger", lambda: iter([__version__])),
    ("python", _python),
    ("system", lambda: iter(["%s, %s cores" % (platform.platform(), os.cpu_count())])),
    ("torch", _torch),
    ("distribution", _distributions),
    ("numpy", _numpy),
    ("mxnet", _mxnet),
    ("core library", lambda: iter([_loads(core, "it makes the plans")])),
    ("plugin", _plugin),
    ("gpu kernels", _gpu_kernels),
    ("highspy", _package("highspy", WARNING, "pip install 'highspy>=1.10', or do without "
                                             "method='milp' and bounds")),
    ("matplotlib", _package("matplotlib", NOTE, "pictures of the timeline: "
                                                "pip install matplotlib")),
    ("graphviz", _package("graphviz", NOTE, "plan.to_graphviz(): pip install graphviz")),
    ("pygraphviz", _package("pygraphviz", OK, "")),  # where there is no dot
    ("compiler", _program("c++", "--version", "only needed to build memonger: apt install g++")),
    ("dot", _program("dot", "-V", "diagrams: apt install graphviz, or pip install pygraphviz")),
    ("driver", _driver),
    ("cudnn", _cudnn),
    ("gpu", _gpus),
)


def _variables() -> Iterator[Finding]:
    for name, state, meaning, harmless in _VARIABLES:
        value = os.environ.get(name)
        if value is not None:
            yield Finding(name, value, NOTE if value in harmless else state, meaning)
    for name in sorted(set(os.environ) - {row[0] for row in _VARIABLES}):
        if name.startswith(("NNVM_", "MEMONGER_")):
            yield Finding(name, os.environ[name], NOTE)
