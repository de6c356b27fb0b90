"""Metadata and the native build.

The two libraries under ``plugins/`` are no Python extension modules: they are loaded through
ctypes and do not know Python, so one wheel ``py3-none-<platform>`` serves every Python.
``plugins/build.py`` compiles them and raises when a compiler or MXNet's headers are missing: a
package without its plugin is never installed silently.
"""
from __future__ import annotations

import importlib.util
import re
from pathlib import Path

from setuptools import Extension, find_packages, setup
from setuptools.command.build_ext import build_ext

try:
    from setuptools.command.bdist_wheel import bdist_wheel
except ImportError:  # setuptools < 70.1 leaves the command to the wheel package
    from wheel.bdist_wheel import bdist_wheel

ROOT = Path(__file__).resolve().parent
LIBRARIES = ("libmemonger_core.so", "libmemonger_mxnet.so")


def read_version() -> str:
    """The version stands in ``memonger/util/version.py`` and nowhere else."""
    text = (ROOT / "memonger" / "util" / "version.py").read_text(encoding="utf-8")
    return re.search(r'^__version__ = "([^"]+)"', text, re.MULTILINE).group(1)


def load_builder():
    """``plugins/build.py`` as a module; ``plugins`` is no package."""
    spec = importlib.util.spec_from_file_location("memonger_build", ROOT / "plugins" / "build.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class BuildNative(build_ext):
    """Compile both libraries into ``memonger/_native``."""

    def native_folder(self) -> Path:
        if self.inplace or getattr(self, "editable_mode", False):
            return ROOT / "memonger" / "_native"
        return Path(self.build_lib).resolve() / "memonger" / "_native"

    def run(self) -> None:
        folder = self.native_folder()
        folder.mkdir(parents=True, exist_ok=True)
        builder = load_builder()
        try:
            builder.build(folder)
        except builder.BuildError as error:
            raise SystemExit("error: memonger's native libraries cannot be built: %s" % error)
        missing = [name for name in LIBRARIES if not (folder / name).is_file()]
        if missing:
            raise SystemExit("error: plugins/build.py left no %s in %s"
                             % (" and no ".join(missing), folder))

    def get_outputs(self) -> list:
        kernels = ["cuda/" + path.name for path in load_builder().kernel_sources()]
        return [str(self.native_folder() / name) for name in (*LIBRARIES, *kernels)]

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
    name="memonger",
    version=read_version(),
    description="Plans the training memory of MXNet 1.9.1 networks: same gradients, less memory",
    long_description=(ROOT / "README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    packages=find_packages(include=["memonger", "memonger.*"]),
    package_data={"memonger": ["py.typed", "**/*.html", "**/*.js", "**/*.css", "**/*.json"]},
    ext_modules=[Extension("memonger._native.libraries", sources=[])],
    cmdclass={"build_ext": BuildNative, "bdist_wheel": PlatformWheel},
    python_requires=">=3.8",
    install_requires=["numpy>=1.17,<1.24", "highspy>=1.10,<1.15"],
    extras_require={
        # MXNet is one of two distributions of the same package; requiring either here would lay
        # it over the other.
        "cpu": ["mxnet>=1.9.1,<1.10"],
        "cu112": ["mxnet-cu112>=1.9.1,<1.10"],
        "plot": ["matplotlib>=3.5"],
        "graph": ["pygraphviz>=2.0; python_version>='3.10'"],
        "test": ["pytest>=8", "hypothesis>=6.100", "pytest-xdist", "pytest-cov",
                 "import-linter>=2", "scikit-learn", "matplotlib>=3.5"],
        "bench": ["pytest-benchmark", "psutil"],
        "dev": ["ruff==0.17.6", "mypy==1.14.1", "clang-format", "pre-commit"],
    },
    entry_points={"console_scripts": ["memonger=memonger.cli:main"]},
    classifiers=[
        "Operating System :: POSIX :: Linux",
        "Programming Language :: Python :: 3",
        "Programming Language :: C++",
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
    ],
)
