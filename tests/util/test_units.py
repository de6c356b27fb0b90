"""Sizes that are compared in a sentence look different where they are."""
from __future__ import annotations

import pytest

from memonger.util.errors import UnitError
from memonger.util.units import format_distinct, parse_bytes

MIB = 2**20


@pytest.mark.parametrize("sizes, words", [
    ((212 * MIB, 212 * MIB + 300_000), ("212.0 MiB", "212.3 MiB")),
    ((212 * MIB, 212 * MIB + 1), ("212.000000 MiB", "212.000001 MiB")),
    ((5 * MIB, 7 * MIB), ("5.00 MiB", "7.00 MiB")),
    ((5 * MIB, 5 * MIB), ("5.00 MiB", "5.00 MiB")),
    ((212 * MIB, 212 * MIB + 300_000, 211 * MIB), ("212.0 MiB", "212.3 MiB", "211 MiB"))])
def test_digits_tell_sizes_apart(sizes, words):
    assert format_distinct(*sizes) == words


@pytest.mark.parametrize("size", [2 ** 63, 10 ** 30, 1e300, 10 ** 400, "10000000 TB", "9" * 400])
def test_sizes_that_no_device_has_are_refused(size):
    with pytest.raises(UnitError, match="no device has as many bytes"):
        parse_bytes(size)


def test_the_largest_size_is_read_to_the_byte():
    assert parse_bytes(2 ** 60) == parse_bytes("1048576TiB") == 2 ** 60
