"""The table of operators: bytes kept are those of the bound graph, ours never more."""
from __future__ import annotations

import json

import pytest
from needed import needs_plugin

from benchmarks.__main__ import main
from memonger import native

pytest.importorskip("mxnet")
pytestmark = needs_plugin


def test_a_row_of_mask_relu_and_of_max_pool():
    from benchmarks.mxnet.operators import SUBJECTS, measure, table
    native.load()
    relu = measure(next(s for s in SUBJECTS if s.variant == "mask_relu"), (2, 4, 16, 16), 1, 0.0)
    assert relu.kept_bytes == (2 * 4 * 16 * 16 * 4, 2 * 4 * 16 * 16 // 8)
    assert relu.errors[1] <= relu.errors[0] + 1e-7
    pool = measure(next(s for s in SUBJECTS if s.variant == "max_pool"), (2, 4, 16, 16), 1, 0.0)
    assert pool.kept_bytes[1] == 2 * 4 * 8 * 8 // 2
    assert len(table([relu, pool]).splitlines()) == 4


def test_the_command_takes_variants(monkeypatch, capsys):
    from benchmarks.mxnet import operators
    monkeypatch.setattr(operators, "measure", lambda subject, shape: operators.Row(
        subject.variant, shape, (8, 1), (0.0, 0.0), (1.0, 2.0), (1.0, 2.0)))
    assert main(["operators", "mask_clip", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [(row["variant"], row["shape"]) for row in rows] == [
        ("mask_clip", [8, 64, 56, 56]), ("mask_clip", [8, 512, 7, 7])]
