"""Gluon's public face: ``memonger.gluon.plan(block, ...)``."""
from __future__ import annotations

from .api.gluon import plan

__all__ = ["plan"]
