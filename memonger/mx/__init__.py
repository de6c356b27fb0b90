"""The only folder that imports MXNet: reading, applying, checking and measuring symbols."""
from __future__ import annotations

from typing import Any


def symbol_from_json(text: str) -> Any:
    """A ``mx.sym.Symbol`` from its JSON, with the native plugin on where it can be loaded.

    Raises
    ------
    PluginError
        If the symbol holds operators of the plugin, and that cannot be loaded.
    """
    from .. import native
    from .environment import mxnet
    mx = mxnet()
    if '"op": "memonger_' in text or native.available():
        native.load()
    return mx.sym.load_json(text)
