"""Build the two native libraries.

``libmemonger_core.so`` (plugins/core) is plain C++14 and knows nothing of MXNet.
``libmemonger_mxnet.so`` (plugins/mxnet, plugins/ops, plugins/core/memory and plugins/core/gpu) is
compiled against the headers inside the installed MXNet 1.9.1 wheel and linked to its
``libmxnet.so``; the CPU and the CUDA wheel have the same headers and take the same binary. The
sources of the GPU kernels are laid beside them; they are compiled when a GPU first needs them.

    python plugins/build.py [--out FOLDER] [--core] [--sanitize]

Objects are cached by the hash of everything that enters them; ``CXX`` chooses the compiler.
"""
from __future__ import annotations

import argparse
import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Dict, Iterable, List, NamedTuple, Optional, Sequence, Tuple

ROOT = Path(__file__).resolve().parent
#: Files of ours include each other by their path from here; the compiler runs in its parent, so
#: that neither objects nor messages depend on where the sources lie.
INCLUDE = ["-iquote", ROOT.name]
NATIVE = ROOT.parent / "memonger" / "_native"
CORE, PLUGIN = "libmemonger_core.so", "libmemonger_mxnet.so"

#: Without errno square roots become SIMD; nobody reads errno behind a root.
COMMON = ["-std=c++14", "-fPIC", "-fvisibility=hidden", "-Wall", "-fno-math-errno"]
#: Selections become SIMD where comparisons may not trap. Products and sums that are not fused give
#: the same bits on every processor.
OPERATORS = ["-fno-trapping-math", "-ffp-contract=off"]
#: The macros with which the wheel was compiled, as far as they change layouts.
MXNET = ["-D_GLIBCXX_USE_CXX11_ABI=0",
         "-Wno-unknown-pragmas",
         "-DMSHADOW_STAND_ALONE=1", "-DMSHADOW_USE_CUDA=0", "-DMSHADOW_USE_CBLAS=0",
         "-DMSHADOW_USE_MKL=0", "-DMSHADOW_USE_SSE=0", "-DMSHADOW_USE_F16C=0",
         "-DMSHADOW_INT64_TENSOR_SIZE=0", "-DMXNET_USE_CUDA=0", "-DMXNET_USE_CUDNN=0",
         "-DMXNET_USE_MKLDNN=1", "-DDMLC_LOG_FATAL_THROW=1", "-DDMLC_LOG_STACK_TRACE_SIZE=1",
         "-DDMLC_MODERN_THREAD_LOCAL=0"]
#: The shim that restores the libstdc++ ABI of GCC 4.8 (plugins/README.md), before all others.
SHIM = ROOT / "mxnet" / "abi_gcc48.h"
#: The shim and MXNet's headers, read once for all sources where many are to be compiled.
HEADERS = ROOT / "mxnet" / "headers.h"
#: From this many sources on, reading the headers once pays.
MANY = 6
#: Compilers with which the plugin was built and tested; older ones lack C++14, newer ones may have
#: a C++ library that the shim does not fit.
TESTED = "g++ 11 and 12, clang++ 14"
OLDEST = {"g++": 7, "clang++": 6}
#: Ends each library, then the SHA-256 of all before it: memonger/mx/plugin/loading.py checks it.
SEAL = b"memonger sha256 "
#: The last two: newer versions complain about MXNet's headers.
GCC_ONLY = ["-fabi-version=2", "-fno-gnu-unique", "-Wno-maybe-uninitialized",
            "-Wno-uninitialized"]
#: Undefined behaviour ends the process: its report goes to standard error, where tests may hide it.
SANITIZE = ["-fsanitize=address,undefined", "-fno-sanitize-recover=undefined",
            "-fno-omit-frame-pointer", "-g", "-O1"]


class BuildError(Exception):
    """The libraries cannot be built; the message says what to install."""


class Library(NamedTuple):
    name: str
    sources: Sequence[Path]
    compile_flags: Sequence[str]
    link_flags: Sequence[str]
    has_mxnet: bool


