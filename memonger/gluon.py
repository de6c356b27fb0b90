"""Gluon's public face: ``memonger.gluon.plan(block, ...)`` and ``strip(block)``."""
from __future__ import annotations

from .mx.calls.gluon import plan, strip

__all__ = ["plan", "strip"]
