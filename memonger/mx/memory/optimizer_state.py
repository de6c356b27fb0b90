"""Bytes that an optimizer keeps beside the parameters, as MXNet makes them."""
from __future__ import annotations

from typing import Any, Dict, Iterable, List, Mapping, Optional, Tuple

from ...util.errors import InputError
from ..plugin.environment import mxnet

#: A weight of this shape is asked about.
_SHAPE = (2, 3)


def state_arrays(optimizer: str, parameters: Iterable[Tuple[int, str]],
                 options: Optional[Mapping[str, Any]] = None) -> List[int]:
    """Bytes of each array of optimizer state.

    MXNet makes the state of a small weight of each dtype.

    Parameters
    ----------
    optimizer : str
        Name as in ``mx.optimizer.create``: "sgd", "adam", ...
    parameters : iterable of (int, str)
        Bytes and dtype of each parameter that is trained.
    options : mapping, optional
        ``optimizer_params``.

    Returns
    -------
    list of int

    Raises
    ------
    InputError
        If MXNet does not have the optimizer or refuses an option, or if an array of state does
        not have its parameter's shape.
    """
    made = _created(optimizer, dict(options or {}))
    item_bytes: Dict[str, Tuple[int, List[int]]] = {}
    arrays: List[int] = []
    for size_bytes, dtype in parameters:
        if dtype not in item_bytes:
            item_bytes[dtype] = _item_bytes(optimizer, made, dtype)
        own, states = item_bytes[dtype]
        arrays += [size_bytes // own * state for state in states]
    return arrays


def _created(name: Any, options: Dict[str, Any]) -> Any:
    optimizer = mxnet().optimizer
    known = sorted(optimizer.Optimizer.opt_registry)
    if not isinstance(name, str) or name.lower() not in known:
        raise InputError("unknown optimizer %r; MXNet has: %s" % (name, ", ".join(known)))
    try:
        return optimizer.create(name, **options)
    except Exception as error:
        raise InputError("MXNet refuses the optimizer %s: %s" % (name, error)) from error


def _item_bytes(name: str, optimizer: Any, dtype: str) -> Tuple[int, List[int]]:
    """Bytes of one element of a weight, and of each array of its state."""
    weight = mxnet().nd.zeros(_SHAPE, dtype=dtype)
    arrays = list(_arrays(optimizer.create_state_multi_precision(0, weight)))
    if any(array.shape != _SHAPE for array in arrays):
        raise InputError("the state of the optimizer %s does not have its parameters' shape; "
                         "leave it out, and add its bytes yourself" % name)
    return _bytes_of(weight), [_bytes_of(array) for array in arrays]


def _bytes_of(array: Any) -> int:
    return int(array.dtype().itemsize)


def _arrays(state: Any) -> Iterable[Any]:
    """The arrays of a state, through tuples and lists."""
    if isinstance(state, (tuple, list)):
        for part in state:
            yield from _arrays(part)
    elif state is not None:
        yield state
