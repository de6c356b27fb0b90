"""Bytes that PyTorch's optimizers keep beside the parameters."""
from __future__ import annotations

from typing import Any, Callable, Mapping, Optional, Sequence

from ..util.errors import InputError

#: Tensors of the parameter's size, by the class's name in ``torch.optim``, in lower case.
_STATES = {"sgd": 0, "adam": 2, "adamw": 2, "nadam": 2, "radam": 2, "adamax": 2, "adagrad": 1,
           "adadelta": 2, "rmsprop": 1, "rprop": 2, "asgd": 1, "sparseadam": 2}


def state_bytes(optimizer: Any,
                options: Optional[Mapping[str, Any]] = None) -> Callable[[Sequence[int]], int]:
    """A function from the parameters' bytes to those of their optimizer state.

    ``optimizer``: a name such as "adam", or a ``torch.optim.Optimizer``, which brings its options;
    of those "momentum", "amsgrad" and "centered" matter.
    Raises InputError for a name that ``torch.optim`` does not have.
    """
    if not isinstance(optimizer, str):
        options = getattr(optimizer, "defaults", options)
        optimizer = type(optimizer).__name__
    name, asked = optimizer.lower(), options or {}
    if name not in _STATES:
        raise InputError("unknown optimizer %r; there are %s" % (optimizer,
                                                                 ", ".join(sorted(_STATES))))
    copies = _STATES[name] + bool(asked.get("amsgrad"))
    copies += bool(asked.get("momentum")) if name in ("sgd", "rmsprop") else 0
    copies += bool(asked.get("centered")) if name == "rmsprop" else 0
    return lambda sizes: copies * sum(sizes)
