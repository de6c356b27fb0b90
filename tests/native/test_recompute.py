"""What exactly runs when an op is marked to run again."""
from __future__ import annotations

import json

import mxnet as mx
import pytest

from memonger import native
from memonger.mx.check.verify import verify
from memonger.mx.symbol.planned_symbol import FORCE_MIRRORING, RECOMPUTE

from .graphs import (
    CONVOLUTIONS,
    PERCEPTRON,
    captured,
    clones,
    convolutions,
    mark,
    order,
    perceptron,
)

FORWARD = ["fc1", "act1", "fc2", "act2", "fc3", "softmax"]


def test_without_marks_nothing_changes():
    native.enable()
    ours = order(perceptron(), PERCEPTRON)
    native.disable()
    assert ours == order(perceptron(), PERCEPTRON)
    native.enable()
    assert ours == FORWARD + ["softmax'", "fc3'", "act2'", "fc2'", "act1'", "fc1'"]


def test_a_clone_runs_right_before_the_first_op_that_needs_it():
    # fc2's gradient reads act1, then act1's own gradient does.
    assert order(mark(perceptron(), {"act1": "1"}), PERCEPTRON) == FORWARD + [
        "softmax'", "fc3'", "act2'", "act1_recompute1", "fc2'", "act1'", "fc1'"]


def test_clones_read_clones():
    names = order(mark(perceptron(), {"fc1": "1", "act1": "1"}), PERCEPTRON)
    assert names[6:] == ["softmax'", "fc3'", "act2'", "fc1_recompute1", "act1_recompute1", "fc2'",
                         "act1'", "fc1'"]


def test_consumers_choose_their_clone():
    # act1's own gradient gets a second clone, which reads the second clone of fc1.
    marked = mark(perceptron(), {"act1": json.dumps({"act1": 2}),
                                 "fc1": json.dumps({"act1#2": 2})})
    assert order(marked, PERCEPTRON)[6:] == [
        "softmax'", "fc3'", "act2'", "fc1_recompute1", "act1_recompute1", "fc2'",
        "fc1_recompute2", "act1_recompute2", "act1'", "fc1'"]
    assert verify(marked, perceptron(), PERCEPTRON).identical


def test_clone_zero_is_the_first_run():
    marked = mark(perceptron(), {"act1": json.dumps({"fc2": 0, "act1": 0})})
    assert order(marked, PERCEPTRON) == order(perceptron(), PERCEPTRON)
    half = captured(mark(perceptron(), {"act1": json.dumps({"fc2": 0})}), PERCEPTRON)
    nodes = {node["name"]: node for node in half["nodes"]}
    names = [node["name"] for node in half["nodes"]]
    read = {name: [names[n] for n, _ in nodes[name + "_backward"]["inputs"]]
            for name in ("fc2", "act1")}
    assert "act1" in read["fc2"] and "act1_recompute1" not in read["fc2"]
    assert "act1_recompute1" in read["act1"] and "act1" not in read["act1"]


def test_every_other_value_is_correct_too():
    for text in ("True", '{"nobody": 7}', '{"fc2": 3, "act1": 3}', '{ "act1" : 999 }'):
        assert verify(mark(perceptron(), {"act1": text}), perceptron(), PERCEPTRON).identical


def test_no_clone_whose_result_nobody_needs():
    x = mx.sym.var("data")
    total = mx.sym.elemwise_add(mx.sym.tanh(x, name="a"), mx.sym.sigmoid(x, name="b"), name="sum")
    net = mx.sym.MakeLoss(mx.sym.mean(total, name="mean"), name="loss")
    marked = mark(net, dict.fromkeys(("a", "b", "sum", "mean"), "1"))
    # The gradients of tanh and sigmoid read their outputs; nobody reads the sum or the mean.
    assert sorted(clones(captured(marked, {"data": (3, 4)}))) == ["a_recompute1", "b_recompute1"]


def test_convolutions_are_not_run_again_for_what_lies_behind_them():
    names = [prefix + str(i) for i in range(3) for prefix in ("bn", "relu")]
    record = captured(mark(convolutions(), dict.fromkeys(names, "1")), CONVOLUTIONS)
    kinds = [node["op"] for node in record["nodes"]]
    assert kinds.count("Convolution") == 3
    assert kinds.count("BatchNorm") == 6 and kinds.count("Activation") == 6
    assert record["pool_bytes"] < captured(convolutions(), CONVOLUTIONS)["pool_bytes"]


def test_clones_wait_for_what_their_first_consumer_waits_for():
    record = captured(mark(perceptron(), {"act1": "1"}), PERCEPTRON)
    nodes = record["nodes"]
    names = [node["name"] for node in nodes]
    clone = nodes[names.index("act1_recompute1")]
    assert [names[n] for n in clone["control_deps"]] == ["act2_backward"]


def test_backward_ops_keep_their_forward_op_as_first_dependency():
    record = captured(mark(convolutions(), {"conv1": "1", "bn1": "1", "relu1": "1"}), CONVOLUTIONS)
    names = [node["name"] for node in record["nodes"]]
    for node in record["nodes"]:
        if node["op"].startswith("_backward"):
            assert [names[n] for n in node["control_deps"]] == [node["name"][:-len("_backward")]]


