"""The search for the largest number that fits."""
from __future__ import annotations

from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memonger.plan.max_batch import largest
from memonger.planning.max_batch import search_batch
from memonger.planning.requests import PlanRequest
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


def search_of_batches(longer_ends=None):
    """The answer where 7 samples fit, and every request for a plan: batch, limit, prove."""
    asked = []

    def plan_at(request, batch):
        asked.append((batch, request.time_limit, request.prove))
        if batch > 7:
            raise InfeasibleBudget("too large", request.budget, 1000 + batch)
        if longer_ends is not None and request.prove:
            raise longer_ends
        return SimpleNamespace(overhead=0.1 if request.prove else 0.2)

    found = search_batch(PlanRequest("1000", time_limit=16.0), 65536, lambda batch: 300 * batch,
                         plan_at)
    return found, asked


def test_short_searches_find_the_batch_and_a_longer_one_its_plan():
    found, asked = search_of_batches()
    assert (found.unplanned, found.planned, found.plan.overhead) == (3, 7, 0.1)
    assert asked[-1] == (7, 4.0, True)
    assert {request[1:] for request in asked[:-1]} == {(1.0, False)}


@pytest.mark.parametrize("ends", [InfeasibleBudget("too large", 1000, 1001),
                                  NoPlanInTime("interrupted")])
def test_a_batch_that_only_the_short_search_met_keeps_its_plan(ends):
    found, _ = search_of_batches(ends)
    assert (found.planned, found.plan.overhead) == (7, 0.2)
