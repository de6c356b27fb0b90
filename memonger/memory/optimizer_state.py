"""Bytes that an optimizer keeps next to the parameters, by the optimizer's name in MXNet."""
from __future__ import annotations

import difflib
from typing import Any, Iterable, List, Mapping, Optional, Tuple

from ..util.errors import InputError

#: Arrays of the parameter's size that MXNet 1.9.1's ``create_state`` makes.
_STATES = {
    "adadelta": 2, "adagrad": 1, "adam": 2, "adamax": 2, "ccsgd": 0, "dcasgd": 1, "ftml": 3,
    "ftrl": 2, "lamb": 2, "lars": 0, "lbsgd": 0, "nadam": 2, "nag": 0, "rmsprop": 1, "sgd": 0,
    "sgld": 0, "signum": 0, "test": 1,
}
#: Names of all optimizers.
OPTIMIZERS = tuple(_STATES)
#: Their states are float32 whatever the parameter is.
_FLOAT32_STATES = ("adadelta", "adagrad", "ftrl", "rmsprop", "test")
_ITEM_BYTES = {"float16": 2, "bfloat16": 2, "float64": 8}
#: These keep one array more when they are given a momentum.
_MOMENTUM = ("sgd", "ccsgd", "nag", "lars", "lbsgd", "dcasgd", "signum")
#: Parameters that decide about the bytes.
_THAT_MATTER = ("momentum", "centered", "multi_precision")


def state_bytes(optimizer: str, parameters: Iterable[Tuple[int, str]],
                options: Optional[Mapping[str, Any]] = None) -> int:
    """Bytes of optimizer state; parameters as for :func:`state_arrays`."""
    return sum(state_arrays(optimizer, parameters, options))


def state_arrays(optimizer: str, parameters: Iterable[Tuple[int, str]],
                 options: Optional[Mapping[str, Any]] = None) -> List[int]:
    """Bytes of each array of optimizer state.

    ``optimizer``: name as in ``mx.optimizer.create``: "sgd", "adam", ...
    ``parameters``: bytes and dtype of each parameter that is trained.
    ``options``: ``optimizer_params``: "momentum", "centered" and "multi_precision" matter.
    Raises InputError if the name is not an optimizer of MXNet 1.9.1, or an option is misspelt.
    """
    options = options or {}
    name = optimizer.lower() if isinstance(optimizer, str) else ""
    if name not in _STATES:
        raise InputError("unknown optimizer %r; MXNet 1.9.1 has: %s"
                         % (optimizer, ", ".join(sorted(_STATES))))
    _check_options(name, options)
    copies = _STATES[name]
    default_momentum = 0.9 if name == "signum" else 0.0
    if name in _MOMENTUM and float(options.get("momentum", default_momentum)) != 0.0:
        copies += 1
    if name == "rmsprop" and options.get("centered"):
        copies += 2
    arrays: List[int] = []
    for size_bytes, dtype in parameters:
        if options.get("multi_precision") and dtype == "float16":
            arrays += [2 * size_bytes] * (copies + 1)  # float32 states and a float32 master copy
        elif name in _FLOAT32_STATES:
            arrays += [size_bytes // _ITEM_BYTES.get(dtype, 4) * 4] * copies
        else:
            arrays += [size_bytes] * copies
    return arrays


def _check_options(name: str, options: Mapping[str, Any]) -> None:
    """Refuse what would count wrong; whether the optimizer takes the others MXNet says."""
    for option in options:
        close = difflib.get_close_matches(str(option), _THAT_MATTER, 1, 0.75)
        if close and option not in _THAT_MATTER:
            raise InputError("the optimizer %s takes no %r; did you mean %r?"
                             % (name, option, close[0]))
    momentum = options.get("momentum", 0.0)
    try:
        float(momentum)
    except (TypeError, ValueError):
        raise InputError("the momentum of %s is %r, not a number" % (name, momentum)) from None
