"""Symbol files that would end the process in MXNet's loader or in the passes behind it."""
from __future__ import annotations

import json
import random

import pytest

mx = pytest.importorskip("mxnet")

from forked import python  # noqa: E402
from mutations import json_text, mutated, mutated_text, places  # noqa: E402

import memonger  # noqa: E402
from memonger import native  # noqa: E402
from memonger.mx.rewrite.load import symbol_from_json  # noqa: E402
from memonger.util.errors import InputError, MemongerError  # noqa: E402

SHAPES = {"data": (2, 3, 8, 8), "state": (36,), "softmax_label": (2,)}


def network(every_loop=True):
    """All kinds of nodes: bodies of three kinds, several outputs, hidden ones, aux states.

    Without every loop it can be planned.
    """
    sym = mx.sym
    x = sym.Convolution(sym.var("data"), kernel=(3, 3), num_filter=4, name="conv")
    x = sym.Activation(sym.BatchNorm(x, name="bn"), act_type="relu", name="relu")
    flat = sym.Flatten(x)
    loop, _ = sym.contrib.while_loop(
        lambda a, b: sym.sum(a) < 5, lambda a, b: ([a + b], [a + 1, b * a]), [flat, flat * 2],
        max_iterations=4)
    chosen = sym.contrib.cond(sym.sum(x) < 5, lambda: x + 1, lambda: x * x)
    parts = sym.SliceChannel(x, num_outputs=2, name="parts")
    x = sym.Dropout(sym.Pooling(sym.Concat(parts[0], parts[1] * 2, name="both"), kernel=(2, 2),
                                pool_type="max", stride=(2, 2)), p=0.5)
    each, _ = sym.contrib.foreach(lambda a, s: (a + s[0], [a * s[0]]), sym.Flatten(x),
                                  [sym.var("state")])
    out = sym.SoftmaxOutput(sym.FullyConnected(sym.Flatten(x), num_hidden=3, name="fc"),
                            name="softmax")
    return sym.Group([out, sym.moments(x, axes=(1,))[0], each] + [loop[0], chosen] * every_loop)


def small():
    x = mx.sym.FullyConnected(mx.sym.var("data"), num_hidden=3, name="fc")
    return json.loads(mx.sym.Activation(x, act_type="relu", name="relu").tojson())


def swapped():
    """With a variant, which holds what it replaced in an attribute."""
    from memonger.mx.symbol.swap import swap_json
    return json.loads(swap_json(json.dumps(small()), {"relu": "mask_relu"}))


def test_good_symbols_are_loaded_as_they_are():
    text = network().tojson()
    assert symbol_from_json(text).tojson() == text
    # Files of MXNet 0.8 have no version and no auxiliary states.
    old = json.loads(mx.sym.BatchNorm(mx.sym.var("data"), name="bn").tojson())
    del old["attrs"], old["nodes"][3:5]
    old["nodes"][3]["inputs"] = [[0, 0], [1, 0], [2, 0]]
    old.update(arg_nodes=[0, 1, 2], heads=[[3, 0]])
    assert symbol_from_json(json.dumps(old)).list_auxiliary_states() == [
        "bn_moving_mean", "bn_moving_var"]


@pytest.mark.parametrize("path, value, message", [
    (("nodes", 3, "inputs", 0), [9, 0, 0], "reads node 9, which is not before it"),
    (("nodes", 3, "inputs", 0), [3, 0, 0], "reads node 3"),
    (("nodes", 3, "inputs", 0), [-1, 0, 0], "is no .node, output, version"),
    (("nodes", 3, "inputs", 0), [1.0, 0, 0], "is no .node, output, version"),
    (("nodes", 3, "inputs", 0), [0, 1, 0], "output 1 of a variable"),
    (("nodes", 4, "inputs", 0), [3, 5, 0], "reads output 5 of fc, which has 1"),
    (("nodes", 4, "inputs", 0), [2 ** 31, 0, 0], "is no .node, output, version"),
    (("heads",), [[4, 1, 0]], "a head reads output 1 of relu, which has 1"),
    (("heads",), [[5, 0, 0]], "a head reads node 5"),
    (("heads",), [], "no heads"),
    (("nodes", 0, "inputs"), [[0, 0, 0]], "reads node 0"),
    (("nodes", 1, "inputs"), [[0, 0, 0]], "variable that has inputs"),
    (("nodes", 3, "control_deps"), [4], "waits for node 4"),
    (("arg_nodes",), [0, 1], "arg_nodes are not the variables"),
    (("arg_nodes",), [0, 1, 99], "arg_nodes are not the variables"),
    (("nodes", 3, "attrs", "num_hidden"), 3, "attribute num_hidden is 3, not a text"),
    (("nodes", 3, "attrs", "num_args"), "999999999", "too many"),
    (("nodes", 3, "attrs", "bias_lr_mult"), "2.0", "as MXNet 0.8 wrote it"),
    (("nodes", 3, "op"), "NoSuchOp", "MXNet cannot load the symbol: .*NoSuchOp"),
    (("nodes", 3), [], "a node is no JSON object"),
    (("nodes", 3, "subgraphs"), {}, "subgraphs"),
    (("attrs", "mxnet_version"), ["int", "x"], "mxnet_version"),
])
def test_references_to_what_is_not_there_are_refused(path, value, message):
    document = small()
    place = document
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    with pytest.raises(InputError, match=message):
        symbol_from_json(json.dumps(document))


