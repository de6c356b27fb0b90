"""Text and JSON files from untrusted sources: read with limits, refused with a reason."""
from __future__ import annotations

import json
import os
import re
from itertools import accumulate
from typing import Any, Mapping

from .errors import InputError
from .units import format_bytes

#: No file that we read is larger.
MAX_BYTES = 1 << 28
#: Nor nested deeper: what walks through the data may call itself once a level.
MAX_DEPTH = 64

_NOT_BRACKETS = re.compile(r'"(?:[^"\\]|\\.)*"|[^][{}"]+', re.DOTALL)
_DEPTH = {"[": 1, "{": 1}


def read_text(path: str) -> str:
    """The text of a file that the user named.

    Raises InputError if it cannot be opened, is no text, or is too large.
    """
    if not isinstance(path, (str, os.PathLike)):
        raise InputError("cannot read %r; give the name of a file" % (path,))
    try:
        with open(path, "rb") as file:
            data = file.read(MAX_BYTES + 1)
    except (OSError, ValueError, TypeError) as error:  # a zero in the name, or no name
        raise InputError("cannot read %s: %s" % (
            path if isinstance(path, str) else repr(path),
            getattr(error, "strerror", None) or error)) from error
    if len(data) > MAX_BYTES:
        raise InputError("cannot read %s: it is larger than %s" % (path, format_bytes(MAX_BYTES)))
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError("cannot read %s: it is no text file" % path) from error


def parse_json(text: str) -> Any:
    """The data in a JSON text; all numbers are finite, and all strings can be encoded.

    Raises InputError if it is damaged or nested deeper than ``MAX_DEPTH``.
    """
    brackets = _NOT_BRACKETS.sub("", text)
    if max(accumulate(_DEPTH.get(c, -1) for c in brackets), default=0) > MAX_DEPTH:
        raise InputError("the JSON is nested deeper than %d levels" % MAX_DEPTH)
    try:
        data = json.loads(text, parse_constant=_refuse)
        if "\\u" in text:
            json.dumps(data, ensure_ascii=False).encode("utf-8")
    except ValueError as error:  # among them half a character, which no file can hold
        raise InputError("the JSON is damaged: %s" % error) from error
    return data


def _refuse(constant: str) -> Any:
    raise ValueError("%s is no number" % constant)


def plain(value: Any) -> Any:
    """For ``json.dumps``: NumPy's scalars and dtypes, and what else has an obvious form in JSON."""
    if isinstance(value, type):
        return value.__name__
    if hasattr(value, "tolist"):
        return value.tolist()
    if isinstance(value, (set, frozenset)):
        return sorted(value)
    if isinstance(value, Mapping):
        return dict(value)
    return str(value)
