"""``memonger doctor`` tells what is there, and works when it is not."""
from __future__ import annotations

import importlib
import json
from types import SimpleNamespace
from unittest.mock import Mock

import pytest

from memonger.cli import doctor, main
from memonger.cli.doctor import Finding
from memonger.util.errors import PluginABIError, PluginError, PluginMissing


def find(findings, subject):
    return [f for f in findings if f.subject == subject]


def test_doctor_answers_in_text_and_json(capsys):
    code = main(["doctor"])
    text = capsys.readouterr().out
    assert text.startswith("memonger ") and "python" in text
    assert main(["doctor", "--json"]) == code
    subjects = [f["subject"] for f in json.loads(capsys.readouterr().out)["findings"]]
    assert {"memonger", "python", "numpy", "mxnet", "torch", "plugin", "highspy", "dot", "gpu"} <= \
        set(subjects)


@pytest.mark.parametrize("error, value, advice", [
    (ModuleNotFoundError("No module named 'mxnet'"), "No module named 'mxnet'",
     "mxnet==1.9.1"),
    (OSError("libcudnn.so.8: cannot open shared object file"),
     "does not import: libcudnn.so.8: cannot open shared object file",
     "nvidia-cudnn-cu11==8.9.6.50"),
    (OSError("libcuda.so.1: cannot open shared object file"),
     "does not import: libcuda.so.1: cannot open shared object file", "NVIDIA driver"),
])
def test_a_missing_mxnet_is_a_problem_not_a_crash(monkeypatch, error, value, advice):
    real = importlib.import_module

    def import_module(name, package=None):
        if name == "mxnet":
            raise error
        return real(name, package)
    monkeypatch.setattr(importlib, "import_module", import_module)
    finding = find(doctor.examine(), "mxnet")[0]
    assert (finding.state, finding.value) == ("problem", value)
    assert advice in finding.advice
    assert main(["doctor"]) == 1


@pytest.mark.parametrize("torch, advice", [
    (None, "what cannot run: all calls and commands for *-symbol.json files"),
    ("2.13.0", "*-symbol.json files and Gluon blocks need it: pip install mxnet==1.9.1")])
def test_without_mxnet_the_core_is_well(monkeypatch, torch, advice):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(doctor, "installed",
                        lambda module: torch if module == "torch" else "2.4.6")
    findings = doctor.examine()
    for subject, state in (("numpy", "ok"), ("mxnet", "note"), ("core library", "ok"),
                           ("plugin", "ok")):
        assert [f.state for f in find(findings, subject)] == [state]
    assert advice in find(findings, "mxnet")[0].advice
    subjects = [finding.subject for finding in findings]
    assert subjects.index("torch") < subjects.index("mxnet")


@pytest.mark.parametrize("missing, verdict", [
    ((), "all is well"), (("torch",), "all is well"), (("mxnet",), "all is well, without mxnet"),
    (("mxnet", "torch"), "all is well for graphs from files; networks need mxnet or torch")])
def test_the_verdict_says_what_for(missing, verdict):
    findings = [Finding(name, "missing" if name in missing else "1.0")
                for name in ("numpy", "mxnet", "torch")]
    assert doctor.describe(findings).splitlines()[-1] == verdict


@pytest.mark.parametrize("version, state", [("1.23.5", "ok"), ("1.24.0rc1", "problem"),
                                            ("of unknown version", "ok")])
def test_mxnet_needs_an_old_numpy(monkeypatch, version, state):
    monkeypatch.setattr(doctor, "installed", lambda module: version)
    finding, = find(doctor.examine(), "numpy")
    assert (finding.value, finding.state) == (version, state)


@pytest.mark.parametrize("refusal", [
    PluginABIError("libmxnet.so was compiled by GCC 9; pip install mxnet==1.9.1"),
    PluginMissing("libmemonger_mxnet.so is not there; reinstall memonger")])
