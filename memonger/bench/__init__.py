"""The benchmark tables."""
from __future__ import annotations

from ..zoo import nets

__all__ = ["nets"]
