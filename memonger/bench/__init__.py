"""The tables that our claims rest on."""
from __future__ import annotations

from ..zoo import nets

__all__ = ["nets"]
