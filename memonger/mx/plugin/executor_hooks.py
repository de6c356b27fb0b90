"""Hooks that give executors of planned symbols their arena.

``Symbol.bind``, ``simple_bind``, ``Executor.reshape`` and so ``Module`` create executors through a
few functions of MXNet's C interface. This module wraps these functions once in a process, in the
loaded library object. Executors of other symbols are created as before.
"""
from __future__ import annotations

import contextlib
import ctypes
from typing import Any, Callable

from ...util.errors import BindError
from . import fusion, inlining

#: Functions that end with (..., executor to share memory with, where the new one goes).
_MAKERS = ("MXExecutorBindEX", "MXExecutorSimpleBindEx", "MXExecutorSimpleBindEx64",
           "MXExecutorReshapeEx")


def watch(plugin: Any, recomputes: Callable[[], bool], active: Callable[[], bool]) -> None:
    """Wrap MXNet's makers of executors; once in a process.

    ``plugin``: the loaded plugin.
    ``recomputes``: whether exact recomputation is switched on at the moment.
    ``active``: whether arenas are switched on at the moment.
    """
    from mxnet.base import _LIB
    from mxnet.runtime import Features
    if Features().is_enabled("CUDA"):
        fusion.watch_cached_ops(_LIB)
    inlining.watch_cached_ops(_LIB)
    for name in _MAKERS:
        setattr(_LIB, name, wrapped(getattr(_LIB, name), _LIB.MXExecutorFree, plugin,
                                    recomputes, active))


def wrapped(original: Any, free: Any, plugin: Any, recomputes: Callable[[], bool],
             active: Callable[[], bool]) -> Any:
    def make(*arguments: Any) -> int:
        unfused = recomputes() and fusion.unwanted(original.__name__, arguments)
        with fusion.off() if unfused else contextlib.nullcontext():
            failed = place(*arguments)
        fusion.remember(arguments[-1]._obj, unfused)
        return failed

    def place(*arguments: Any) -> int:
        if not active():
            return int(original(*arguments))
        made = arguments[-1]._obj  # behind ctypes.byref
        message = ctypes.create_string_buffer(2048)
        failed = 1
        plugin.memonger_bind_begin()
        try:
            failed = int(original(*arguments))
        finally:
            refused = plugin.memonger_bind_end(None if failed else made, _handle(arguments[-2]),
                                               message, ctypes.c_size_t(len(message)))
        if refused:
            free(made)
            raise BindError("the executor's memory could not be laid out: %s"
                            % message.value.decode(errors="replace"))
        return failed

    make.__name__ = original.__name__
    return make


def _handle(value: Any) -> Any:
    """An executor's handle, however MXNet passes it; None for none."""
    return value if isinstance(value, ctypes.c_void_p) and value.value else None
