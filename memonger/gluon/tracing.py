"""The graph of a hybridized Gluon block, as its own first call in training makes it."""
from __future__ import annotations

import contextlib
import inspect
import operator
import os
import traceback
from dataclasses import dataclass
from typing import Any, Dict, Iterator, List, Mapping, Sequence, Tuple

import numpy as np

from ..mx.plugin.environment import mxnet
from ..util import argument_checks as check
from ..util.errors import InputError

#: What a hybridized block keeps of its graph.
_CACHE = ("_cached_graph", "_cached_op", "_cached_op_args", "_in_format", "_out_format")


@dataclass(frozen=True)
class Trace:
    """What a block runs in training."""

    #: The variables of the inputs, and the arrays of the call for them.
    data: Tuple[Any, ...]
    arrays: Tuple[Any, ...]
    out: Any
    #: How arrays are nested in arguments and results, as Gluon writes it down.
    formats: Mapping[str, Any]

    def put(self, block: Any, out: Any) -> None:
        """Let a block run ``out`` in place of the graph that was traced."""
        if _is_traced_anew(block):
            block._cached_op_args = []
        for name, value in self.formats.items():
            setattr(block, name, value)
        block._cached_graph, block._cached_op = (list(self.data), out), None


class _Stopped(BaseException):
    """Ends a block's call where it would run its graph; no handler of the block's stops it."""


def trace(block: Any, arguments: Sequence[Any], keywords: Mapping[str, Any]) -> Trace:
    """Call a block in training up to where its graph runs; the block stays as it was.

    Gluon traces a block once, in its first call, and everything that ``hybrid_forward`` asks,
    ``autograd.is_training()`` say, is answered as of that call. What ``__call__`` and ``forward``
    do to the arguments before is done here, too.

    Parameters
    ----------
    block : mx.gluon.HybridBlock
    arguments, keywords
        Of the call, with arrays, which need not be in memory, for inputs.

    Raises
    ------
    InputError
        If the call fails, or runs no graph of the block's own.
    """
    mx = mxnet()
    found: List[Trace] = []

    def stop(*given: Any) -> None:
        data, out = block._get_graph(*given)
        arrays = mx.gluon.block._flatten(given, "input")[0]
        found.append(Trace(tuple(data), tuple(a for a in arrays if a is not None), out,
                           {name: getattr(block, name) for name in ("_in_format", "_out_format")}))
        raise _Stopped

    with _untraced(block), _recording(), mx.name.NameManager():
        block.__dict__["_call_cached_op"] = stop
        try:
            block(*arguments, **keywords)
        except _Stopped:
            pass
        except Exception as error:
            raise InputError("the block cannot be traced with these inputs: %s"
                             % _told(error)) from error
        finally:
            del block.__dict__["_call_cached_op"]
    if not found:
        raise InputError("%s.forward runs no graph of the block's own, so there is nothing to "
                         "plan; plan the blocks that it calls" % type(block).__name__)
    return found[0]


def as_arrays(item: Any, dtype: str, loose: bool = False) -> Any:
    """An argument of a block's call with arrays for shapes; where ``loose`` all else stays."""
    if item is None or isinstance(item, mxnet().nd.NDArray):
        return item
    if isinstance(item, (list, tuple)) and _is_nest(item):
        parts = [as_arrays(part, dtype, loose) for part in item]
        return parts if isinstance(item, list) else \
            item._make(parts) if hasattr(item, "_make") else tuple(parts)
    try:
        return _array(_shape(item), dtype)
    except TypeError:
        if loose:
            return item
        raise InputError("an input must be an mx.nd.NDArray, a shape, None or a list of these, "
                         "not %s; write options by name, for example budget=\"60%%\""
                         % check.shown(item)) from None


def has_own_call(block: Any) -> bool:
    """Whether the block's class says itself what its call takes."""
    return type(block).__call__ is not mxnet().gluon.Block.__call__


def takes_by_name(block: Any, name: str) -> bool:
    """Whether the block's call has an argument of that name, or takes any."""
    parameters = inspect.signature(type(block).__call__).parameters
    return name in parameters or any(p.kind is p.VAR_KEYWORD for p in parameters.values())


def _is_nest(item: Sequence[Any]) -> bool:
    """Whether a list or tuple holds inputs; else it is a shape."""
    return item == [] or any(
        part is None or isinstance(part, (list, tuple)) or
        hasattr(part, "shape") and not isinstance(part, np.generic) for part in item)


def _shape(item: Any) -> Tuple[int, ...]:
    if hasattr(item, "shape"):  # of NumPy, say
        item = item.shape
    shape = tuple(operator.index(n) for n in item)
    if min(shape, default=0) < 0:
        raise TypeError
    return shape


def _array(shape: Tuple[int, ...], dtype: str) -> Any:
    from mxnet.ndarray.ndarray import _new_alloc_handle
    mx = mxnet()
    array = mx.np.ndarray if mx.util.is_np_array() else mx.nd.NDArray
    return array(_new_alloc_handle(shape, mx.cpu(), True, np.dtype(dtype).type))


def _is_traced_anew(block: Any) -> bool:
    """Not where the graph is the block's definition, or was partitioned for a backend."""
    return not isinstance(block, mxnet().gluon.SymbolBlock) and not block._backend


@contextlib.contextmanager
def _untraced(block: Any) -> Iterator[None]:
    """The block as before its first call; afterwards as it was."""
    before: Dict[str, Any] = {name: getattr(block, name) for name in _CACHE}
    if _is_traced_anew(block):
        block._clear_cached_op()
    try:
        yield
    finally:
        block.__dict__.update(before)


def _recording() -> Any:
    """``autograd.record()``, unless the caller records already, in whatever mode."""
    autograd = mxnet().autograd
    return contextlib.nullcontext() if autograd.is_recording() else autograd.record()


def _told(error: Exception) -> str:
    """An error of the block's, where it was raised, and what to do about it."""
    mx = mxnet()
    library = (os.path.dirname(mx.__file__), os.path.dirname(__file__))
    frames = [frame for frame in traceback.extract_tb(error.__traceback__)
              if not frame.filename.startswith(library)]
    place = " (line %d of %s, in %s)" % (
        frames[-1].lineno or 0, os.path.basename(frames[-1].filename), frames[-1].name) \
        if frames else ""
    text = str(error) if isinstance(error, (mx.MXNetError, ValueError, AssertionError)) \
        else "%s: %s" % (type(error).__name__, error)
    if "Symbol" not in text or isinstance(error, ValueError):
        return text + place
    return text + place + (
        ". In hybrid_forward of a hybridized block everything is a symbol, which has neither a "
        "size nor values, so its plain call fails, too. Let operators take sizes from "
        "their inputs there: F.reshape with 0 and -1, F.reshape_like, F.slice_like, "
        "F.broadcast_like, F.shape_array; or read them in __call__, which gets arrays")
