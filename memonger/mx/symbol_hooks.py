"""Loads the plugin when MXNet reads a planned symbol, so that users need not call memonger.

MXNet reads symbols from files and from JSON by two functions of its C interface. This module wraps
them in the library object of this process once MXNet is imported; other symbols are read as before.
"""
from __future__ import annotations

import re
import sys
import warnings
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from typing import Any, Callable

#: Names in the JSON of a symbol that stock MXNet cannot read, or would train without its plan.
_MARKS = re.compile(rb'"(memonger_\w+|__memonger_(recompute|storage)__)"')


def watch_symbols() -> None:
    """Wrap MXNet's readers of symbols, now or as soon as MXNet is imported."""
    if "mxnet" in sys.modules:
        _wrap_readers()
    else:
        # Not in front: the finder of memonger_mxnet.pth, which may be asking, comes before.
        place = sys.meta_path.index(PathFinder) if PathFinder in sys.meta_path else 0
        sys.meta_path.insert(place, _AtImport())


class _AtImport(MetaPathFinder):
    """Finds MXNet as the other finders do, and wraps its readers after the import."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> "ModuleSpec | None":
        if name != "mxnet":
            return None
        found = (finder.find_spec(name, path, target) for finder in sys.meta_path
                 if finder is not self and hasattr(finder, "find_spec"))
        spec = next(filter(None, found), None)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def execute_and_wrap(module: Any) -> None:
                execute(module)
                _wrap_readers()

            spec.loader.exec_module = execute_and_wrap  # type: ignore[method-assign]
        return spec


def _wrap_readers() -> None:
    library = getattr(sys.modules.get("mxnet.base"), "_LIB", None)
    if library is None:
        return
    for name, text_of in (("MXSymbolCreateFromFile", _content), ("MXSymbolCreateFromJSON", bytes)):
        setattr(library, name, _wrapped(getattr(library, name), text_of))


def _wrapped(original: Any, text_of: Callable[[bytes], bytes]) -> Any:
    def read(source: Any, made: Any) -> int:
        if _MARKS.search(text_of(getattr(source, "value", source))):
            _load_plugin()
        return int(original(source, made))

    read.__name__ = original.__name__
    return read


def _content(path: bytes) -> bytes:
    """The file's content; nothing where MXNet must say what is wrong with the path."""
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return b""


def _load_plugin() -> None:
    from ..util.errors import MemongerError
    from . import plugin
    try:
        plugin.load()
    except MemongerError as error:
        warnings.warn("this symbol carries a plan of memonger, which needs its plugin: %s" % error,
                      RuntimeWarning, stacklevel=4)
