"""Words on the command line become values, or are refused with the right way to write them."""
from __future__ import annotations

import argparse

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memonger.api.inputs import share_of
from memonger.cli import arguments


@pytest.mark.parametrize("text, expected", [
    ("data=32,3,224,224", ("data", (32, 3, 224, 224))),
    ("data=32x3x224x224", ("data", (32, 3, 224, 224))),
    ("data=(32, 10)", ("data", (32, 10))),
    ("softmax_label=32", ("softmax_label", (32,))),
    ("scalar=()", ("scalar", ())),
])
def test_shapes(text, expected):
    assert arguments.shape(text) == expected


@pytest.mark.parametrize("text", ["data", "=3", "data=a,b", "data=3,-1", "data=1.5"])
def test_shapes_that_are_refused(text):
    with pytest.raises(argparse.ArgumentTypeError, match="write it as data=32,3,224,224"):
        arguments.shape(text)


@given(st.lists(st.integers(0, 10**6), min_size=1, max_size=6))
def test_every_shape_is_read_back(sizes):
    text = "x=" + ",".join(map(str, sizes))
    assert arguments.shape(text) == ("x", tuple(sizes))


@pytest.mark.parametrize("text, expected", [
    ("4GB", "4GB"), ("60%", "60%"), ("auto", "auto"), ("0.6", "0.6"), (".5", ".5"), ("1.0", "1.0"),
    ("12345", "12345")])
def test_budgets(text, expected):
    assert arguments.budget(text) == expected


@pytest.mark.parametrize("text", ["", "4XB", "lots", "-3", "4GBB"])
def test_budgets_that_are_refused(text):
    with pytest.raises(argparse.ArgumentTypeError, match="as a share: 60%"):
        arguments.budget(text)


@pytest.mark.parametrize("text, expected", [
    ("cpu", "cpu(0)"), ("gpu", "gpu(0)"), ("gpu:0", "gpu(0)"), ("gpu1", "gpu(1)"),
    ("gpu:1", "gpu(1)"), ("gpu(1)", "gpu(1)")])
def test_devices(text, expected):
    assert arguments.device(text) == expected


@pytest.mark.parametrize("text, expected", [("10%", 0.1), ("0.1", 0.1), ("150%", 1.5), ("0", 0.0),
                                            (" 10 % ", 0.1)])
def test_shares(text, expected):
    assert share_of(arguments.share(text)) == pytest.approx(expected)


@pytest.mark.parametrize("text", ["5", "300"])
def test_a_number_that_is_surely_a_percentage_is_refused_with_both_readings(text):
    words = 'write "%s%%", or "%s00%%" if you mean that' % (text, text)
    with pytest.raises(argparse.ArgumentTypeError, match=words):
        arguments.share(text)
    assert share_of(arguments.share(text + "00%")) == float(text)


@pytest.mark.parametrize("text", ["", "ten", "-1", "nan", "inf"])
def test_shares_that_are_refused(text):
    with pytest.raises(argparse.ArgumentTypeError):
        arguments.share(text)


def test_optimizers():
    assert arguments.optimizer("adam") == ("adam", {})
    assert arguments.optimizer("sgd,momentum=0.9") == ("sgd", {"momentum": 0.9})
    for bad in ("", "sgd,momentum", "sgd,momentum=much"):
        with pytest.raises(argparse.ArgumentTypeError, match="sgd,momentum=0.9"):
            arguments.optimizer(bad)


def test_types_and_gradient_requests():
    assert arguments.data_type("data=float16") == ("data", "float16")
    assert arguments.gradient_request("add") == "add"
    assert arguments.gradient_request("fc_weight=null") == ("fc_weight", "null")
    for bad in ("data=float", "float16", "=float32"):
        with pytest.raises(argparse.ArgumentTypeError):
            arguments.data_type(bad)
    for bad in ("wirte", "=null", "fc=maybe"):
        with pytest.raises(argparse.ArgumentTypeError):
            arguments.gradient_request(bad)


def test_one_gradient_request_leaves_the_others_as_they_are():
    class Network:
        def list_arguments(self):
            return ["data", "weight", "bias"]

    def requests(said, saved="write"):
        args = argparse.Namespace(shape=[], types=[], grad_req=said)
        return arguments.shape_arguments(args, Network(), saved)["grad_req"]

    assert requests([]) == "write" and requests(["add"]) == "add"
    assert requests([("bias", "null")]) == {"data": "write", "weight": "write", "bias": "null"}
    assert requests(["null", ("bias", "add")]) == {"data": "null", "weight": "null", "bias": "add"}
    assert requests([("bias", "add")], {"weight": "write"}) == \
        {"data": "null", "weight": "write", "bias": "add"}


@pytest.mark.parametrize("text", ["0", "-1", "1.5", "many", ""])
def test_counts_that_are_refused(text):
    with pytest.raises(argparse.ArgumentTypeError, match="whole number above 0"):
        arguments.count(text)


def test_kinds_of_files_are_told_apart(tmp_path):
    symbol = '{"nodes": [], "arg_nodes": [], "heads": []}'
    assert arguments.is_symbol(symbol)
    assert not arguments.is_symbol('{"nodes": [], "links": []}')
    assert not arguments.is_symbol("3 2\n1 1 1")
    assert not arguments.is_symbol("{damaged")
