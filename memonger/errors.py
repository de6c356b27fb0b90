"""The errors' public face: ``memonger.errors.MemongerError`` and the tree below it."""
from __future__ import annotations

from .util.errors import *  # noqa: F403
from .util.errors import __all__ as __all__
