"""Errors cross processes with all that they carry."""
from __future__ import annotations

import pickle

import pytest

from memonger.util import errors


@pytest.mark.parametrize("error", [
    errors.InfeasibleBudget("no plan fits", 10, 20, [("a", 5)], bound_bytes=15),
    errors.ShapeError("no shape", ["data"]),
    errors.UnknownOpError("no op")], ids=lambda error: type(error).__name__)
def test_errors_can_be_pickled(error) -> None:
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is type(error)
    assert str(copy) == str(error) and vars(copy) == vars(error)