def test_statistics_stay_with_the_first_run():
    record = captured(mark(convolutions(1), {"bn0": "1"}), CONVOLUTIONS)
    names = [node["name"] for node in record["nodes"]]
    backward = record["nodes"][names.index("bn0_backward")]
    statistics = [(names[n], i) for n, i in backward["inputs"] if names[n].startswith("bn0") and i]
    assert statistics == [("bn0", 1), ("bn0", 2)]
    assert record["nodes"][names.index("bn0")]["kept_outputs"] == [1, 2]


def test_batch_norm_clones_never_move_the_averages():
    texts = {"bn%d" % i: '{"relu%d#2": 2}' % i for i in range(3)}
    texts.update({"relu%d" % i: '{"relu%d": 2}' % i for i in range(3)})
    marked = mark(convolutions(), texts)
    record = captured(marked, CONVOLUTIONS)
    momenta = [node["attrs"].get("momentum") for node in record["nodes"]
               if "_recompute" in node["name"] and node["op"] == "BatchNorm"]
    assert momenta == ["1"] * 6
    assert verify(marked, convolutions(), CONVOLUTIONS, steps=3).identical  # aux states, too


@pytest.mark.parametrize("kind, node", [
    ("Dropout", lambda x: mx.sym.Dropout(x, p=0.5, name="it")),
    ("random", lambda x: x + mx.sym.random.uniform(shape=(2, 4), name="it")),
    ("rnn", lambda x: mx.sym.RNN(x.reshape((2, 1, 4)), mx.sym.var("p"), mx.sym.var("s"),
                                 state_size=4, num_layers=2, p=0.5, mode="rnn_tanh", name="it")),
    ("state", lambda x: mx.sym.IdentityAttachKLSparseReg(mx.sym.sigmoid(x), name="it"))])
@pytest.mark.parametrize("key", [None, FORCE_MIRRORING])
def test_random_and_state_changing_ops_are_refused(kind, node, key):
    x = mx.sym.FullyConnected(mx.sym.var("data"), num_hidden=4, name="fc")
    net = mx.sym.MakeLoss(node(x), name="loss")
    marked = mark(net, {"it": "True"}, **({"key": key} if key else {}))
    arguments = {"data": (2, 3)}
    with pytest.raises(Exception, match="asks to run it .* a second time, but it (draws|changes)"):
        captured(marked, arguments)
    native.disable()
    try:
        if key is None:
            assert captured(marked, arguments)  # stock MXNet does not know the attribute
    finally:
        native.enable()
    assert captured(net, arguments)


def test_a_scope_may_mark_inputs_and_ops_without_inputs():
    with mx.AttrScope(force_mirroring="True"):
        x = mx.sym.tanh(mx.sym.var("data"), name="a")
        net = mx.sym.MakeLoss(mx.sym.broadcast_add(x, mx.sym.ones((1, 4)), name="b"))
    assert clones(captured(net, {"data": (2, 4)})) == ["a_recompute1"]


@pytest.mark.parametrize("text", ['{"a": 1', '{"a" 1}', '{"a": -1}', "[]", "yes", '{"a": 1} x',
                                  '{"a": 12345678901234567890}', '{"a": "1"}', "{1: 2}"])
def test_damaged_attributes_are_refused_and_name_the_op(text):
    with pytest.raises(Exception, match="cannot read the recompute attribute of act1"):
        captured(mark(perceptron(), {"act1": text}), PERCEPTRON)


@pytest.mark.parametrize("text", ["0", "", "{}"])
def test_the_empty_wishes(text):
    names = clones(captured(mark(perceptron(), {"act1": text}), PERCEPTRON))
    assert names == (["act1_recompute1"] if text == "{}" else [])


def test_ops_of_one_name_are_told_apart():
    def net(text):
        x = mx.sym.var("data")
        for _ in range(2):
            x = mx.sym.FullyConnected(x, num_hidden=4, no_bias=True, name="fc_" + x.name)
            x = mx.sym.tanh(x, name="same", attr={RECOMPUTE: text})
        return mx.sym.MakeLoss(x, name="loss")

    # "same~2" is the second one: it reads clone 0, so only the first one is run again.
    marked = net('{"same~2": 0}')
    assert verify(marked, net("0"), {"data": (3, 4)}).identical
    assert clones(captured(marked, {"data": (3, 4)})) == ["same_recompute1"]


def test_long_chains_of_clones_do_not_exhaust_the_stack():
    x = mx.sym.var("data")
    length = 12000
    for index in range(length):
        x = mx.sym._internal._PlusScalar(x, scalar=1.0, name="op%d" % index)
    net = mx.sym.MakeLoss(mx.sym.square(x, name="square"), name="loss")
    marked = mark(net, {"op%d" % index: "1" for index in range(length)})
    assert len(clones(captured(marked, {"data": (2, 2)}))) == length
