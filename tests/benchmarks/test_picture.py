"""``python -m benchmarks picture``: what it draws is what docs/RESULTS.md says."""
from __future__ import annotations

import pytest

from benchmarks import picture
from memonger.util.errors import InputError

TEXT = picture.RESULTS.read_text("utf-8")


def test_points_are_those_of_the_tables():
    ours = picture.torch_points(TEXT, "gpt2_48")
    assert ours[picture.OURS] == [(75, 1.6), (60, 9.5), (50, 14.7)]  # neither bounds nor refusals
    assert len(ours["PyTorch's memory budget"]) == 6
    llama = picture.torchtitan_points(TEXT)
    assert llama[picture.OURS][0] == (pytest.approx(59.4, abs=0.1), 4.2)
    assert llama["policy \"full\""] == [(pytest.approx(27.4, abs=0.1), 18.0)]
    resnet = picture.mxnet_points(TEXT, "resnet50")
    assert resnet["MXNet's mirroring"] == [(pytest.approx(107.2), 10.5)]
    assert [at[0] for at in resnet["memonger, other operators too"]] == [50, 25]


def test_a_network_without_a_row_is_named():
    with pytest.raises(InputError, match="no row 'resnet51'"):
        picture.mxnet_points(TEXT, "resnet51")


def test_the_picture_is_drawn(tmp_path):
    pytest.importorskip("matplotlib")
    picture.draw(TEXT, str(tmp_path / "methods.png"))
    assert (tmp_path / "methods.png").stat().st_size > 20000
