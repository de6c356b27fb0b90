"""Bytes that an optimizer keeps next to the parameters, by the optimizer's name in MXNet."""
from __future__ import annotations

from typing import Any, Iterable, Mapping, Optional, Tuple

from .errors import InputError

#: Arrays of the parameter's size that MXNet 1.9.1's ``create_state`` makes.
_STATES = {
    "adadelta": 2, "adagrad": 1, "adam": 2, "adamax": 2, "ccsgd": 0, "dcasgd": 1, "ftml": 3,
    "ftrl": 2, "lamb": 2, "lars": 0, "lbsgd": 0, "nadam": 2, "nag": 0, "rmsprop": 1, "sgd": 0,
    "sgld": 0, "signum": 0, "test": 1,
}
#: Their states are float32 whatever the parameter is.
_FLOAT32_STATES = ("adadelta", "adagrad", "ftrl", "rmsprop", "test")
_ITEM_BYTES = {"float16": 2, "bfloat16": 2, "float64": 8}
#: These keep one array more when they are given a momentum.
_MOMENTUM = ("sgd", "ccsgd", "nag", "lars", "lbsgd", "dcasgd", "signum")


def state_bytes(optimizer: str, parameters: Iterable[Tuple[int, str]],
                options: Optional[Mapping[str, Any]] = None) -> int:
    """Bytes of optimizer state.

    Parameters
    ----------
    optimizer : str
        Name as in ``mx.optimizer.create``: "sgd", "adam", ...
    parameters : iterable of (int, str)
        Bytes and dtype of each parameter that is trained.
    options : mapping, optional
        ``optimizer_params``: "momentum", "centered" and "multi_precision" matter.

    Raises
    ------
    InputError
        If the name is not an optimizer of MXNet 1.9.1.
    """
    options = options or {}
    name = optimizer.lower()
    if name not in _STATES:
        raise InputError("unknown optimizer %r; MXNet 1.9.1 has: %s"
                         % (optimizer, ", ".join(sorted(_STATES))))
    copies = _STATES[name]
    default_momentum = 0.9 if name == "signum" else 0.0
    if name in _MOMENTUM and float(options.get("momentum", default_momentum)) != 0.0:
        copies += 1
    if name == "rmsprop" and options.get("centered"):
        copies += 2
    total = 0
    for size_bytes, dtype in parameters:
        if options.get("multi_precision") and dtype == "float16":
            total += 2 * size_bytes * (copies + 1)  # float32 states and a float32 master copy
        elif name in _FLOAT32_STATES:
            total += size_bytes // _ITEM_BYTES.get(dtype, 4) * 4 * copies
        else:
            total += size_bytes * copies
    return total
