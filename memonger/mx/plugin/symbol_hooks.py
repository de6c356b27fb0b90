"""Loads the plugin when MXNet reads a planned symbol, where memonger is imported after MXNet.

MXNet reads symbols from files and from JSON by two functions of its C interface. This module wraps
them in the library object of this process; other symbols are read as before. Who imports MXNet
after memonger, and makes no plan, calls ``memonger.native.load()``.
"""
from __future__ import annotations

import re
import sys
import warnings
from typing import Any, Callable

#: Names in the JSON of a symbol that stock MXNet cannot read, or would train without its plan.
_MARKS = re.compile(rb'"(memonger_\w+|__memonger_(recompute|storage)__)"')


def watch_symbols() -> None:
    """Wrap the readers of an MXNet that is imported already; once in a process."""
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
    from ...util.errors import MemongerError
    from . import loading as plugin
    try:
        plugin.load()
    except MemongerError as error:
        warnings.warn("this symbol carries a plan of memonger, which needs its plugin: %s" % error,
                      RuntimeWarning, stacklevel=4)
