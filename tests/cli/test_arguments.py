"""Words on the command line become values, or are refused with the right way to write them."""
from __future__ import annotations

import argparse

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memonger.cli import arguments
from memonger.planning.requests import share_of


def share(text):
    return share_of(arguments.share(text))


@pytest.mark.parametrize("read, text, expected", [
    (arguments.shape, "data=32,3,224,224", ("data", (32, 3, 224, 224))),
    (arguments.shape, "data=32x3x224x224", ("data", (32, 3, 224, 224))),
    (arguments.shape, "data=(32, 10)", ("data", (32, 10))),
    (arguments.shape, "softmax_label=32", ("softmax_label", (32,))),
    (arguments.shape, "scalar=()", ("scalar", ())),
    *((arguments.budget, text, text)
      for text in ("4GB", "60%", "auto", "0.6", ".5", "1.0", "12345")),
    (arguments.device, "cpu", "cpu(0)"), (arguments.device, "gpu", "gpu(0)"),
    *((arguments.device, text, "gpu(1)") for text in ("gpu1", "gpu:1", "gpu(1)")),
    (share, "10%", 0.1), (share, "0.1", 0.1), (share, "150%", 1.5), (share, "0", 0.0),
    (share, " 10 % ", 0.1), (share, "500%", 5.0),
    (arguments.optimizer, "adam", ("adam", {})),
    (arguments.optimizer, "sgd,momentum=0.9", ("sgd", {"momentum": 0.9})),
    (arguments.data_type, "data=float16", ("data", "float16")),
    (arguments.gradient_request, "add", "add"),
    (arguments.gradient_request, "fc_weight=null", ("fc_weight", "null"))])
def test_what_is_read(read, text, expected):
    assert read(text) == expected


@given(st.lists(st.integers(0, 10**6), min_size=1, max_size=6))
def test_every_shape_is_read_back(sizes):
    text = "x=" + ",".join(map(str, sizes))
    assert arguments.shape(text) == ("x", tuple(sizes))


@pytest.mark.parametrize("read, texts, message", [
    (arguments.shape, ["data", "=3", "data=a,b", "data=3,-1", "data=1.5"],
     "write it as data=32,3,224,224"),
    (arguments.budget, ["", "4XB", "lots", "-3", "4GBB"], "as a share: 60%"),
    (arguments.share, ["", "ten", "-1", "nan", "inf"], None),
    (arguments.share, ["5"], 'write "5%", or "500%" if you mean that'),
    (arguments.optimizer, ["", "sgd,momentum", "sgd,momentum=much"], "sgd,momentum=0.9"),
    (arguments.data_type, ["data=float", "float16", "=float32"], None),
    (arguments.gradient_request, ["wirte", "=null", "fc=maybe"], None),
    (arguments.count, ["0", "-1", "1.5", "many", ""], "whole number above 0")])
def test_what_is_refused(read, texts, message):
    for text in texts:
        with pytest.raises(argparse.ArgumentTypeError, match=message):
            read(text)


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


def test_kinds_of_files_are_told_apart(tmp_path):
    symbol = '{"nodes": [], "arg_nodes": [], "heads": []}'
    assert arguments.is_symbol(symbol)
    assert not arguments.is_symbol('{"nodes": [], "links": []}')
    assert not arguments.is_symbol("3 2\n1 1 1")
    assert not arguments.is_symbol("{damaged")
