"""Switches off MXNet's fusion of point-wise ops on a GPU, which runs after the gradient pass.

Fusion merges ops of the network into others that no plan knows, and may lengthen the lives of their
inputs. So memonger reads networks and runs planned symbols without it, unless
``MXNET_USE_FUSION`` is set in the environment: then the user has decided, and the pool of a planned
symbol may differ from the prediction. Symbols that MXNet fails to fuse run without fusion, too.
"""
from __future__ import annotations

import contextlib
import ctypes
import json
import os
from typing import Any, Iterator, Set

from ...util.environment import variable

_VARIABLE = "MXNET_USE_FUSION"  # MXNet reads it at every bind
_GPU = 2
#: CachedOps that run without fusion.
_unfused_ops: Set[int] = set()
#: Executors bound without fusion: what is reshaped from them is, too.
_unfused: Set[int] = set()


@contextlib.contextmanager
def off() -> Iterator[None]:
    """Symbols that are bound inside the block are not fused."""
    with variable(_VARIABLE, "0"):
        yield


def unwanted(name: str, arguments: Any) -> bool:
    """Whether a C function that creates an executor must run without fusion.

    ``name``: name of the function in MXNet's C interface.
    ``arguments``: arguments of the call.
    """
    if _VARIABLE in os.environ:
        return False
    if name.startswith("MXExecutorReshape"):
        return _number(arguments[-2]) in _unfused
    return _number(arguments[1]) == _GPU and _is_unfused(arguments[0])


def remember(executor: Any, unfused: bool) -> None:
    """Note how an executor was bound; a freed one may have had the same handle."""
    (_unfused.add if unfused else _unfused.discard)(_number(executor))


def watch_cached_ops(library: Any) -> None:
    """Run planned Gluon blocks without fusion, too; call once in a process.

    A CachedOp fuses ops when it first runs on a device.
    """
    create, invoke = library.MXCreateCachedOpEx, library.MXInvokeCachedOpEx

    def created(*arguments: Any) -> int:
        failed = int(create(*arguments))
        made = _number(arguments[-1]._obj)  # behind ctypes.byref
        _unfused_ops.discard(made)
        if not failed and _is_unfused(arguments[0]):
            _unfused_ops.add(made)
        return failed

    def invoked(*arguments: Any) -> int:
        if _number(arguments[0]) not in _unfused_ops or _VARIABLE in os.environ:
            return int(invoke(*arguments))
        with off():
            return int(invoke(*arguments))

    library.MXCreateCachedOpEx, library.MXInvokeCachedOpEx = created, invoked


def _number(value: Any) -> int:
    number = getattr(value, "value", value)
    return int(number or 0)


def _is_unfused(symbol: Any) -> bool:
    from mxnet.base import _LIB, check_call
    text = ctypes.c_char_p()
    check_call(_LIB.MXSymbolSaveToJSON(symbol, ctypes.byref(text)))
    value = text.value or b""
    return b'"__memonger_' in value or fails_fused(value)


def fails_fused(symbol_json: bytes) -> bool:
    """Whether MXNet's fusion would end in an error.

    It looks for ``act_type`` of LeakyReLU in the attributes, where a default does not stand.
    """
    return b'"LeakyReLU"' in symbol_json and any(
        node["op"] == "LeakyReLU" and "act_type" not in node.get("attrs", {})
        for node in json.loads(symbol_json)["nodes"])
