"""The search for the largest number that fits."""
from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memonger.plan.max_batch import largest


def searched(fixed: float, most: int, start: int, limit: int, noise=lambda n: 1.0):
    """The answer for ``fixed`` of 1 and a rest in proportion, and how often was asked."""
    asked = []

    def need(number: int) -> float:
        asked.append(number)
        share = fixed + (1 - fixed) * number / (most + 0.5)
        return share if share <= 1 else 1 + (share - 1) * noise(number)

    return largest(need, start, limit), len(asked)


@given(st.floats(0, 0.99), st.integers(0, 100_000), st.integers(1, 300), st.randoms())
def test_the_largest_fits_and_the_next_does_not(fixed, most, start, rng):
    found, _ = searched(fixed, most, start, 65536, lambda number: rng.uniform(0.5, 1.5))
    assert found == min(most, 65536)


@pytest.mark.parametrize("fixed", [0, 0.02, 0.3, 0.9])
def test_totals_on_a_line_take_few_searches(fixed):
    found, asked = searched(fixed, 460, 144, 65536)
    assert found == 460 and asked <= 7


@pytest.mark.parametrize("most, limit", [(0, 10), (1, 1), (10, 10), (9, 10), (500, 10)])
def test_the_ends_of_the_range(most, limit):
    assert searched(0, most, 1, limit)[0] == min(most, limit)
