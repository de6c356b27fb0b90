"""CUDA kernel sources to shared libraries that run them on the CPU (see ``emulate.h``).

``python emulate.py SOURCE FOLDER_OF_HEADERS BITS TARGET`` is what the pretended NVRTC calls. The
library has a function ``launch_<kernel>(void** arguments, blocks, threads, shared_bytes)`` for each
kernel.
"""
from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import List

HERE = Path(__file__).resolve().parent
CACHE = Path(tempfile.gettempdir()) / ("memonger-emulated-%d" % os.getuid())
KERNEL = re.compile(r'extern "C" __global__ void (\w+)\(')


def kernels(source: str) -> List[str]:
    """Names of the kernels in a source."""
    return KERNEL.findall(source)


def compile_source(source: Path, headers: Path, bits: int, target: Path) -> None:
    """Write the library; raises RuntimeError with the compiler's words.

    Libraries are kept in a folder of the user's own; that of somebody else is refused.
    """
    text = source.read_text()
    launchers = "".join(
        'extern "C" void launch_%s(void** a, unsigned b, unsigned t, unsigned s) '
        "{ emulation::launch(%s, a, b, t, s); }\n" % (name, name) for name in kernels(text))
    header = HERE / "emulate.h"
    everything = text + launchers + header.read_text() + \
        "".join(path.read_text() for path in sorted(headers.glob("*.cuh"))) + str(bits)
    CACHE.mkdir(mode=0o700, parents=True, exist_ok=True)
    if CACHE.stat().st_uid != os.getuid():
        raise RuntimeError("%s belongs to another user" % CACHE)
    cached = CACHE / (hashlib.sha256(everything.encode()).hexdigest()[:24] + ".so")
    if not cached.exists():
        with tempfile.TemporaryDirectory(dir=str(CACHE)) as folder:
            unit, part = Path(folder) / "kernels.cc", Path(folder) / "kernels.so"
            unit.write_text('#include "%s"\n#line 1 "%s"\n%s\n%s'
                            % (header, source.name, text, launchers))
            done = subprocess.run(
                ["g++", "-std=c++14", "-O2", "-ffp-contract=off", "-shared", "-fPIC",
                 "-fvisibility-inlines-hidden", "-fno-strict-aliasing", "-Wall",
                 "-Wno-unknown-pragmas", "-DREAL_BITS=%d" % bits,
                 "-I", str(headers), str(unit), "-o", str(part)],
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, universal_newlines=True)
            if done.returncode != 0:
                raise RuntimeError(done.stdout)
            os.replace(str(part), str(cached))
    shutil.copyfile(str(cached), str(target))


if __name__ == "__main__":
    try:
        compile_source(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4]))
    except RuntimeError as error:
        sys.exit(str(error))
