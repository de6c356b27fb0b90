"""Hybridized Gluon blocks: ``memonger.gluon.plan(block, ...)``, ``verify`` and ``strip``."""
from __future__ import annotations

from .blocks import plan, strip, verify

__all__ = ["plan", "strip", "verify"]
