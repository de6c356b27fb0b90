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
from dataclasses import asdict, dataclass, replace
from importlib import metadata
from typing import Callable, Iterator, List, Optional, Tuple

from ..mx.plugin import loading as native
from ..util import cuda_libraries
from ..util.errors import PluginError
from ..util.messages import one_line
from ..util.native_libraries import core
from ..util.units import format_bytes
from ..util.version import TORCH_VERSIONS, __version__, installed
from .command import EXIT_ERROR, EXIT_OK, Command, answer

OK, NOTE, WARNING, PROBLEM = "ok", "note", "warning", "problem"

#: Environment variables that change what is planned or run, and how.
_VARIABLES = (
    ("MXNET_BACKWARD_DO_MIRROR", WARNING,
     "MXNet mirrors ops of networks without a plan; of planned ones only where the plugin is off"),
    ("MXNET_EXEC_ENABLE_INPLACE", WARNING, "changes in-place choices; plans assume it is unset"),
    ("MXNET_EXEC_NUM_TEMP", NOTE, "number of workspaces; more of them take more memory"),
    ("MXNET_USE_FUSION", NOTE, "1: point-wise ops are fused after the plan, pools may be larger"),
    ("MXNET_MKLDNN_ENABLED", NOTE, "0: a plan changes no bit; 1, the default: rounding only"),
    ("MXNET_SUBGRAPH_BACKEND", NOTE, "training binds are the same with and without it"),
    ("MXNET_ENGINE_TYPE", NOTE, "the engine that runs the ops"),
    ("MXNET_GPU_MEM_POOL_TYPE", NOTE, "how device memory is rounded"),
    ("MXNET_CUDNN_AUTOTUNE_DEFAULT", NOTE, "autotuning may take large workspaces"),
    ("MXNET_GPU_TEMP_COPY", WARNING, "above 1 each workspace counts as often; plans count one"),
    ("MXNET_ENABLE_CUDA_GRAPHS", WARNING, "captured steps keep memory that plans do not count"),
)
#: Values that mean the same as an unset variable.
_HARMLESS = {"MXNET_BACKWARD_DO_MIRROR": ("0", ""), "MXNET_GPU_TEMP_COPY": ("0", "1", ""),
             "MXNET_ENABLE_CUDA_GRAPHS": ("0", "")}
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
    """All findings, in the order of the report."""
    checks: Tuple[Callable[[], Iterator[Finding]], ...] = (
        _system, _torch, _distributions, _mxnet, _plugin, _gpu_kernels, _libraries, _programs,
        _cuda, _devices, _variables)
    return [finding for check in checks for finding in check()]


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


def _output_of(*command: str) -> Optional[str]:
    """First line that a program prints, or None when it does not run."""
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              universal_newlines=True, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return (done.stdout.strip().splitlines() or [""])[0] if done.returncode == 0 else None


def _system() -> Iterator[Finding]:
    yield Finding("memonger", __version__)
    fit = (3, 8) <= sys.version_info[:2] <= (3, 11)
    yield Finding("python", platform.python_version(),
                  OK if fit else PROBLEM if _has_mxnet() else NOTE,
                  "" if fit else "MXNet 1.9.1 runs on Python 3.8 to 3.11")
    yield Finding("system", "%s, %s cores" % (platform.platform(), os.cpu_count()))


def _distributions() -> Iterator[Finding]:
    mxnets = sorted({(str(d.metadata["Name"]).lower(), d.version) for d in metadata.distributions()
                     if str(d.metadata["Name"]).lower().split("-")[0] == "mxnet"})
    for name, version in mxnets:
        if version.startswith("1.9.1"):
            yield Finding("distribution", "%s %s" % (name, version))
        else:
            yield Finding("distribution", "%s %s" % (name, version), PROBLEM,
                          "memonger is made for 1.9.1, the last release")
    if len(mxnets) > 1:
        yield Finding("distribution", "%d of MXNet, one laid over the other" % len(mxnets), WARNING,
                      "pip uninstall all of them, then install one")


