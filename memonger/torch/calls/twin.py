"""A module that is called by a plan, and is its module in all else.

A twin has the module's class as its base and the module's attributes as its own: parameters under
their own names, hooks, settings. What is done to one is done to the other, except that only calls
of the twin are planned. ``torch.compile`` gives a module around the module instead, whose
parameters have names of their own: a checkpoint of one does not fit the other.
"""
from __future__ import annotations

import copy
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any, Callable, Mapping, Type

import torch
from torch.nn.modules.utils import consume_prefix_in_state_dict_if_present

from ..pytorch import private

#: What ``torch.compile`` puts before the names of parameters.
_PREFIX = "_orig_mod."


@dataclass
class _Form:
    """What a twin has for itself."""

    module: torch.nn.Module
    #: What a call of the twin, and ``twin.forward``, runs.
    forward: Callable[..., Any]
    #: Makes the twin of another module.
    again: Callable[[torch.nn.Module], torch.nn.Module]


class _Forward:
    """The attribute ``forward``: of a twin the planned call, of its class the module's."""

    def __init__(self, original: Any):
        self.original = original

    def __get__(self, twin: Any, cls: Any) -> Any:
        return self.original if twin is None else twin._memonger.forward

    def __set__(self, twin: Any, forward: Any) -> None:
        twin._memonger.forward = forward


class Twin:
    """The first base of each twin's class; the second one is the module's class."""

    __slots__ = ()
    _memonger: _Form

    def __init_subclass__(cls, **_: Any) -> None:
        """Hides the twin's class from the module's class, which may list its subclasses."""

    def __call__(self, *args: Any, **named: Any) -> Any:
        return self._memonger.forward(*args, **named)

    @property
    def _orig_mod(self) -> torch.nn.Module:
        """The module, by the name that ``torch.compile`` gives it."""
        return self._memonger.module

    def load_state_dict(self, state_dict: Mapping[str, Any], *args: Any, **named: Any) -> Any:
        """The module's ``load_state_dict``, which takes names from ``torch.compile``, too."""
        if any(name.startswith(_PREFIX) for name in state_dict):
            renamed: Any = OrderedDict(state_dict)
            if hasattr(state_dict, "_metadata"):
                renamed._metadata = OrderedDict(state_dict._metadata)
            consume_prefix_in_state_dict_if_present(renamed, _PREFIX)
            state_dict = renamed
        return super().load_state_dict(  # type: ignore[misc]
            state_dict, *args, **named)

    def __copy__(self) -> Any:
        return self._memonger.again(copy.copy(self._memonger.module))

    def __deepcopy__(self, memo: Any) -> Any:
        return self._memonger.again(copy.deepcopy(self._memonger.module, memo))

    def __reduce_ex__(self, protocol: Any) -> Any:
        return self._memonger.again, (self._memonger.module,)


def twin_of(module: torch.nn.Module, call: Callable[..., Any],
            again: Callable[[torch.nn.Module], torch.nn.Module]) -> torch.nn.Module:
    """The twin of a module that runs ``call``.

    ``again``: makes a twin of a copy of the module; it is pickled with the module.
    """
    cls = type(module)
    made: Type[Any] = type(cls.__name__, (Twin, cls), {
        "__module__": cls.__module__, "__qualname__": cls.__qualname__, "__doc__": cls.__doc__,
        "__slots__": ("_memonger",), "forward": _Forward(cls.forward)})
    twin: torch.nn.Module = object.__new__(made)
    object.__setattr__(twin, "__dict__", module.__dict__)
    object.__setattr__(twin, "_memonger", _Form(module, call, again))
    return twin


def in_place_of(module: torch.nn.Module, call: Callable[..., Any]) -> torch.nn.Module:
    """The module itself, whose calls run ``call``."""
    if isinstance(module, Twin):
        module._memonger.forward = call
    else:
        private.compile_in_place(module, call)
    return module


def original(module: Any) -> Any:
    """The module of a twin; others as they are."""
    return module._memonger.module if isinstance(module, Twin) else module
