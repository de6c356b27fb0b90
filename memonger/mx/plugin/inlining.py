"""Keeps MXNet from running planned Gluon blocks op by op.

A CachedOp of few ops (``hybridize(inline_limit=...)``) without static memory has autograd record
its ops one by one. It still shares memory by its own backward graph, in which clones read what ops
read, so the recorded gradients would read memory that is in use again.
"""
from __future__ import annotations

import ctypes
from typing import Any

_LIMIT = b"inline_limit"
#: Names of attributes that ask for clones, as they stand in a symbol's JSON.
_ASKS_FOR_CLONES = (b'"__memonger_recompute__"', b'"__force_mirroring__"')


def watch_cached_ops(library: Any) -> None:
    """Create CachedOps of symbols that ask for recomputation with ``inline_limit`` 0.

    ``library``: MXNet's loaded library; call once in a process.
    """
    create = library.MXCreateCachedOpEx

    def created(symbol: Any, count: int, keys: Any, values: Any, made: Any) -> int:
        if _asks_for_clones(library, symbol):
            flags = [(keys[i], values[i]) for i in range(count) if keys[i] != _LIMIT]
            flags.append((_LIMIT, b"0"))
            count = len(flags)
            keys, values = ((ctypes.c_char_p * count)(*texts) for texts in zip(*flags))
        return int(create(symbol, count, keys, values, made))

    library.MXCreateCachedOpEx = created


def _asks_for_clones(library: Any, symbol: Any) -> bool:
    text = ctypes.c_char_p()
    failed = library.MXSymbolSaveToJSON(symbol, ctypes.byref(text))
    return not failed and any(mark in (text.value or b"") for mark in _ASKS_FOR_CLONES)
