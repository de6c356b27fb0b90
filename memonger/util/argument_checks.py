"""Checks of what callers give: each error names the argument and says what to give instead."""
from __future__ import annotations

import math
import operator
from typing import TYPE_CHECKING, Any, Callable, Mapping

from .errors import InputError

if TYPE_CHECKING:
    import numpy as np


def shown(value: Any) -> str:
    """A value on one short line; of arrays and other large objects the type."""
    words = repr(value)
    large = "\n" in words or len(words) > 60 or " object at 0x" in words
    return kind_of(value) if large else words


def kind_of(value: Any) -> str:
    """The type of a value with its article: ``"a list"``, ``"an Executor"``."""
    kind = type(value).__name__
    return "%s %s" % ("an" if kind[:1].lower() in "aeiou" or kind == "NDArray" else "a", kind)


def whole_number(name: str, value: Any, least: int) -> int:
    """``value`` as an int that is at least ``least``."""
    try:
        number = least - 1 if isinstance(value, bool) else operator.index(value)
    except TypeError:
        number = least - 1
    if number < least:
        raise InputError("%s must be a whole number of at least %d, not %s"
                         % (name, least, shown(value)))
    return number


def real_number(name: str, value: Any) -> float:
    """``value`` as a finite float."""
    try:
        number = float("nan") if isinstance(value, (bool, str)) else float(value)
    except (TypeError, ValueError):
        number = float("nan")
    if not math.isfinite(number):
        raise InputError("%s must be a number, not %s" % (name, shown(value)))
    return number


def text(name: str, value: Any, example: str) -> str:
    """``value``, which must be a str."""
    if not isinstance(value, str):
        raise InputError("%s must be a text such as %r, not %s" % (name, example, shown(value)))
    return value


def dtype(name: str, value: Any) -> "np.dtype[Any]":
    """``value`` as a NumPy type."""
    import numpy as np
    try:
        if value is not None:  # which NumPy takes for float64
            return np.dtype(value)
    except TypeError:
        pass
    raise InputError("%s must be a type such as 'float16', not %s" % (name, shown(value)))


def mapping(name: str, value: Any, example: str) -> Mapping[Any, Any]:
    """``value`` as a mapping; pairs of names and values are one, too."""
    try:
        return value if isinstance(value, Mapping) else dict(value)
    except (TypeError, ValueError):
        raise InputError("%s must be a dictionary such as %s, not %s"
                         % (name, example, shown(value))) from None


def context(name: str, value: Any) -> Any:
    """``value``, which must be an ``mx.Context`` or stand for one."""
    if not hasattr(value, "device_type"):
        raise InputError("%s must be mx.cpu() or mx.gpu(0), not %s" % (name, shown(value)))
    return value


def function(name: str, value: Any) -> Callable[..., Any]:
    """``value``, which must be callable."""
    if not callable(value):
        raise InputError("%s must be a function, not %s" % (name, shown(value)))
    return value