def find_mxnet() -> Path:
    """Folder of the installed ``mxnet`` package, found without importing it.

    pip builds with an environment of its own; there the packages of the interpreter, into which
    memonger is to be installed, are looked through as well.

    Raises
    ------
    BuildError
        If there is none, it has no headers, or it is not 1.9.1.
    """
    found = importlib.util.find_spec("mxnet")
    origin = found.origin if found is not None else None
    folder = Path(origin).parent if origin else Path(sysconfig.get_path("platlib")) / "mxnet"
    if not origin and not folder.is_dir():
        raise BuildError("the plugin is compiled against the headers inside MXNet's wheel, and no "
                         "MXNet is installed here: pip install mxnet==1.9.1 (or mxnet-cu112)")
    if not (folder / "include" / "nnvm" / "graph.h").exists() or \
            not (folder / "libmxnet.so").exists():
        raise BuildError("%s has no include/nnvm or no libmxnet.so; the plugin needs the wheel of "
                         "MXNet 1.9.1 for Linux" % folder)
    version = re.search(r"__version__ = ['\"]([^'\"]+)", (folder / "libinfo.py").read_text())
    if version is None or version.group(1) != "1.9.1":
        raise BuildError("the plugin is made for MXNet 1.9.1, and %s is %s"
                         % (folder, version.group(1) if version else "of unknown version"))
    return folder


def find_compiler() -> str:
    """``CXX``, else g++, else clang++."""
    for name in filter(None, [os.environ.get("CXX"), "g++", "clang++"]):
        if shutil.which(name.split()[0]):
            return name
        if name == os.environ.get("CXX"):
            raise BuildError("CXX=%s is not on the PATH" % name)
    raise BuildError("no C++ compiler; on Debian: apt install g++")


class Compiler(NamedTuple):
    command: Sequence[str]
    family: str  # "g++" or "clang++"
    version: str

    def __str__(self) -> str:
        return "%s (%s %s)" % (" ".join(self.command), self.family, self.version)


def examine_compiler() -> Compiler:
    """The compiler with its version, as it says itself.

    Raises
    ------
    BuildError
        If there is none, it does not run, or it is too old.
    """
    command = find_compiler().split()
    macros = subprocess.run([*command, "-x", "c++", "-dM", "-E", os.devnull],
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                            universal_newlines=True)
    if macros.returncode != 0:
        raise BuildError("%s does not work: %s" % (" ".join(command), macros.stdout.strip()))
    known = dict(re.findall(r"^#define (\w+) (.*)$", macros.stdout, re.MULTILINE))
    family, major, minor = ("clang++", "__clang_major__", "__clang_minor__") \
        if "__clang__" in known else ("g++", "__GNUC__", "__GNUC_MINOR__")
    version = "%s.%s" % (known.get(major, 0), known.get(minor, 0))
    compiler = Compiler(command, family, version)
    if int(version.split(".")[0]) < OLDEST[family]:
        raise BuildError("%s is too old for C++14; the plugin was tested with %s: set CXX to one "
                         "of them" % (compiler, TESTED))
    return compiler


def openmp(compiler: Compiler) -> List[str]:
    """Flags for operators on several threads; none where clang++ has no OpenMP runtime."""
    if compiler.family == "g++":
        return ["-fopenmp"]
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "empty.cc"
        source.write_text("int nothing;\n")
        found = subprocess.run([*compiler.command, "-fopenmp", "-fPIC", "-shared", str(source),
                                "-o", str(source) + ".so"], stdout=subprocess.DEVNULL,
                               stderr=subprocess.DEVNULL).returncode == 0
    if not found:
        sys.stderr.write("note: %s has no OpenMP runtime, so memonger's own operators will run on "
                         "one thread; on Debian: apt install libomp-dev, or use g++\n"
                         % str(compiler))
    return ["-fopenmp"] * found


def core_library() -> Library:
    """The library that needs no MXNet."""
    return Library(CORE, _sources("core"), COMMON + ["-O3"], ["-ldl", "-Wl,--no-undefined"], False)


def plugin_library(mxnet: Path, compiler: Compiler) -> Library:
    """The library that goes into MXNet."""
    threads = openmp(compiler)
    include = ["-isystem", str(mxnet / "include"), "-isystem", str(mxnet / "include" / "mkldnn")]
    version_script = "-Wl,--version-script=" + str(ROOT / "mxnet" / "exports.map")
    return Library(
        PLUGIN, _sources("mxnet", "ops", "core/memory", "core/gpu"), COMMON + ["-O3"] + OPERATORS
        + threads
        + (GCC_ONLY if compiler.family == "g++" else []) + MXNET + include,
        [*threads, "-L" + str(mxnet), "-l:libmxnet.so", version_script, "-Wl,-z,now",
         "-Wl,-z,nodelete", "-Wl,--no-undefined", "-Wl,--as-needed"], True)


