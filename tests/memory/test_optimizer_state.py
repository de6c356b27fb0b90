"""Optimizer state: our table against the arrays that MXNet really makes."""
from __future__ import annotations

import inspect

import numpy as np
import pytest

from memonger.memory.optimizer_state import state_bytes
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
        assert state_bytes(name, [(100 * np.dtype(dtype).itemsize, dtype)], options) == real, dtype


@pytest.mark.parametrize("name,options,message", [
    ("sgd", {"momentun": 0.9}, "sgd takes no 'momentun'; did you mean 'momentum'"),
    ("sgd", {"momentum": "much"}, "the momentum of sgd is 'much'"),
    (mx.optimizer.SGD(), {}, "unknown optimizer <mxnet.*adam"),
])
def test_what_mxnet_would_refuse_is_refused(name, options, message):
    with pytest.raises(InputError, match=message):
        state_bytes(name, [], options)


def test_parameters_that_exist_are_not_taken_for_misspelt_ones():
    for name in {name for name, _ in CASES}:
        for kind in mx.optimizer.Optimizer.opt_registry[name].__mro__:
            if kind is not object:
                for parameter in inspect.signature(kind.__init__).parameters:
                    state_bytes(name, [], {parameter: 0.5})


def test_unknown_optimizer_names_the_known_ones():
    with pytest.raises(InputError, match="adam"):
        state_bytes("adamw2", [])
