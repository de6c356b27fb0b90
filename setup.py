"""The native build.

The two libraries under ``plugins/`` are no Python extension modules: they are loaded through
ctypes and do not know Python, so one wheel ``py3-none-<platform>`` serves every Python.
``plugins/build.py`` compiles them. The plugin for MXNet is compiled against MXNet's headers: where
no MXNet is installed the package carries its sources alone, and memonger builds it when it is first
needed (``memonger/util/plugin_build.py``). The metadata is in pyproject.toml.
"""
from __future__ import annotations

import importlib.util
import shutil
import sys
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

try:
    from setuptools.command.bdist_wheel import bdist_wheel
except ImportError:  # setuptools < 70.1 leaves the command to the wheel package
    from wheel.bdist_wheel import bdist_wheel

ROOT = Path(__file__).resolve().parent
IN_PLACE = ROOT / "memonger" / "_native"


def load_builder():
    """``plugins/build.py`` as a module; ``plugins`` is no package."""
    spec = importlib.util.spec_from_file_location("memonger_build", ROOT / "plugins" / "build.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class BuildNative(build_ext):
    """Compile the libraries into ``memonger/_native``, with the sources beside them."""

    def native_folder(self) -> Path:
        if self.inplace or getattr(self, "editable_mode", False):
            return IN_PLACE
        return Path(self.build_lib).resolve() / "memonger" / "_native"

    def run(self) -> None:
        folder = self.native_folder()
        folder.mkdir(parents=True, exist_ok=True)
        builder = load_builder()
        names = [builder.CORE]
        try:
            builder.find_mxnet()
            names.append(builder.PLUGIN)
        except builder.BuildError as error:
            sys.stderr.write("note: the plugin for MXNet is built when it is first needed: %s\n"
                             % error)
        try:
            builder.build(folder, names=names)
        except builder.BuildError as error:
            raise SystemExit("error: memonger's native libraries cannot be built: %s" % error)
        if folder != IN_PLACE:
            shutil.rmtree(str(folder / "plugins"), ignore_errors=True)
            shutil.copytree(str(ROOT / "plugins"), str(folder / "plugins"),
                            ignore=shutil.ignore_patterns("__pycache__", "*.pyc", "README.md"))

    def get_outputs(self) -> list:
        return [str(path) for path in self.native_folder().rglob("*") if path.is_file()]

    def get_output_mapping(self) -> dict:
        return {}

    def get_source_files(self) -> list:
        return sorted(str(path.relative_to(ROOT)) for path in (ROOT / "plugins").rglob("*")
                      if path.is_file() and path.suffix != ".pyc")


class PlatformWheel(bdist_wheel):
    """Tag the wheel ``py3-none-<platform>``: any Python, this platform."""

    def finalize_options(self) -> None:
        super().finalize_options()
        self.root_is_pure = False

    def get_tag(self):
        return "py3", "none", super().get_tag()[2]


setup(
    license="Apache-2.0",
    ext_modules=[Extension("memonger._native.libraries", sources=[])],
    cmdclass={"build_ext": BuildNative, "bdist_wheel": PlatformWheel},
)
