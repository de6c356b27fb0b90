"""Optimizer state: counted per element, against the arrays that MXNet makes of real weights."""
from __future__ import annotations

import numpy as np
import pytest

from memonger.mx.memory.optimizer_state import state_arrays
from memonger.util.errors import InputError

mx = pytest.importorskip("mxnet")


def _bytes(state):
    if state is None:
        return 0
    if isinstance(state, (tuple, list)):
        return sum(map(_bytes, state))
    return int(np.prod(state.shape)) * np.dtype(state.dtype).itemsize


def _takes(name, options):
    try:
        mx.optimizer.create(name, **options)
    except TypeError:
        return not options
    return True


CASES = [(name, options) for name in sorted(mx.optimizer.Optimizer.opt_registry)
         if name != "groupadagrad"
         for options in ({}, {"momentum": 0.9}, {"centered": True}, {"multi_precision": True})
         if _takes(name, options)]


@pytest.mark.filterwarnings("ignore:Accumulating with float16")
@pytest.mark.parametrize("name,options", CASES, ids=str)
def test_state_bytes_are_those_of_mxnet(name, options):
    optimizer = mx.optimizer.create(name, **options)
    for dtype in ("float32", "float16", "float64"):
        weight = mx.nd.zeros((10, 10), dtype=dtype)
        real = _bytes(optimizer.create_state_multi_precision(0, weight))
        parameter = 100 * np.dtype(dtype).itemsize, dtype
        assert sum(state_arrays(name, [parameter], options)) == real, dtype


@pytest.mark.parametrize("name,options,message", [
    ("sgd", {"momentun": 0.9}, "refuses the optimizer sgd: .*'momentun'"),
    (mx.optimizer.SGD(), {}, "unknown optimizer <mxnet.*adam"),
    ("adamw2", {}, "unknown optimizer 'adamw2'; MXNet has: .*adam"),
    ("groupadagrad", {}, "does not have its parameters' shape"),
])
def test_what_mxnet_refuses_is_refused(name, options, message):
    with pytest.raises(InputError, match=message):
        state_arrays(name, [(24, "float32")], options)