def test_a_plugin_that_cannot_work_is_a_problem(monkeypatch, capsys, refusal):
    def refuse():
        raise refusal
    monkeypatch.setattr("memonger.mx.plugin.loading.load", refuse)
    finding, = find(doctor.examine(), "plugin")
    assert (finding.state, finding.value) == ("problem", str(refusal))
    assert "networks of MXNet" in finding.advice
    assert main(["doctor"]) == 1
    assert "plugin" in capsys.readouterr().out


def test_another_version_of_mxnet_is_a_problem(monkeypatch):
    import mxnet
    monkeypatch.setattr(mxnet, "__version__", "1.8.0")
    finding, = find(doctor.examine(), "mxnet")
    assert finding.state == "problem" and finding.value.startswith("1.8.0 in ")
    assert "pip install mxnet==1.9.1" in finding.advice


def test_what_memonger_can_do_without_is_no_problem(monkeypatch, tmp_path):
    """No GPU, no ``dot``, no compiler, no solver, no library for pictures."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    real = doctor.installed
    monkeypatch.setattr(doctor, "installed",
                        lambda module: real(module) if module == "numpy" else None)
    findings = doctor.examine()
    assert find(findings, "dot")[0].value == find(findings, "highspy")[0].value == "missing"
    assert main(["doctor"]) == 0


@pytest.fixture
def for_gpus(monkeypatch):
    """Makes MXNet one for GPUs, or for CPUs."""
    def set_to(value):
        monkeypatch.setattr("mxnet.runtime.Features", lambda: SimpleNamespace(
            is_enabled=lambda name: value and name == "CUDA"))
    return set_to


def test_gpu_kernels_need_nvrtc_where_mxnet_is_for_gpus(monkeypatch, for_gpus):
    def kernels():
        return [(f.state, f.value) for f in find(doctor.examine(), "gpu kernels")]

    for_gpus(False)
    assert kernels() == [("ok", "not needed: this MXNet is for CPUs")]
    for_gpus(True)
    monkeypatch.setattr("memonger.mx.plugin.loading.gpu_compiler", lambda: "NVRTC 11.8")
    assert kernels() == [("ok", "compiled by NVRTC 11.8")]
    monkeypatch.setattr("memonger.mx.plugin.loading.gpu_compiler", Mock(
        side_effect=PluginError("there is none")))
    assert kernels() == [("warning", "there is none")]


@pytest.mark.parametrize("installed, values, states", [
    ({"mxnet": "1.9.1", "mxnet-cu112": "1.9.1", "mxnetwork": "3"},
     ["mxnet 1.9.1", "mxnet-cu112 1.9.1"], ["ok", "ok", "warning"]),
    ({"mxnet": "1.7.0"}, ["mxnet 1.7.0"], ["problem"])])
def test_distributions_of_mxnet(monkeypatch, installed, values, states):
    monkeypatch.setattr(doctor.metadata, "distributions", lambda: [
        SimpleNamespace(metadata={"Name": name}, version=version)
        for name, version in installed.items()])
    findings = find(doctor.examine(), "distribution")
    assert [f.value for f in findings[:2]] == values and [f.state for f in findings] == states
    assert len(values) < 2 or "then install one" in findings[2].advice


@pytest.mark.parametrize("capability, state", [
    ((8, 6), "ok"), ((8, 9), "ok"), ((5, 0), "ok"), ((9, 0), "warning"), ((3, 7), "warning")])
def test_which_gpus_are_served(capability, state):
    finding = doctor.Finding("gpu", *doctor.gpu_found("GPU of NVIDIA", capability, 24 << 30))
    assert finding.state == state
    assert finding.value == "GPU of NVIDIA, %d.%d, 24.0 GiB" % capability


@pytest.mark.parametrize("code, count, values", [
    (0, 0, ["none"]), (100, 2, ["none"]), (0, 2, ["T4, 7.5, 16.0 GiB"] * 2)])
def test_gpus_are_those_of_the_driver(monkeypatch, code, count, values):
    class Told:
        def cuInit(self, flags):
            return code

        def cuDeviceGetCount(self, found):
            found._obj.value = count

        def cuDeviceGetName(self, name, size, number):
            name.value = b"T4"

        def cuDeviceTotalMem_v2(self, size, number):
            size._obj.value = 16 << 30

        def cuDeviceGetAttribute(self, found, attribute, number):
            found._obj.value = {75: 7, 76: 5}[attribute]
    monkeypatch.setattr(doctor.ctypes, "CDLL", Libraries(libcuda=Told()))
    assert [f.value for f in find(doctor.examine(), "gpu")] == values


class Libraries:
    """What ctypes finds: functions of the libraries by the libraries' names."""

    def __init__(self, **functions):
        self.functions = functions

    def __call__(self, name):
        try:
            return self.functions[name.partition(".")[0]]
        except KeyError:
            raise OSError(name + ": cannot open shared object file") from None


