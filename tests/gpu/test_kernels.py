"""``python -m benchmarks.kernels``, and that it launches what the plugin launches.

Kernels are emulated on the CPU, and with ``-m gpu`` run on any device that has a driver, also on
those that MXNet's own kernels do not run on.
"""
from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from benchmarks.kernels import __main__ as command
from benchmarks.kernels import cases, check, nvrtc, sources, timing
from gpu import emulate, emulated, pretend
from gpu.emulated import Emulated
from memonger.util import gpu_kernels
from memonger.util.errors import PluginError

needs_compilers = pytest.mark.skipif(not pretend.have_compilers(), reason="no gcc and g++")


@pytest.fixture
def compile_for(monkeypatch):
    """Machine code by source, bits and architecture."""
    monkeypatch.setenv("MEMONGER_NVRTC", os.environ.get("MEMONGER_NVRTC", ""))
    nvrtc.choose()
    try:
        gpu_kernels.compiler()
    except PluginError as error:
        pytest.skip(str(error))
    return partial(gpu_kernels.compiled, sources.source_folder())


@pytest.mark.parametrize("bits", sources.BITS.values())
@pytest.mark.parametrize("file", sorted({kernel.file for kernel in sources.kernels().values()}))
def test_compiles_for_every_architecture(compile_for, file, bits):
    served = [known for known in gpu_kernels.architectures() if 50 <= known <= 90]
    assert 80 in served and 90 in served
    for architecture in served:
        code = compile_for(file, bits, architecture)
        assert code[:4] == b"\x7fELF"
        for kernel in sources.kernels().values():
            assert kernel.file != file or kernel.name.encode() in code


@pytest.mark.parametrize("bits", [16, 32])
def test_memory_is_accessed_in_16_bytes_and_no_element_costs_a_division(compile_for, bits):
    newer = 999  # than the compiler, which then gives text
    for file in sorted({kernel.file for kernel in sources.kernels().values()}):
        text = compile_for(file, bits, newer).decode()
        for name, body in re.findall(r"\.entry (\w+)\((.*?)\n}\n", text, re.DOTALL):
            assert "st.global.v4" in body, name
            assert "ld.global.v4" in body or file == "max_pool.cu", name
            # Dropout's is one for eight elements: which random state serves the first.
            divisions = re.findall(r"\b(?:div|rem)\.[su]\d+", body)
            assert len(divisions) == (name == "dropout_forward"), name


@pytest.fixture
def wrong_kernel(tmp_path, monkeypatch):
    """Changes a line of a kernel that devices of this test compile."""
    def change(file, line, instead):
        folder = tmp_path / "cuda"
        shutil.copytree(str(sources.source_folder()), str(folder))
        text = (folder / file).read_text()
        assert line in text
        (folder / file).write_text(text.replace(line, instead))
        monkeypatch.setattr(emulated, "source_folder", lambda: folder)
    return change


@needs_compilers
def test_every_kernel_is_right_in_any_order_of_its_threads():
    """Threads between barriers, and blocks, run first to last and last to first: no race."""
    launches, wrong = check.check([Emulated(), Emulated(backwards=True)],
                                  cases.all_cases((1, 33, 2049)))
    assert launches > 1000 and not wrong, wrong[:5]


@needs_compilers
@pytest.mark.parametrize("seed", [1, 2])
def test_every_kernel_is_right_for_random_shapes(seed):
    _, wrong = check.check([Emulated()], cases.all_cases(
        cases.random_counts(3, seed), poolings=cases.random_poolings(8, seed)))
    assert not wrong, wrong[:5]


@pytest.mark.gpu
def test_every_kernel_is_right_on_a_device():
    assert command.main(["--check"]) == command.OK


@needs_compilers
@pytest.mark.parametrize("file, line, instead, words", [
    ("activations.cu", "*value <= Value(0)", "*value < Value(0)", "relu_forward float32"),
    ("activations.cu", "mask[first / kElements] = (Byte)(bits & 255u >> (kElements - inside))",
     "mask[first / kElements] = (Byte)(bits | 128)", "mask is wrong"),
    ("activations.cu", "put_values(dx + first, inside,", "put_values(dx + first, 8,",
     "memory around dx was written"),
    ("dropout.cu", "own[threadIdx.x].used = stream.used", "own[threadIdx.x].used = 0",
     "states is wrong"),
    ("dropout.cu", "  __syncthreads();\n", "", "differs from the first run's"),
    ("max_pool.cu", "s.output[axis] - 1)", "s.output[axis] - 2)", "dx is wrong")])
def test_a_wrong_kernel_is_found(wrong_kernel, file, line, instead, words):
    wrong_kernel(file, line, instead)
    _, wrong = check.check([Emulated(), Emulated(backwards=True)],
                           cases.all_cases((33, 4097), ["float32"]))
    assert any(words in text for text in wrong), wrong[:5]


def test_a_launch_that_fails_is_named():
    class Broken(Emulated):
        def _launch(self, *arguments):
            raise PluginError("cuCtxSynchronize: CUDA driver error 716")

    with pytest.raises(PluginError, match="relu_forward float32.*: CUDA driver error 716"):
        check.check([Broken()], cases.all_cases((33,), ["float32"]))