def _sources(*folders: str) -> List[Path]:
    return sorted(path for folder in folders for path in (ROOT / folder).rglob("*.cc"))


def _included_bytes(source: Path) -> bytes:
    """The source and every header of ours that it includes, directly or not."""
    seen: Dict[Path, bytes] = {}
    waiting = [source]
    while waiting:
        path = waiting.pop()
        if path not in seen and path.exists():
            seen[path] = path.read_bytes()
            names = re.findall(rb'^#include "([^"]+)"', seen[path], re.MULTILINE)
            waiting += [folder / name.decode() for name in names for folder in (ROOT, path.parent)]
    return b"".join(seen[path] for path in sorted(seen))


def seal(library: Path) -> None:
    digest = hashlib.sha256(library.read_bytes()).hexdigest()
    with library.open("ab") as file:
        file.write(SEAL + digest.encode())


def _run(command: Sequence[str], what: str) -> None:
    done = subprocess.run(list(command), stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          universal_newlines=True, cwd=str(ROOT.parent))
    if done.returncode != 0:
        raise BuildError("%s failed:\n%s\n%s" % (what, " ".join(command), done.stdout))
    if done.stdout.strip():
        sys.stderr.write(done.stdout)


def build(out: Optional[Path] = None, cache: Optional[Path] = None, sanitize: bool = False,
          jobs: int = 0, names: Sequence[str] = (CORE, PLUGIN)) -> List[Path]:
    """Compile and link what is not up to date.

    Parameters
    ----------
    out : Path, optional
        Where the libraries go; default ``MEMONGER_NATIVE_DIR``, else ``memonger/_native``.
    cache : Path, optional
        Where objects are kept; default ``build/native`` beside ``plugins``.
    names : sequence of str
        Which libraries; ``CORE`` alone needs no MXNet.

    Returns
    -------
    list of Path
        The libraries.

    Raises
    ------
    BuildError
        If compiler or headers are missing, or the compiler fails.
    """
    try:
        return _build(out, cache, sanitize, jobs, names)
    except OSError as error:  # no room, no permission, no such file system
        raise BuildError("cannot write the libraries: %s" % error) from error


def _build(out: Optional[Path], cache: Optional[Path], sanitize: bool, jobs: int,
           names: Sequence[str]) -> List[Path]:
    out = Path(out or os.environ.get("MEMONGER_NATIVE_DIR") or NATIVE).absolute()
    cache = Path(cache or ROOT.parent / "build" / "native").absolute()
    compiler = examine_compiler()
    mxnet = find_mxnet() if PLUGIN in names else None
    out.mkdir(parents=True, exist_ok=True)
    cache.mkdir(parents=True, exist_ok=True)
    extra = SANITIZE if sanitize else []
    wanted = [core_library()] * (CORE in names)
    if mxnet is not None:
        wanted.append(plugin_library(mxnet, compiler))
    seed = " ".join([str(compiler), *extra]).encode() + _included_bytes(SHIM)
    objects = {library.name: _objects(library, cache, seed) for library in wanted}
    with _work_folder(cache) as folder, \
            ThreadPoolExecutor(jobs or os.cpu_count() or 1) as pool:
        compilation = _Compilation(compiler, extra, Path(folder), pool)
        for library in wanted:  # read while the library without them is compiled
            compilation.read_headers(library, objects[library.name])
        try:
            for future in [compilation.start(library, source, target) for library in wanted
                           for source, target in _missing(objects[library.name])]:
                future.result()
        finally:  # after an error
            compilation.stop()
    for library in wanted:
        _link(library, objects[library.name].values(), compiler, extra, out)
    if mxnet is not None:
        _copy_kernels(out / "cuda")
    return [out / library.name for library in wanted]


def _work_folder(where: Path) -> "tempfile.TemporaryDirectory[str]":
    """A folder named by this process; those of processes that are no more are removed."""
    for folder in where.glob("tmp*"):
        process = folder.name[3:].split("-")[0]
        if not (process.isdigit() and Path("/proc", process).exists()):
            shutil.rmtree(str(folder), ignore_errors=True)
    return tempfile.TemporaryDirectory(prefix="tmp%d-" % os.getpid(), dir=str(where))


