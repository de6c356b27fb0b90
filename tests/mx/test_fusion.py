"""Which networks MXNet's fusion of point-wise ops ends in an error."""
from __future__ import annotations

import pytest

from memonger.mx.fusion import fails_fused

mx = pytest.importorskip("mxnet")


@pytest.mark.parametrize("attributes, fails", [({"slope": 0.1}, True), ({}, True),
                                               ({"act_type": "leaky"}, False),
                                               ({"act_type": "gelu"}, False)])
def test_leaky_relu_needs_its_act_type(attributes, fails):
    symbol = mx.sym.LeakyReLU(mx.sym.Variable("LeakyReLU"), **attributes)
    assert fails_fused(symbol.tojson().encode()) == fails


def test_names_are_no_ops():
    symbol = mx.sym.relu(mx.sym.Variable("LeakyReLU"))
    assert not fails_fused(symbol.tojson().encode())
