"""The plugin's public face: ``memonger.native.load()`` and its switches."""
from __future__ import annotations

from .mx.plugin import (
    available,
    backend,
    capture,
    compile_kernels,
    disable,
    enable,
    gpu_compiler,
    load,
    status,
    storage_model,
    switched,
)
from .util.native_libraries import core, folder

__all__ = ["available", "capture", "compile_kernels", "core", "disable", "enable", "folder",
           "gpu_compiler", "load", "status", "storage_model", "switched", "backend"]
