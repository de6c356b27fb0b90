"""The catalogue, and swapping on symbols: names stay, numbers stay, and the way back is exact."""
from __future__ import annotations

import json

import pytest
from needed import needs_plugin

import memonger
from memonger.mx.plugin import loading as native
from memonger.mx.symbol import swap as variants
from memonger.util.errors import InputError, UnknownOpError
from ops.runner import call

mx = pytest.importorskip("mxnet")


def conv_net():
    net = mx.sym.Variable("data")
    for i, act in enumerate(("relu", "leaky", "elu")):
        net = mx.sym.Convolution(net, num_filter=8, kernel=(3, 3), pad=(1, 1), no_bias=True,
                                 name="conv%d" % i)
        net = mx.sym.BatchNorm(net, fix_gamma=False, eps=2e-5, name="bn%d" % i)
        net = (mx.sym.Activation(net, act_type="relu", name="act%d" % i) if act == "relu" else
               mx.sym.LeakyReLU(net, act_type=act, slope=0.1, name="act%d" % i))
    net = mx.sym.Pooling(net, kernel=(2, 2), stride=(2, 2), pool_type="max", name="pool")
    net = mx.sym.Dropout(mx.sym.clip(net, a_min=-1, a_max=1, name="clip"), p=0.2, name="drop")
    net = mx.sym.FullyConnected(mx.sym.Flatten(net), num_hidden=10, name="fc")
    return mx.sym.SoftmaxOutput(mx.sym.Activation(net, act_type="tanh", name="tanh"),
                                name="softmax")


def resnet():
    from mxnet.gluon.model_zoo import vision
    net = vision.resnet18_v1(classes=10, prefix="r_")
    net.initialize()
    return net(mx.sym.Variable("data"))


def lstm():
    cell = mx.rnn.LSTMCell(8, prefix="lstm_")
    outputs, _ = cell.unroll(3, mx.sym.Variable("data"), layout="NTC", merge_outputs=True)
    return mx.sym.FullyConnected(outputs, num_hidden=4, name="fc")


NETS = {"convolutions": (conv_net, (2, 3, 8, 8)), "resnet": (resnet, (4, 3, 64, 64)),
        "lstm": (lstm, (2, 3, 5))}


def test_candidates_of_the_convolution_net():
    found = variants.candidates(conv_net().tojson())
    assert found["act0"] == ["mask_relu", "batch_norm_relu"]
    assert found["act1"] == ["mask_leaky_relu", "inplace_batch_norm_leaky"]
    assert "act2" not in found
    assert found["bn0"] == ["inplace_batch_norm"]
    assert (found["pool"], found["clip"], found["drop"]) == (["max_pool"], ["mask_clip"],
                                                             ["mask_dropout"])
    assert found["tanh"] == ["output_tanh"]
    assert "fc" not in found and found["conv0"] == ["split_convolution"]
    assert found["conv1"] == ["bn_relu_convolution", "split_convolution"]
    exact = variants.candidates(conv_net().tojson(), exact_only=True)
    assert exact["act1"] == ["mask_leaky_relu"] and "bn0" not in exact
    on_gpu = variants.candidates(conv_net().tojson(), on_gpu=True)
    assert on_gpu["act0"] == ["mask_relu"] and on_gpu["conv1"] == ["split_convolution"]
    assert not [name for names in on_gpu.values() for name in names if "norm" in name]


def test_members_are_the_ops_that_are_replaced():
    text = conv_net().tojson()
    assert variants.members(text, "act0", "batch_norm_relu") == ("bn0", "act0")
    assert variants.members(text, "act0", "mask_relu") == ("act0",)
    assert variants.members(text, "conv1", "bn_relu_convolution") == ("bn0", "act0", "conv1")


def test_refusals_give_reasons():
    data = mx.sym.Variable("data")
    net = mx.sym.Group([
        mx.sym.Pooling(data, pool_type="avg", kernel=(2, 2), name="average"),
        mx.sym.Pooling(data, pool_type="lp", p_value=2, kernel=(2, 2), name="power"),
        mx.sym.BatchNorm(data, output_mean_var=True, name="norm")[0],
        mx.sym.Pooling(data, pad=(-1, -1), kernel=(2, 2), name="cropping"),
        mx.sym.Dropout(data, axes=(1,), name="shared"),
        mx.sym.LeakyReLU(data, slope=-0.5, name="falling")])
    found = variants.refusals(net.tojson())
    assert found["average"]["max_pool"] == "avg pooling needs no maxima"
    assert found["cropping"]["max_pool"] == "the pad is negative"
    assert "outputs of this op" in found["norm"]["inplace_batch_norm"]
    assert "share mask elements" in found["shared"]["mask_dropout"]
    assert "negative slope" in found["falling"]["mask_leaky_relu"]
    assert found["power"]["avg_pool"] == "the gradient of lp pooling reads its input"
    assert variants.candidates(net.tojson()) == {"average": ["avg_pool"]}


