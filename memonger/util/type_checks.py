"""Checks that data from a file has the types that a dataclass declares.

Files are read into dataclasses as they are. A text in the place of a number would otherwise be
found by whatever first computes with it, or by the native core, which does not look.
"""
from __future__ import annotations

import math
from dataclasses import fields
from typing import Any, Callable, Dict, Iterable, Tuple, Union, get_type_hints

Test = Callable[[Any], bool]
_TESTS: Dict[type, Tuple[Tuple[str, Test], ...]] = {}


def check_types(records: Iterable[Any]) -> None:
    """Check every field that the constructors of dataclasses take and equality compares.

    Numbers must be finite; ``bool`` is no number; an ``int`` serves as a ``float``.

    Raises TypeError at the first field that is not of its type, with the record's name where it has
    one.
    """
    for record in records:
        for name, test in _tests(type(record)):
            value = getattr(record, name)
            if not test(value):
                whose, shown = getattr(record, "name", ""), repr(value)
                raise TypeError("%s%s: %s cannot be %s" % (
                    type(record).__name__.lower(), " %r" % whose if whose else "", name,
                    shown if len(shown) <= 80 else shown[:77] + "..."))


def _tests(kind: type) -> Tuple[Tuple[str, Test], ...]:
    if kind not in _TESTS:
        hints = get_type_hints(kind)
        _TESTS[kind] = tuple((item.name, _test(hints[item.name])) for item in fields(kind)
                             if item.init and item.compare and hints[item.name] is not Any)
    return _TESTS[kind]


def _test(hint: Any) -> Test:
    """The test of a type hint, built once, because files have ten thousands of records."""
    origin: Any = getattr(hint, "__origin__", None)
    parts: Tuple[Any, ...] = getattr(hint, "__args__", ())
    if hint is Any:
        return lambda value: True
    if hint is int:
        return lambda value: type(value) is int and abs(value) < 2 ** 63
    if hint is float:
        return lambda value: math.isfinite(value) if type(value) is float \
            else type(value) is int and abs(value) < 2 ** 63
    if origin is tuple and len(parts) == 2 and parts[1] is Ellipsis:
        each = _test(parts[0])
        return lambda value: type(value) is tuple and all(map(each, value))
    if origin is tuple:
        tests = list(map(_test, parts))
        return lambda value: type(value) is tuple and len(value) == len(tests) and all(
            test(item) for test, item in zip(tests, value))
    if origin is Union:
        choices = list(map(_test, parts))
        return lambda value: any(test(value) for test in choices)
    if isinstance(origin, type):  # a mapping of texts
        inside = _test(parts[1])
        return lambda value: isinstance(value, dict) and all(
            type(key) is str and inside(item) for key, item in value.items())
    return lambda value: isinstance(value, hint)
