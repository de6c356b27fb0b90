"""MXNet loads the plugin when it reads a planned symbol, where memonger comes after it."""
from __future__ import annotations

import json
import pickle

import pytest
from forked import python

mx = pytest.importorskip("mxnet")


def text(op="relu", **attributes):
    """A symbol of one op on "data", as JSON."""
    return json.dumps({"nodes": [
        {"op": "null", "name": "data", "inputs": []},
        {"op": op, "name": "a", "attrs": attributes, "inputs": [[0, 0, 0]]}],
        "arg_nodes": [0], "heads": [[1, 0, 0]]})


RECOMPUTED = text(__memonger_recompute__="1")
VARIANT = text("memonger_mask_relu")
STATUS = "; print('memonger_mask_relu' in dir(mx.sym))"


@pytest.mark.parametrize("symbol, loaded", [(RECOMPUTED, True), (VARIANT, True), (text(), False)])
@pytest.mark.parametrize("read", ["mx.sym.load(%r)", "mx.sym.load_json(open(%r).read())"])
def test_planned_symbols_load_the_plugin(forked, tmp_path, symbol, loaded, read):
    path = tmp_path / "net-symbol.json"
    path.write_text(symbol)
    done = forked.run("import memonger, mxnet as mx; %s%s" % (read % str(path), STATUS))
    assert done.stdout.strip() == str(loaded), done.stderr


def test_where_memonger_comes_before_mxnet_a_call_loads_it():
    code = "import memonger, mxnet as mx; memonger.native.load(); mx.sym.load_json(%r)%s" % (
        VARIANT, STATUS)
    assert python("-c", code).stdout.split()[-1] == "True"


def test_pickled_symbols_load_it_too(forked, tmp_path):
    path = tmp_path / "net.pickle"
    path.write_bytes(pickle.dumps(mx.sym.load_json(RECOMPUTED)))
    done = forked.run("import memonger, pickle, mxnet as mx; pickle.load(open(%r, 'rb'))%s"
                      % (str(path), STATUS))
    assert done.stdout.strip() == "True", done.stderr


def test_without_the_plugin_a_warning_names_what_is_missing(forked, tmp_path):
    done = forked.run("import memonger, mxnet as mx; print(mx.sym.load_json(%r).list_outputs())"
                      % RECOMPUTED, MEMONGER_NATIVE_DIR=str(tmp_path))
    assert done.stdout.strip() == "['a_output']"
    assert "RuntimeWarning: this symbol carries a plan of memonger, which needs its plugin: " \
        "libmemonger_mxnet.so is not in" in done.stderr


def test_a_file_that_is_missing_is_mxnets_to_tell(forked):
    done = forked.run("import memonger, mxnet as mx; mx.sym.load('/nonexistent/net.json')")
    assert "MXNetError" in done.stderr and "No such file" in done.stderr