def test_two_ops_of_one_name_stay_as_they_are():
    """A plan names ops; what it says of one must not be done to the other."""
    net = mx.sym.Variable("data")
    for _ in range(2):
        net = mx.sym.Activation(mx.sym.sin(net), act_type="relu", name="relu")
    last = mx.sym.Activation(mx.sym.sin(net), act_type="relu", name="last")
    assert set(variants.candidates(last.tojson())) == {"last"}
    assert "several ops" in variants.refusals(last.tojson())["relu"]["mask_relu"]
    with pytest.raises(InputError, match="several ops are called 'relu'"):
        variants.swap_json(last.tojson(), {"relu": "mask_relu"})


def test_a_value_that_others_read_ends_no_chain():
    norm = mx.sym.BatchNorm(mx.sym.Variable("data"), name="norm")
    act = mx.sym.relu(norm, name="act")
    assert variants.candidates((act + norm).tojson())["act"] == ["mask_relu"]
    assert variants.candidates(mx.sym.Group([act, norm]).tojson())["act"] == ["mask_relu"]
    assert "batch_norm_relu" in variants.candidates(act.tojson())["act"]


def test_mistakes_are_named():
    text = conv_net().tojson()
    with pytest.raises(UnknownOpError, match="no op 'nothing'"):
        variants.swap_json(text, {"nothing": "mask_relu"})
    with pytest.raises(UnknownOpError, match="no variant is called 'none'"):
        variants.swap_json(text, {"act0": "none"})
    with pytest.raises(InputError, match="does not fit op 'fc'"):
        variants.swap_json(text, {"fc": "mask_relu"})
    with pytest.raises(InputError, match="'bn0' is wanted by"):
        variants.swap_json(text, {"act0": "batch_norm_relu", "bn0": "inplace_batch_norm"})


@pytest.mark.parametrize("net", NETS)
def test_back_again_without_the_plugin(net):
    """JSON to JSON: the graph is the same, node for node, attribute for attribute."""
    text = NETS[net][0]().tojson()
    for which in (0, -1):
        choice = compatible(text, which)
        back = json.loads(variants.unswap_json(variants.swap_json(text, choice)))
        original = json.loads(text)
        assert back["nodes"] == original["nodes"] and back["heads"] == original["heads"]
        assert back["arg_nodes"] == original["arg_nodes"]


def compatible(text, which, exact_only=False):
    """A variant for as many ops as possible, the first or the last that is offered."""
    choice, taken = {}, set()
    for op, names in reversed(list(variants.candidates(text, exact_only).items())):
        names = [name for name in names[::1 if which == 0 else -1]
                 if not taken & set(variants.members(text, op, name))]
        if names:
            choice[op] = names[0]
            taken |= set(variants.members(text, op, names[0]))
    return choice


def swapped(symbol, choice):
    return mx.sym.load_json(variants.swap_json(symbol.tojson(), choice))


@needs_plugin
@pytest.mark.parametrize("net", NETS)
def test_names_stay_and_unswap_is_byte_identical(net):
    symbol = NETS[net][0]()
    native.load()
    for which in (0, -1):
        changed = swapped(symbol, compatible(symbol.tojson(), which))
        assert changed.tojson() != symbol.tojson()
        assert changed.list_arguments() == symbol.list_arguments()
        assert changed.list_auxiliary_states() == symbol.list_auxiliary_states()
        assert changed.list_outputs() == symbol.list_outputs()
        again = mx.sym.load_json(changed.tojson())
        assert again.tojson() == changed.tojson()
        assert memonger.strip(again).tojson() == symbol.tojson()


def verified(net, exact_only):
    """Whether every bit of a training step is the same, and whether it is the same network."""
    native.load()
    make, shape = NETS[net]
    symbol = make()
    planned = swapped(symbol, compatible(symbol.tojson(), -1, exact_only))
    found = memonger.verify(planned, symbol, data=shape)
    return found.identical, found.ok


@needs_plugin
@pytest.mark.parametrize("net, exact_only", [*((net, True) for net in NETS),
                                             ("convolutions", False), ("resnet", False)])
def test_a_training_step_with_variants(net, exact_only):
    identical, same = call(verified, net, exact_only)
    assert same and (identical or not exact_only)
