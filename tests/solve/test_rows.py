"""Method "auto" is a table, which the docstring of its room shows."""
from __future__ import annotations

import pytest

import memonger.solve
from memonger.planning import searches
from memonger.solve import auto


@pytest.mark.parametrize("row", auto.ROWS, ids=lambda row: row.name)
def test_the_docstring_of_the_room_is_the_table(row) -> None:
    assert "* %s." % row in " ".join((memonger.solve.__doc__ or "").split())


@pytest.mark.parametrize("row", [*auto.ROWS, *searches.ROWS], ids=lambda row: row.name)
def test_a_row_says_why_it_is_there_and_what_it_costs(row) -> None:
    assert row.name and row.why and row.price
