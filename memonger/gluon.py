"""Gluon's public face: ``memonger.gluon.plan(block, ...)``, ``verify`` and ``strip``."""
from __future__ import annotations

from .mx.calls.gluon import plan, strip, verify

__all__ = ["plan", "strip", "verify"]
