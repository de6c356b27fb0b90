"""MXNet's errors in one line of words."""
from __future__ import annotations

import pytest

from memonger.mx.capture.binding import first_line


@pytest.mark.parametrize("said, line", [
    ("Traceback\n../src/op/conv.cc:151: Check failed: a.ndim() == 4U (3 vs. 4) : Data should be 4D",
     "Data should be 4D (3 vs. 4)"),
    ("[12:00:00] src/x.cc:3: Check failed: a == b: Shape inconsistent", "Shape inconsistent"),
    ("MXNetError: Error in operator fc: Shape inconsistent", "op 'fc': Shape inconsistent"),
    ("MXNetError: Error in operator conv: [18:23:07] ../src/conv.cc:151: Check failed: "
     "a.ndim() == 4U (2 vs. 4) : Data should be 4D", "op 'conv': Data should be 4D (2 vs. 4)"),
    ("Check failed: ready", "Check failed: ready"),
    ("", "Exception")])
def test_the_line_that_says_what_happened(said, line):
    assert first_line(Exception(said)) == line