def _has_mxnet() -> bool:
    """Whether an MXNet is installed, whatever its state."""
    return importlib.util.find_spec("mxnet") is not None


def _mxnet() -> Iterator[Finding]:
    numpy = installed("numpy")
    if not _has_mxnet():
        yield Finding("numpy", numpy or "missing", OK if numpy else PROBLEM,
                      "" if numpy else "pip install numpy")
        words = _BESIDE_TORCH if installed("torch") else _WITHOUT_MXNET
        yield Finding("mxnet", "missing", NOTE, words + _MXNET_NEEDED)
        return
    version = re.match(r"(\d+)\.(\d+)", numpy or "")
    fit = not version or tuple(map(int, version.groups())) < (1, 24)
    yield Finding("numpy", numpy or "missing", OK if numpy and fit else PROBLEM,
                  "" if numpy and fit else
                  "MXNet 1.9.1 needs numpy below 1.24: pip install 'numpy<1.24'")
    try:
        mxnet = importlib.import_module("mxnet")
    except ImportError as error:
        yield Finding("mxnet", one_line(error), PROBLEM, _MXNET_NEEDED)
    except Exception as error:  # OSError: a CUDA library is missing; AttributeError: numpy
        yield Finding("mxnet", "does not import: " + one_line(error), PROBLEM,
                      cuda_libraries.advice(one_line(error)))
    else:
        fit = mxnet.__version__ == "1.9.1"
        yield Finding("mxnet", "%s in %s" % (
            mxnet.__version__, os.path.dirname(str(mxnet.__file__))), OK if fit else PROBLEM,
            "" if fit else _MXNET_NEEDED)


def _torch() -> Iterator[Finding]:
    """PyTorch is not imported, which takes seconds: its version is that of its distribution."""
    present, oldest, newest = installed("torch"), TORCH_VERSIONS[0], TORCH_VERSIONS[-1]
    if present is None:
        yield Finding("torch", "missing", NOTE,
                      "memonger.torch needs it: pip install 'torch>=%d.%d'" % oldest)
        return
    found = re.match(r"(\d+)\.(\d+)", present)
    version = tuple(map(int, found.groups())) if found else (0, 0)
    if oldest <= version <= newest:
        yield Finding("torch", present)
    elif version < oldest:
        yield Finding("torch", present, WARNING, "memonger.torch needs %d.%d or later" % oldest)
    else:
        yield Finding("torch", present, NOTE,
                      "newer than %d.%d, the newest that memonger.torch was tested with: it tries "
                      "this one out when it is first used" % newest)


def _plugin() -> Iterator[Finding]:
    for subject, load in (("core library", core), ("plugin", native.load)):
        if subject == "plugin" and not _has_mxnet():
            yield Finding(subject, "not needed without MXNet")
            continue
        try:
            load()
        except Exception as error:  # PluginError with the reason, or MXNet's own
            yield Finding(subject, one_line(error), PROBLEM,
                          "networks of MXNet are planned with it"
                          if subject == "plugin" else "it makes the plans")
        else:
            yield Finding(subject, "loaded")


def _gpu_kernels() -> Iterator[Finding]:
    """Operators run on a GPU when NVRTC can compile their kernels there."""
    try:
        features = importlib.import_module("mxnet.runtime").Features()
        if not features.is_enabled("CUDA"):
            yield Finding("gpu kernels", "not needed: this MXNet is for CPUs")
            return
        compiler = native.gpu_compiler()
    except PluginError as error:
        yield Finding("gpu kernels", one_line(error), WARNING,
                      "plans for a GPU must do without variants of operators")
    except Exception:  # the findings above said why
        return
    else:
        yield Finding("gpu kernels", "compiled by " + compiler)


def _libraries() -> Iterator[Finding]:
    highspy = installed("highspy")
    yield Finding("highspy", highspy or "missing",
                  OK if highspy else WARNING,
                  "" if highspy else "pip install 'highspy>=1.10', or do without method='milp' "
                                       "and bounds")
    for name, use in (("matplotlib", "pictures of the timeline: pip install matplotlib"),
                      ("graphviz", "plan.to_graphviz(): pip install graphviz"),
                      ("pygraphviz", "")):  # where there is no dot
        version = installed(name)
        yield Finding(name, version or "missing",
                      OK if version or not use else NOTE,
                      "" if version else use)


