"""Sizes in words: ``"4GB"`` to bytes and back.

``GB`` is 10**9 and ``GiB`` is 2**30; a bare ``G`` is decimal, because the smaller reading can
never end in running out of memory. Bytes are printed in binary units, as GPU tools print them.
"""
from __future__ import annotations

import re
from typing import Optional, Tuple, Union

from .argument_checks import shown
from .errors import UnitError

_DECIMAL = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
_BINARY = {"K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
_SIZE = re.compile(r"^\s*([0-9]*\.?[0-9]+)\s*([KMGT]?)(I?)(B?)\s*$", re.IGNORECASE)
_PERCENT = re.compile(r"^\s*([0-9]*\.?[0-9]+)\s*%\s*$")
_FRACTION = re.compile(r"^\s*(0?\.\d+|1\.0*)\s*$")
#: The budget of users who do not know theirs: where less memory begins to cost much time.
KNEE = "knee"
#: No network trains in fewer: a smaller number lacks its unit.
_FEWEST_BYTES = 1000
#: No device has as many: sums of such numbers stay exact everywhere.
_MOST_BYTES = 2 ** 60


def parse_bytes(text: Union[str, int, float]) -> int:
    """Read a size, in bytes.

    ``text``: ``"4GB"``, ``"3.5 GiB"``, ``"512M"``, or a plain number of bytes.
    Raises UnitError if the text is not a size, or the size is negative or above what any device
    has.
    """
    if isinstance(text, bool):
        raise UnitError("a size cannot be %r" % text)
    if not isinstance(text, str):
        if not hasattr(text, "__float__"):
            raise UnitError("a size cannot be %r" % (text,))
        if not text >= 0 or text == float("inf"):
            raise UnitError("a size cannot be %r" % text)
        return _whole_bytes(text, text)
    found = _SIZE.match(text)
    if not found:
        raise UnitError("cannot read the size %r; write it as 4GB (10^9 bytes), 4GiB (2^30) "
                        "or as a number of bytes" % text)
    number, prefix, binary, _ = found.groups()
    prefix = prefix.upper()
    if binary and not prefix:
        raise UnitError("cannot read the size %r; did you mean MiB or GiB?" % text)
    return _whole_bytes(float(number) * (_BINARY if binary else _DECIMAL)[prefix], text)


def parse_rate(text: Union[str, int, float]) -> float:
    """A speed such as ``"25GB/s"``, or a number of bytes a second.

    Raises UnitError for what is none, and for 0.
    """
    size = text[:-2] if isinstance(text, str) and text.strip().endswith("/s") else text
    if isinstance(text, str) and size is text or isinstance(text, bool):
        raise UnitError("cannot read the speed %r; write it as 25GB/s" % (text,))
    rate = parse_bytes(size.strip() if isinstance(size, str) else size)
    if rate <= 0:
        raise UnitError("the speed cannot be %r; write it as 25GB/s" % (text,))
    return float(rate)


def _whole_bytes(size_bytes: float, text: object) -> int:
    if size_bytes > _MOST_BYTES:
        raise UnitError("a size cannot be %s: no device has as many bytes" % shown(text))
    return int(size_bytes)


def parse_budget(budget: Union[str, int, float], whole_bytes: int) -> int:
    """Read a budget, in bytes: a size, or a share of the unplanned total.

    ``budget``: as in :func:`parse_bytes`; a share as in :func:`budget_share`.
    ``whole_bytes``: the unplanned total that a share refers to.
    Raises UnitError if the text is neither.
    """
    share = budget_share(budget)
    return parse_bytes(budget) if share is None else int(share * whole_bytes)


def refuse_bare_number(budget: Union[None, str, int, float]) -> None:
    """Raise UnitError for a number that lacks its unit: 60, 1.5, "8"."""
    text = str(budget)
    if budget_share(budget) is None and re.match(r"^\s*[\d.]+\s*$", text) \
            and parse_bytes(text) < _FEWEST_BYTES:
        number = "%g" % float(text)
        raise UnitError("a budget of %s means %s bytes; write %s\"%sGB\" for a size"
                        % (number, number, '"%s%%" for a share of the unplanned total, or '
                           % number if float(text) <= 100 else "", number))


def budget_share(budget: Union[None, str, int, float]) -> Optional[float]:
    """The share of the unplanned total that a budget names; None for a size.

    ``"60%"``, and what is above 0 and at most 1 with a point, ``0.6`` or ``"0.6"``.
    """
    if isinstance(budget, str):
        found = _PERCENT.match(budget)
        if found:
            return float(found.group(1)) / 100
        budget = float(budget) if _FRACTION.match(budget) else None
    return budget if isinstance(budget, float) and 0 < budget <= 1 else None


def is_of_step(budget: Union[None, str, int, float]) -> bool:
    """Whether a budget is in bytes only once the step is known: a share, or the knee."""
    return budget == KNEE or budget_share(budget) is not None


def format_bytes(size_bytes: float, more_digits: int = 0) -> str:
    """Write a size for people: ``"3.70 GiB"``, ``"412 MiB"``, ``"96 B"``."""
    value = float(size_bytes)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(value) < 1024 or unit == "GiB":
            break
        value /= 1024
    if unit == "B":
        return "%d B" % value
    digits = 2 if abs(value) < 10 else 1 if abs(value) < 100 else 0
    return "%.*f %s" % (digits + more_digits, value, unit)


def format_plain(size: float) -> str:
    """Write a size of a graph in units of its own: ``"12,345"``."""
    return "{:,}".format(int(size))


def format_distinct(*sizes_bytes: int) -> Tuple[str, ...]:
    """Sizes for people, with as many digits as it takes to tell different ones apart."""
    def words(size_bytes: int) -> str:
        for more_digits in range(10):
            found = format_bytes(size_bytes, more_digits)
            if all(format_bytes(other, more_digits) != found for other in sizes_bytes
                   if other != size_bytes):
                break
        return found

    return tuple(map(words, sizes_bytes))
