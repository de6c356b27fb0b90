"""The plugin's public face: ``memonger.native.load()`` and its switches."""
from __future__ import annotations

from .mx.plugin.loading import (
    available,
    backend,
    capture,
    disable,
    enable,
    gpu_compiler,
    load,
    status,
    storage_model,
    switched,
)
from .util.native_libraries import core, folder

__all__ = ["available", "backend", "capture", "core", "disable", "enable", "folder",
           "gpu_compiler", "load", "status", "storage_model", "switched"]
