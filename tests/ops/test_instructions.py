"""Operators on processors without AVX-512 or AVX2 (or held to less): the results of the others."""
from __future__ import annotations

import numpy as np
import pytest

from memonger import native
from ops.runner import Case, call, run, same_bits

pytestmark = pytest.mark.skipif(not (native.folder() / "libmemonger_mxnet.so").exists(),
                                reason="the plugin is not built")

NORM = {"fix_gamma": False, "eps": 1e-3}
#: The same bits everywhere.
EXACT = {
    "relu": ("memonger_mask_relu", {}),
    "leaky relu": ("memonger_mask_leaky_relu", {"slope": 0.1}),
    "clip": ("memonger_mask_clip", {"a_min": -0.5, "a_max": 0.7}),
    "dropout": ("memonger_mask_dropout", {"p": 0.4}),
    "dropout along an axis": ("memonger_mask_dropout", {"p": 0.4, "axes": (1,)}),
    "batch norm and relu": ("memonger_batch_norm_relu", NORM),
    "tanh": ("memonger_activation", {"act_type": "tanh"}),
    "selu": ("memonger_leaky_relu", {"act_type": "selu"}),
}
WINDOWS = [{"kernel": (2, 2), "stride": (2, 2)}, {"kernel": (5, 4), "stride": (3, 2)},
           {"kernel": (3, 3), "stride": (2, 2), "pad": (1, 1)}, {"kernel": (3, 3), "pad": (1, 1)},
           {"kernel": (11, 11), "pad": (5, 5)}, {"kernel": (1, 1), "global_pool": True}]
#: Products are fused with sums, or not.
CLOSE = {
    "in-place batch norm": ("memonger_inplace_batch_norm", NORM),
    "and leaky relu": ("memonger_inplace_batch_norm", dict(NORM, act_type="leaky", slope=0.1)),
    "and elu": ("memonger_inplace_batch_norm", dict(NORM, act_type="elu", slope=1.0)),
    "layer norm": ("memonger_layer_norm", {}),
    "softrelu": ("memonger_activation", {"act_type": "softrelu"}),
    "gelu": ("memonger_gelu", {}),
}
DTYPES = ["float32", "float64", "float16"]


def both(chain, instructions, **case):
    for kind in ("ALL", instructions):
        found = call(run, Case([chain], **case), instructions=kind)
        assert isinstance(found, dict), found
        yield found


@pytest.mark.parametrize("instructions", ["AVX2", "SSE41"])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", EXACT)
def test_same_bits(name, dtype, instructions):
    for shape in ((1, 5), (3, 37), (2, 3, 5, 7), (4, 2, 9, 513)):
        left, right = both(EXACT[name], instructions, shape=shape, dtype=dtype)
        assert same_bits(left, right) is None, shape


@pytest.mark.parametrize("instructions", ["AVX2", "SSE41"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_same_bits_of_max_pooling(dtype, instructions):
    for attributes in WINDOWS:
        for shape in ((2, 3, 13, 14), (1, 9, 28, 31)):
            for values in ("normal", "ties", "special"):
                left, right = both(("memonger_max_pool", attributes), instructions, shape=shape,
                                   dtype=dtype, values=values)
                assert same_bits(left, right) is None, (attributes, shape, values)


@pytest.mark.parametrize("instructions", ["AVX2", "SSE41"])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", CLOSE)
def test_as_close_as_rounding_allows(name, dtype, instructions):
    digits = {"float32": 2e-6, "float64": 2e-7, "float16": 4e-3}[dtype]  # gelu has those of float32
    for shape in ((3, 37), (4, 3, 9, 513)):
        left, right = both(CLOSE[name], instructions, shape=shape, dtype=dtype)
        for array in left:
            error = np.abs(left[array].astype("float64") - right[array]).max()
            assert error <= digits * max(np.abs(right[array]).max(), 1), (array, shape)
