"""The only folder that imports MXNet: reading, applying, checking and measuring symbols."""
from __future__ import annotations

from typing import Any


def symbol_from_json(text: str) -> Any:
    """A ``mx.sym.Symbol`` from its JSON; see :func:`memonger.mx.load.symbol_from_json`."""
    from .load import symbol_from_json
    return symbol_from_json(text)
