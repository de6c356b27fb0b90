"""Sizes in words: ``"4GB"`` to bytes and back.

``GB`` is 10**9 and ``GiB`` is 2**30; a bare ``G`` is decimal, because the smaller reading can
never end in running out of memory. Bytes are printed in binary units, as GPU tools print them.
"""
from __future__ import annotations

import re
from typing import Optional, Union

from .errors import UnitError

_DECIMAL = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
_BINARY = {"K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
_SIZE = re.compile(r"^\s*([0-9]*\.?[0-9]+)\s*([KMGT]?)(I?)(B?)\s*$", re.IGNORECASE)
_PERCENT = re.compile(r"^\s*([0-9]*\.?[0-9]+)\s*%\s*$")


def parse_bytes(text: Union[str, int, float]) -> int:
    """Read a size.

    Parameters
    ----------
    text : str, int or float
        ``"4GB"``, ``"3.5 GiB"``, ``"512M"``, or a plain number of bytes.

    Returns
    -------
    int
        Bytes.

    Raises
    ------
    UnitError
        If the text is not a size, or is negative.
    """
    if isinstance(text, bool):
        raise UnitError("a size cannot be %r" % text)
    if not isinstance(text, str):
        if not text >= 0 or text == float("inf"):
            raise UnitError("a size cannot be %r" % text)
        return int(text)
    found = _SIZE.match(text)
    if not found:
        raise UnitError("cannot read the size %r; write it as 4GB (10^9 bytes), 4GiB (2^30) "
                        "or as a number of bytes" % text)
    number, prefix, binary, _ = found.groups()
    prefix = prefix.upper()
    if binary and not prefix:
        raise UnitError("cannot read the size %r; did you mean MiB or GiB?" % text)
    return int(float(number) * (_BINARY if binary else _DECIMAL)[prefix])


def parse_budget(budget: Union[str, int, float], whole_bytes: int) -> int:
    """Read a budget: a size, or a share of the unplanned total.

    Parameters
    ----------
    budget : str, int or float
        As in :func:`parse_bytes`; ``"60%"``, or a float above 0 and at most 1, is a share.
    whole_bytes : int
        The unplanned total that a share refers to.

    Returns
    -------
    int
        Bytes.

    Raises
    ------
    UnitError
        If the text is neither.
    """
    share: Optional[float] = None
    if isinstance(budget, str):
        found = _PERCENT.match(budget)
        share = float(found.group(1)) / 100 if found else None
    elif isinstance(budget, float) and 0 < budget <= 1:
        share = budget
    return parse_bytes(budget) if share is None else int(share * whole_bytes)


def format_bytes(size_bytes: float) -> str:
    """Write a size for people: ``"3.70 GiB"``, ``"412 MiB"``, ``"96 B"``."""
    value = float(size_bytes)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(value) < 1024 or unit == "GiB":
            break
        value /= 1024
    if unit == "B":
        return "%d B" % value
    return "%.*f %s" % (2 if abs(value) < 10 else 1 if abs(value) < 100 else 0, value, unit)