def _objects(library: Library, cache: Path, seed: bytes) -> Dict[Path, Path]:
    """The object file of each source, named by the hash of all that enters it."""
    objects = {}
    for source in library.sources:
        flags = " ".join([*library.compile_flags, source.name])
        key = hashlib.sha256(seed + flags.encode() + _included_bytes(source)).hexdigest()[:20]
        objects[source] = cache / ("%s-%s.o" % (source.stem, key))
    return objects


def _missing(objects: Dict[Path, Path]) -> List[Tuple[Path, Path]]:
    """Largest sources first, so that none is left to be compiled alone at the end."""
    return sorted(((source, target) for source, target in objects.items() if not target.exists()),
                  key=lambda pair: -pair[0].stat().st_size)


class _Compilation:
    """Compilers at work."""

    def __init__(self, compiler: Compiler, extra: Sequence[str], folder: Path,
                 pool: ThreadPoolExecutor) -> None:
        self._compiler, self._extra, self._folder, self._pool = compiler, extra, folder, pool
        self._headers: Optional[Future[Path]] = None
        self._running: List[Future[None]] = []

    def read_headers(self, library: Library, objects: Dict[Path, Path]) -> None:
        """Precompile MXNet's headers where enough sources are to be compiled with them."""
        if library.has_mxnet and len(_missing(objects)) >= MANY:
            self._headers = self._pool.submit(self._precompile, library.compile_flags)

    def start(self, library: Library, source: Path, target: Path) -> Future[None]:
        """Compile one source as soon as there is room."""
        self._running.append(self._pool.submit(self._compile, library, source, target))
        return self._running[-1]

    def stop(self) -> None:
        """Begin nothing more."""
        for future in self._running:
            future.cancel()

    def _precompile(self, flags: Sequence[str]) -> Path:
        """What to include before all others: MXNet's headers beside their precompiled form.

        The shim alone where that fails: each source then says what is wrong, if anything is.
        """
        header = self._folder / "headers.h"
        header.write_text('#include "%s"\n' % HEADERS)
        done = subprocess.run([*self._compiler.command, *flags, *INCLUDE, *self._extra,
                               "-x", "c++-header", str(header), "-o", str(header) + ".gch"],
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                              cwd=str(ROOT.parent))
        return header if done.returncode == 0 else SHIM

    def _compile(self, library: Library, source: Path, target: Path) -> None:
        include = []
        if library.has_mxnet:
            include = ["-include", str(self._headers.result() if self._headers else SHIM)]
        part = self._folder / target.name
        _run([*self._compiler.command, *library.compile_flags, *INCLUDE, *self._extra, *include,
              "-c", str(source.relative_to(ROOT.parent)), "-o", str(part)],
             "compiling %s with %s, where %s were tested (set CXX to choose)"
             % (source.name, self._compiler, TESTED))
        os.replace(str(part), str(target))


def _link(library: Library, objects: Iterable[Path], compiler: Compiler, extra: Sequence[str],
          out: Path) -> None:
    with _work_folder(out) as folder:
        part = Path(folder) / library.name
        _run([*compiler.command, "-shared", *extra, *map(str, objects), "-o", str(part),
              *library.link_flags], "linking %s" % library.name)
        seal(part)
        os.replace(str(part), str(out / library.name))


def _copy_kernels(target: Path) -> None:
    """GPU kernels are compiled where they run: their sources lie beside the plugin."""
    target.mkdir(exist_ok=True)
    sources = kernel_sources()
    for path in set(target.iterdir()) - {target / source.name for source in sources}:
        path.unlink()
    for source in sources:
        shutil.copyfile(str(source), str(target / source.name))


def kernel_sources() -> List[Path]:
    """The CUDA files that belong beside the libraries."""
    return sorted((ROOT / "ops" / "cuda").glob("*.cu*"))


def main(arguments: Optional[Sequence[str]] = None) -> int:
    parser = argparse.ArgumentParser(description="Build memonger's native libraries.")
    parser.add_argument("--out", type=Path, help="folder for the libraries")
    parser.add_argument("--core", action="store_true",
                        help="the library that needs no MXNet, alone")
    parser.add_argument("--sanitize", action="store_true",
                        help="with address and undefined-behaviour sanitizers")
    parser.add_argument("--jobs", type=int, default=0, help="compilers at a time")
    options = parser.parse_args(arguments)
    try:
        for path in build(options.out, sanitize=options.sanitize, jobs=options.jobs,
                          names=(CORE,) if options.core else (CORE, PLUGIN)):
            print(path)
    except BuildError as error:
        print("error: %s" % error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