@pytest.mark.parametrize("op, attribute, value", [
    ("_foreach", "in_data_locs", "-1"), ("_foreach", "in_data_locs", "[7]"),
    ("_foreach", "remain_locs", "[0]"), ("_foreach", "num_out_data", "5"),
    ("_while_loop", "func_var_locs", "[0, 9]"), ("_while_loop", "cond_input_locs", "[]"),
    ("_cond", "then_input_locs", "[99]"), ("_cond", "num_outputs", "4")])
def test_bodies_that_do_not_fit_their_op_are_refused(op, attribute, value):
    document = json.loads(network().tojson())
    node = next(n for n in document["nodes"] if n["op"] == op)
    node["attrs"][attribute] = value
    with pytest.raises(InputError, match="bodies do not fit"):
        symbol_from_json(json.dumps(document))


def test_two_fields_of_one_name_are_one_for_us_and_for_mxnet():
    text = json.dumps(small())
    good = text.index('"inputs": [[0, 0, 0]')
    assert symbol_from_json(text[:good] + '"inputs": [[99, 0, 0]], ' + text[good:]).tojson() \
        == symbol_from_json(text).tojson()


@pytest.mark.parametrize("mark", [
    "", "{}", "[]", "[1]", '[{"inputs": 3}]', '[{"op": "x", "inputs": [[7, 0, 0]]}]',
    '[{"op": "x", "inputs": [[-1, 0, 0]]}]', '[{"op": "x", "inputs": [[0, 0]]}]',
    '[{"inputs": []}]', '[{"op": "x", "inputs": [["a", 0, 0]]}]', "[" * 990])
def test_garbled_marks_of_variants_are_refused(mark):
    document = small()
    document["nodes"][4]["attrs"]["__memonger_original__"] = mark
    with pytest.raises(InputError, match="op 'relu' does not tell what|is damaged"):
        memonger.strip(mx.sym.load_json(json.dumps(document)))


# ---------------------------------------------------------------------- a fuzzer
def survives(first, last):
    """Look at mutated files with these seeds, in this process; print what is no clear error."""
    native.load()
    texts = [network().tojson(), memonger.plan(
        network(False), method="chen", variants="none", shapes=SHAPES).symbol.tojson(),
             json.dumps(swapped())]
    documents = [json.loads(text) for text in texts]
    paths = [list(places(document)) for document in documents]
    for seed in range(first, last):
        print("seed", seed, flush=True)
        rng = random.Random(seed)
        which = rng.randrange(len(texts))
        text = mutated_text(rng, texts[which]) if rng.random() < 0.1 else json_text(
            mutated(rng, documents[which], paths[which]))
        try:
            symbol = symbol_from_json(text)
            memonger.strip(symbol)
            shapes = {name: shape for name, shape in SHAPES.items()
                      if name in symbol.list_arguments()}
            memonger.estimate(symbol, shapes=shapes)
            memonger.plan(symbol, method="chen", variants="none", shapes=shapes)
        except MemongerError:
            pass
    print("done", flush=True)


@pytest.mark.slow
def test_no_symbol_file_ends_the_process():
    for first in range(0, 6000, 2000):
        child = python("-c", "from mx.test_symbol_check import survives; "
                             "survives(%d, %d)" % (first, first + 2000))
        assert child.returncode == 0 and child.stdout.endswith("done\n"), child.stdout[-2000:]
