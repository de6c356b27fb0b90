"""Blocks at offsets: the skyline placement alone."""
from __future__ import annotations

import random
from typing import List

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memonger.skyline import Rectangle, bound, place, search

LIVES = st.lists(st.tuples(st.integers(0, 12), st.integers(0, 6), st.integers(0, 5))
                 .map(lambda life: Rectangle(life[0], life[0] + life[1], 64 * life[2])),
                 min_size=1, max_size=16)


def check(lives: List[Rectangle], taken: int, offsets: List[int]) -> None:
    """Nothing that lives at the same time overlaps, and nothing ends above what is taken."""
    assert max(at + life.bytes for at, life in zip(offsets, lives)) <= taken
    for i, one in enumerate(lives):
        for j, other in enumerate(lives[:i]):
            if one.start <= other.end and other.start <= one.end:
                assert offsets[i] + one.bytes <= offsets[j] or \
                    offsets[j] + other.bytes <= offsets[i]


@given(LIVES, st.integers(0, 30))
def test_nothing_overlaps(lives: List[Rectangle], tries: int) -> None:
    taken, offsets = search(lives, 0, tries)
    check(lives, taken, offsets)
    assert bound(lives) <= taken <= sum(life.bytes for life in lives)


def test_a_block_lies_where_the_skyline_is_lowest() -> None:
    lives = [Rectangle(0, 1, 30), Rectangle(2, 5, 10), Rectangle(2, 3, 10), Rectangle(0, 5, 5)]
    assert place(lives, (0, 1, 2, 3), None) == (35, [0, 0, 10, 30])
    assert place(lives, (3, 0, 1, 2), None) == (35, [5, 5, 15, 0])


def test_a_segment_too_short_for_what_is_left_is_lifted_to_its_lower_neighbour() -> None:
    # Over step 1 nothing fits: 5 bytes are lost to it, and to step 2 later another 5.
    lives = [Rectangle(0, 0, 20), Rectangle(2, 2, 5), Rectangle(3, 3, 10), Rectangle(1, 3, 7)]
    assert place(lives, (0, 1, 2, 3), None) == (20, [0, 0, 0, 10])


def test_it_gives_up_beyond_the_limit() -> None:
    lives = [Rectangle(0, 3, 8), Rectangle(0, 3, 8), Rectangle(0, 3, 8)]
    assert place(lives, (0, 1, 2), 15)[0] == 16


def test_blocks_of_no_bytes_take_nothing() -> None:
    lives = [Rectangle(0, 3, 0), Rectangle(1, 2, 8), Rectangle(0, 9, 0)]
    assert search(lives, 0, 10)[0] == 8


@pytest.mark.parametrize("seed", range(5))
def test_orders_are_changed_until_it_is_enough(seed: int) -> None:
    rng = random.Random(seed)
    lives = [Rectangle(start, start + rng.randint(0, 12), rng.choice((1, 2, 3, 8)) * 64)
             for start in (rng.randint(0, 30) for _ in range(40))]
    first, _ = search(lives, 0, 0)
    best, offsets = search(lives, bound(lives), 400)
    check(lives, best, offsets)
    assert best <= first
    assert best <= 1.02 * bound(lives)
    assert search(lives, first, 400)[0] == first