class Driver:
    def cuDriverGetVersion(self, version):
        version._obj.value = 12040
        return 0


CUDNN = SimpleNamespace(cudnnGetVersion=Mock(return_value=8906))


@pytest.mark.parametrize("there, gpus, lines", [
    ({}, False, ["none: no libcuda.so.1"]),
    ({"libcuda": Driver()}, False, ["CUDA 12.4"]),
    ({"libcuda": Driver(), "libcudnn": CUDNN}, False, ["CUDA 12.4"]),  # not MXNet's
    ({"libcuda": Driver(), "libcudnn": CUDNN}, True, ["CUDA 12.4", "8.9.6"]),
    ({"libcuda": Driver()}, True, ["CUDA 12.4"]),
])
def test_driver_and_cudnn_are_named(monkeypatch, for_gpus, there, gpus, lines):
    for_gpus(gpus)
    monkeypatch.setattr(doctor.ctypes, "CDLL", Libraries(**there))
    findings = [f for f in doctor.examine() if f.subject in ("driver", "cudnn")]
    assert [f.value for f in findings] == lines
    assert [f.subject for f in findings] == ["driver", "cudnn"][:len(lines)]


@pytest.mark.parametrize("name, value, state", [
    ("MXNET_GPU_TEMP_COPY", "2", "warning"), ("MXNET_GPU_TEMP_COPY", "1", "note"),
    ("MXNET_ENABLE_CUDA_GRAPHS", "1", "warning"), ("MXNET_ENABLE_CUDA_GRAPHS", "0", "note"),
    ("MXNET_BACKWARD_DO_MIRROR", "1", "warning"), ("MXNET_BACKWARD_DO_MIRROR", "0", "note"),
    ("MXNET_USE_FUSION", "0", "note"), ("NNVM_AUTO_SEARCH_MATCH_RANGE", "1", "note"),
    ("MXNET_GPU_MEM_POOL_TYPE", "Round", "note"), ("MXNET_CUDNN_AUTOTUNE_DEFAULT", "2", "note")])
def test_settings_are_judged(monkeypatch, name, value, state):
    monkeypatch.delenv(name, raising=False)
    assert not find(doctor.examine(), name)
    monkeypatch.setenv(name, value)
    finding, = find(doctor.examine(), name)
    assert (finding.value, finding.state) == (value, state)
    assert finding.advice or not name.startswith(("MXNET_GPU", "MXNET_ENABLE", "MXNET_CUDNN"))


def test_the_text_of_the_report(golden):
    golden("doctor.txt", doctor.describe([
        Finding("memonger", "0.1.0"), Finding("python", "3.11.7"),
        Finding("numpy", "1.26.0", "problem", "MXNet 1.9.1 needs numpy below 1.24"),
        Finding("MXNET_BACKWARD_DO_MIRROR", "1", "warning", "MXNet mirrors ops"),
        Finding("pygraphviz", "missing", "note")]) + "\n")


@pytest.mark.parametrize("version, state", [
    (None, doctor.NOTE), ("2.13.0+cpu", doctor.OK), ("2.11.1", doctor.OK),
    ("2.15.0", doctor.OK), ("2.99.0", doctor.NOTE), ("1.13", doctor.WARNING)])
def test_torch_is_told_by_its_version(monkeypatch, version, state):
    monkeypatch.setattr(doctor, "installed", lambda name: version)
    [found] = find(doctor.examine(), "torch")
    assert found.state == state and found.value == (version or "missing")