def _programs() -> Iterator[Finding]:
    compiler = os.environ.get("CXX") or shutil.which("g++") or shutil.which("clang++")
    version = _output_of(compiler, "--version") if compiler else None
    yield Finding("compiler", version or "missing", OK if version else NOTE,
                  "" if version else "only needed to build memonger: apt install g++")
    dot = _output_of("dot", "-V")
    yield Finding("dot", dot or "missing", OK if dot else NOTE,
                  "" if dot else "diagrams: apt install graphviz, or pip install pygraphviz")


def _cuda() -> Iterator[Finding]:
    """The driver, and cuDNN where MXNet is for GPUs."""
    version = ctypes.c_int()
    try:
        ctypes.CDLL("libcuda.so.1").cuDriverGetVersion(ctypes.byref(version))
        yield Finding("driver", "CUDA %d.%d" % (version.value // 1000, version.value % 1000 // 10))
    except (OSError, AttributeError):
        yield Finding("driver", "none: no libcuda.so.1")
    with contextlib.suppress(Exception):  # the findings above said why
        if importlib.import_module("mxnet.runtime").Features().is_enabled("CUDA"):
            library = ctypes.CDLL("libcudnn.so.8")
            library.cudnnGetVersion.restype = ctypes.c_size_t
            number = library.cudnnGetVersion()
            yield Finding("cudnn", "%d.%d.%d" % (number // 1000, number % 1000 // 100,
                                                 number % 100))


#: CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR and MINOR.
_CAPABILITY_MAJOR, _CAPABILITY_MINOR = 75, 76


def _devices() -> Iterator[Finding]:
    """What the driver says of each GPU that this process may use."""
    count = ctypes.c_int()
    try:
        driver = ctypes.CDLL("libcuda.so.1")
        if driver.cuInit(0) == 0:
            driver.cuDeviceGetCount(ctypes.byref(count))
    except (OSError, AttributeError):
        count.value = 0
    if not count.value:
        yield Finding("gpu", "none")
    for number in range(count.value):
        name, size = ctypes.create_string_buffer(256), ctypes.c_size_t()
        major, minor = ctypes.c_int(), ctypes.c_int()
        driver.cuDeviceGetName(name, len(name), number)
        driver.cuDeviceTotalMem_v2(ctypes.byref(size), number)
        driver.cuDeviceGetAttribute(ctypes.byref(major), _CAPABILITY_MAJOR, number)
        driver.cuDeviceGetAttribute(ctypes.byref(minor), _CAPABILITY_MINOR, number)
        found = gpu_finding(name.value.decode(errors="replace"), (major.value, minor.value),
                            size.value)
        yield found if _has_mxnet() else replace(found, state=OK, advice="")


def gpu_finding(name: str, capability: Tuple[int, int], memory_bytes: int) -> Finding:
    """Whether mxnet-cu112 serves a GPU."""
    lowest, highest = _SERVED_CAPABILITIES
    served = lowest <= capability <= highest
    return Finding("gpu", "%s, %d.%d, %s" % (name, *capability, format_bytes(memory_bytes)),
                   OK if served else WARNING,
                   "" if served else "mxnet-cu112 1.9.1 has code for compute capability 5.0 to "
                                     "8.9 only; MXNet's own kernels do not run on this device")


def _variables() -> Iterator[Finding]:
    known = {name for name, _, _ in _VARIABLES}
    for name, state, meaning in _VARIABLES:
        value = os.environ.get(name)
        if value is not None:
            harmless = state == WARNING and value in _HARMLESS.get(name, ())
            yield Finding(name, value, NOTE if harmless else state, meaning)
    for name in sorted(set(os.environ) - known):
        if name.startswith(("NNVM_", "MEMONGER_")):
            yield Finding(name, os.environ[name], NOTE)
