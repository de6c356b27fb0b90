"""Which networks MXNet's fusion of point-wise ops ends in an error."""
from __future__ import annotations

import ctypes
import os

import pytest

from memonger.mx.plugin import environment, executor_hooks
from memonger.mx.plugin.fusion import fails_fused
from memonger.mx.symbol.planned_symbol import mark_storage

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


GPU = ctypes.c_int(2)


def hooked(name, function, plugin=None):
    """One of MXNet's makers of executors, replaced by ``function``, with memonger's hook."""
    def original(*arguments):
        return function(*arguments)

    original.__name__ = name
    return executor_hooks.wrapped(original, None, plugin, lambda: True, lambda: plugin is not None)


def test_an_executor_at_the_place_of_a_freed_one_is_fused(monkeypatch):
    monkeypatch.delenv("MXNET_USE_FUSION", raising=False)
    made = ctypes.c_void_p()
    fused = []

    def make(*arguments):
        fused.append("MXNET_USE_FUSION" not in os.environ)
        made.value = 4096
        return 0

    bind, reshape = hooked("MXExecutorBindEX", make), hooked("MXExecutorReshapeEx", make)
    plain = mx.sym.relu(mx.sym.Variable("data"))
    planned = mx.sym.load_json(mark_storage(plain.tojson()))
    for symbol in (planned, plain):
        bind(symbol.handle, GPU, None, ctypes.byref(made))
        reshape(ctypes.c_void_p(4096), ctypes.byref(made))
    assert fused == [False, False, True, True]


def test_a_bind_that_raises_ends(monkeypatch):
    class Plugin:
        ended = []

        def memonger_bind_begin(self):
            self.ended.append(False)

        def memonger_bind_end(self, executor, *_):
            self.ended[-1] = executor is None
            return 0

    def interrupted(*arguments):
        raise KeyboardInterrupt

    bind = hooked("MXExecutorBindEX", interrupted, Plugin())
    with pytest.raises(KeyboardInterrupt):
        bind(mx.sym.Variable("data").handle, ctypes.c_int(1), None, ctypes.byref(ctypes.c_void_p()))
    assert Plugin.ended == [True]


@pytest.mark.parametrize("text, on", [("", True), ("1", True), ("0", False), ("FALSE", False)])
def test_switches_are_read_as_mxnet_reads_them(monkeypatch, text, on):
    monkeypatch.setenv("MXNET_MKLDNN_ENABLED", text)
    assert environment.mkldnn_is_on() == on
