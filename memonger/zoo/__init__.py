"""Networks to try things on (:mod:`memonger.zoo.nets`) and plans that are ready for them."""
from __future__ import annotations

from .ready_plans import load, names

__all__ = ["load", "names"]
