"""The search for the largest number that fits."""
from __future__ import annotations

from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memonger.planning.max_batch import largest_batches, search_batch
from memonger.planning.requests import PlanRequest
from memonger.plans.max_batch import largest
from memonger.util.errors import InfeasibleBudget, NoPlanInTime


def searched(fixed: float, most: int, start: int, limit: int, noise=lambda n: 1.0,
             fits=lambda share: share):
    """The answer for ``fixed`` of 1 and a rest in proportion, and how often was asked."""
    asked = []

    def need(number: int) -> float:
        asked.append(number)
        share = fixed + (1 - fixed) * number / (most + 0.5)
        return fits(share) if share <= 1 else 1 + (share - 1) * noise(number)

    return largest(need, start, limit), len(asked)


@given(st.floats(0, 0.99), st.integers(0, 100_000), st.integers(1, 300), st.randoms(),
       st.booleans())
def test_the_largest_fits_and_the_next_does_not(fixed, most, start, rng, is_told):
    found, asked = searched(fixed, most, start, 65536, lambda number: rng.uniform(0.5, 1.5),
                            lambda share: share * rng.uniform(0.5, 1) * is_told)
    assert found == min(most, 65536)
    assert asked <= 80


@pytest.mark.parametrize("fixed", [0, 0.02, 0.3, 0.9])
def test_totals_on_a_line_take_few_searches(fixed):
    found, asked = searched(fixed, 460, 144, 65536)
    assert found == 460 and asked <= 4
    found, asked = searched(fixed, 460, 1, 65536)
    assert found == 460 and asked <= 5


@pytest.mark.parametrize("fixed", [0, 0.02, 0.3, 0.9])
def test_plans_whose_need_shows_only_when_they_are_refused_take_few_searches(fixed):
    found, asked = searched(fixed, 460, 144, 65536, fits=lambda share: 0.0)
    assert found == 460 and asked <= 7


@pytest.mark.parametrize("most, limit", [(0, 10), (1, 1), (10, 10), (9, 10), (500, 10)])
def test_the_ends_of_the_range(most, limit):
    assert searched(0, most, 1, limit)[0] == min(most, limit)


def search_of_batches(longer_ends=None, smallest_bytes=140):
    """The answer where a sample takes ``smallest_bytes`` at least, and what was asked for."""
    asked = []

    def plan_at(request, batch):
        total_bytes = smallest_bytes * batch
        asked.append((batch, request))
        if request.budget is None:
            return SimpleNamespace(overhead=0.3, total_bytes=total_bytes)
        if total_bytes > request.budget:
            raise InfeasibleBudget("too large", request.budget, total_bytes)
        if longer_ends is not None and request.prove:
            raise longer_ends
        return SimpleNamespace(overhead=0.1 if request.prove else 0.3, total_bytes=total_bytes)

    found = search_batch(PlanRequest("1000", time_limit=16.0), 65536, lambda batch: 300 * batch,
                         plan_at)
    return found, asked


def test_the_smallest_plan_finds_the_batch_and_a_search_its_plan():
    found, asked = search_of_batches()
    assert (found.unplanned, found.planned, found.plan.overhead) == (3, 7, 0.1)
    (batch, smallest), *tried, (largest_batch, last) = asked
    assert (batch, smallest.budget, smallest.given) == (12, None, None)
    assert [number for number, _ in tried] == [7, 8]
    assert all("native search" in request.without for _, request in tried)
    assert (largest_batch, last.prove) == (7, True) and not last.without
    assert last.given.total_bytes == tried[0][1].given.total_bytes == 12 * 140
    assert sum(request.time_limit for _, request in asked) < 1.5 * 16


@pytest.mark.parametrize("ends", [InfeasibleBudget("too large", 1000, 1001),
                                  NoPlanInTime("interrupted")])
def test_a_batch_that_only_the_smallest_plan_fits_keeps_it(ends):
    found, _ = search_of_batches(ends)
    assert (found.planned, found.plan.overhead) == (7, 0.3)


def test_where_it_is_known_about_how_many_fit_unplanned_few_are_counted():
    counted = []

    def total_bytes(batch):
        counted.append(batch)
        return 300 * batch

    def plan_at(request, batch):
        if request.budget is not None and 140 * batch > 10000:
            raise InfeasibleBudget("too large", 10000, 140 * batch)
        return SimpleNamespace(overhead=0.3, total_bytes=140 * batch)
    for near, batches in ((33, [33, 34]), (30, [30, 31, 33, 34])):
        counted.clear()
        found = largest_batches(PlanRequest("10000"), 65536, total_bytes, plan_at, near)
        assert (found.unplanned, found.planned, counted) == (33, 71, batches)


def test_where_no_plan_is_smaller_the_largest_unplanned_batch_is_the_answer():
    found, asked = search_of_batches(smallest_bytes=300)
    assert (found.unplanned, found.planned) == (3, 3)
    assert asked[-1][0] == 3


def test_where_nothing_fits_the_reason_is_that_of_one_sample():
    def plan_at(request, batch):
        if request.budget is not None:
            raise InfeasibleBudget("%d bytes are too many" % (140 * batch), 100, 140 * batch)
        return SimpleNamespace(overhead=0.3, total_bytes=140 * batch)

    found = search_batch(PlanRequest("100"), 64, lambda batch: 300 * batch, plan_at)
    assert (found.unplanned, found.planned, found.plan) == (0, 0, None)
    assert found.reason == "with a batch of 1, 140 bytes are too many"