def test_arrays_that_lie_off_16_bytes_are_aligned_for_the_kernel():
    """A CPU reads a number from any address; a device ends the launch."""
    for together in cases.all_cases((33,), poolings=cases.POOLINGS):
        for case in together:
            signature = re.search(r"void %s\(([^)]*)\)" % case.kernel, (
                sources.source_folder() / sources.kernels()[case.kernel].file).read_text()).group(1)
            for kind, name in re.findall(r"(\w+)\* (\w+)", signature):
                value = case.arguments[name]
                data = value.before if isinstance(value, cases.Out) else value
                if isinstance(data, np.ndarray):
                    words = name == "kept" and case.arguments["s"].words
                    size = {"Byte": 4 if words else 1, "State": 8}.get(
                        kind, sources.BITS[case.dtype] // 8)
                    assert data.itemsize % size == 0, (case.kernel, name)


def test_philox_known_answers():
    """The vectors that come with the authors' library."""
    ones = np.full((2, 4), 0xFFFFFFFF, "u4")
    ones[0] = 0
    assert cases.philox(ones, ones[:, :2]).tolist() == [
        [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8],
        [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]]


def test_division_by_multiplication():
    random = np.random.RandomState(0)
    numbers = np.concatenate([random.randint(0, 2**31, 1000), [0, 1, 2**31 - 1]]).tolist()
    for by in (1, 2, 3, 7, 8, 49, 641, 65537, 2**30, 2**31 - 1):
        d = sources.divider(by)
        for n in (*numbers, by - 1, by, by + 1):
            assert by == 1 or (n * d.factor >> 32) >> d.shift == n // by or n >= 2**31


# ---------------------------------------------------------------------- the command
def run(*arguments, **variables):
    """The command in a process that has NumPy alone."""
    done = subprocess.run([sys.executable, "-m", "benchmarks.kernels", *arguments],
                          cwd=str(Path(__file__).resolve().parents[2]),
                          env={**os.environ, **variables}, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, universal_newlines=True)
    return done.returncode, done.stdout


@needs_compilers
def test_on_a_pretended_gpu_all_is_written(driver_folder, tmp_path):
    """The driver runs the kernels on the CPU; each takes a millisecond."""
    code, text = run("--check", "--time", "--small", "--runs", "1", "--markdown",
                     str(tmp_path / "r.md"), **pretend.environment(driver_folder))
    assert code == command.OK, text
    report = (tmp_path / "r.md").read_text()
    assert "\n\nPretended GPU (sm_90), driver for CUDA 11.8, NVRTC 11.8" in report
    assert int(re.search(r"(\d+) launches checked: all right", report).group(1)) > 500
    names = {line.split()[1] for line in report.splitlines() if line.startswith("| ")}
    assert names == {"kernel", "copy", *sources.kernels()}
    assert re.search(r"^\| relu_forward \| \d+ % \| \d+ % \|", report, re.M), report


@needs_compilers
def test_a_device_too_old_for_the_compiler_is_told(driver_folder):
    code, text = run("--check", **pretend.environment(driver_folder, PRETEND_CAPABILITY="35"))
    assert code == command.WRONG
    assert "libnvrtc.so.11.2 does not compile for this device, sm_35" in text


def test_libraries_in_the_folder_of_another_user_are_not_loaded(monkeypatch, tmp_path):
    monkeypatch.setattr(emulate, "CACHE", tmp_path)
    monkeypatch.setattr(os, "getuid", lambda: tmp_path.stat().st_uid + 1)
    with pytest.raises(PluginError, match="belongs to another user"):
        device, kernel = Emulated(), sources.kernels()["relu_forward"]
        device.launch(kernel, 32, 1, [0] * len(kernel.parameters))


def test_exit_codes(monkeypatch, capsys):
    assert command.main([]) == command.NO_DEVICE or shutil.which("nvidia-smi")
    assert [timing.Row("relu_forward", "float32", 64 << 20, 128 << 20, 1.0, float(of << 20)).slow
            for of in (160, 140)] == [True, False]
    monkeypatch.setattr(command, "Gpu", Emulated)
    for wrong, code in ((["relu_forward: y is wrong"], command.WRONG), ([], command.OK)):
        monkeypatch.setattr(command, "check", lambda *_, wrong=wrong: (1, wrong))
        assert command.main(["--small"]) == code
        assert ("relu_forward: y is wrong" in capsys.readouterr().out) == bool(wrong)


@needs_compilers
def test_arguments_lie_as_the_compiler_lays_them(tmp_path):
    """Structs that are read from ``layout.cuh``, however it is formatted."""
    fields = [(name, field) for name, struct in sources.structs().items()
              for field, _ in struct._fields_]
    program = tmp_path / "layout.cc"
    lines = ["#include <cstddef>", "#include <cstdio>", '#include "layout.cuh"', "int main() {"]
    lines += ['  std::printf("%%zu\\n", offsetof(%s, %s));' % names for names in fields]
    program.write_text("\n".join([*lines, "}\n"]))
    subprocess.run(["g++", "-I", str(sources.source_folder()), str(program), "-o",
                    str(tmp_path / "layout")], check=True)
    printed = subprocess.run([str(tmp_path / "layout")], stdout=subprocess.PIPE, check=True,
                             universal_newlines=True).stdout
    assert [getattr(sources.structs()[name], field).offset for name, field in fields] \
        == [int(line) for line in printed.split()]
    assert len(fields) > 10 and sources.constants()["kThreads"] == 256
