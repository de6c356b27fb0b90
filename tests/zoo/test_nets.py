"""The networks of the zoo have the published sizes, fixed names, and losses that train."""
from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from memonger.util.errors import InputError
from memonger.zoo import nets

#: One small version of each builder, to run for real.
SMALL = {
    "resnet18": {"image": 32, "classes": 10},
    "dmlc_resnet50": {"image": 64, "blocks": (1, 1, 1, 1), "filters": 8, "classes": 10},
    "dmlc_lstm": {"layers": 2, "steps": 4, "inputs": 5, "units": 8, "embedding": 8, "labels": 7},
    "lstm_lm_35": {"units": 8, "steps": 4, "vocabulary": 11},
    "gru_attention": {"units": 6, "embedding": 5, "readout": 4, "source_steps": 3,
                      "target_steps": 4, "vocabulary": 11},
    "transformer": {"layers": 2, "units": 16, "heads": 2, "length": 6, "vocabulary": 11},
    "attention_small": {},
    "googlenet_three_losses": {"image": 96, "classes": 10},
    "unet": {"height": 32, "width": 48, "filters": 4},
    # MXNet's MKLDNN Concat dies on fewer than 8 channels (SIGFPE in backward).
    "nasnet_cifar10": {"cells": 3, "filters": 8},
    "amoebanet_cifar10": {"cells": 3, "filters": 8},
    "darts_cifar10": {"cells": 3, "filters": 8},
    "amoebanet_d": {"cells": 3, "filters": 64, "image": 64, "classes": 10},
    "gan": {"image": 16, "filters": 4, "noise": 6},
}


def gradients(net):
    """Gradients of one step on fixed numbers, by parameter."""
    import mxnet as mx
    trained = {name: "null" if name in net.shapes else "write"
               for name in net.symbol.list_arguments()}
    bound = net.symbol.simple_bind(mx.cpu(), grad_req=trained, **net.shapes)
    random = np.random.RandomState(0)
    for name, array in sorted(bound.arg_dict.items()):
        whole = name in net.shapes and not name.endswith(("data", "noise"))
        array[:] = (np.zeros(array.shape) if whole else random.uniform(-0.3, 0.3, array.shape))
        if name.endswith("gamma"):
            array[:] = 1
    for array in bound.aux_arrays:
        array[:] = 1
    bound.forward(is_train=True)
    bound.backward([mx.nd.ones(output.shape) for output in bound.outputs])
    return {name: array.asnumpy() for name, array in bound.grad_dict.items()
            if array is not None}


@pytest.mark.parametrize("name", nets.names())
def test_parameter_count_is_the_published_one(name):
    net = nets.build(name)
    assert net.parameters == net.spec.parameters, net.spec.source
    assert net.batch == net.spec.batch


@pytest.mark.parametrize("name", ["nasnet_cifar10", "amoebanet_cifar10", "darts_cifar10"])
def test_searched_networks_have_the_parameters_that_arithmetic_gives(name):
    from memonger.zoo.nets.cells import GENOTYPES
    genotype = GENOTYPES[nets.spec(name).options["genotype"]]

    def unit(inputs, filters):
        return inputs * filters + 2 * filters

    def operation(kind, filters, stride):
        if kind.startswith("sep"):
            return 2 * (int(kind[3:]) ** 2 * filters + unit(filters, filters))
        return {"dil3": 9 * filters + unit(filters, filters),
                "conv17": 14 * filters ** 2 + 2 * filters,
                "skip": unit(filters, filters) if stride == 2 else 0}.get(kind, 0)

    filters, before, last = 36, 108, 108
    total = 27 * 108 + 2 * 108
    for index in range(20):
        reduces = index in (6, 13)
        filters *= 1 + reduces
        choices, concat = ((genotype.reduce, genotype.reduce_concat) if reduces
                           else (genotype.normal, genotype.normal_concat))
        total += unit(before, filters) + unit(last, filters)
        total += sum(operation(kind, filters, 2 if reduces and state < 2 else 1)
                     for kind, state in choices)
        before, last = last, filters * len(concat)
    assert nets.build(name).parameters == total + 10 * last + 10


def test_gan_players_do_not_train_each_other():
    net = nets.build("gan", batch=4, **SMALL["gan"])
    both = gradients(net)
    made = {key for key in both if key.startswith("g")}
    import mxnet as mx
    for loss, trained in ((0, set(both) - made), (1, set(both) - made), (2, made)):
        arguments = net.symbol[loss].list_arguments()
        part = type(net)(net.name, net.symbol[loss],
                         {k: v for k, v in net.shapes.items() if k in arguments}, 4, net.spec)
        assert {key for key, value in gradients(part).items() if value.any()} == trained
    assert isinstance(net.symbol, mx.sym.Symbol)


def test_listing_networks_does_not_import_mxnet():
    code = ("import sys; from memonger.zoo import nets; nets.names(); nets.spec('vgg16');"
            "assert 'mxnet' not in sys.modules")
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("name", ["resnet18", "dmlc_resnet50", "gru_attention", "attention_small"])
def test_names_do_not_depend_on_what_was_built_before(name):
    first = nets.build(name, batch=2).symbol.tojson()
    nets.build("dmlc_lstm", **SMALL["dmlc_lstm"])
    assert nets.build(name, batch=2).symbol.tojson() == first


@pytest.mark.parametrize("name", sorted(SMALL))
def test_every_parameter_of_a_small_version_gets_a_finite_gradient(name):
    found = gradients(nets.build(name, batch=4, **SMALL[name]))
    assert all(np.isfinite(value).all() for value in found.values())
    # gamma does not train where fix_gamma is set.
    dead = [key for key, value in found.items()
            if not value.any() and not key.endswith("gamma")]
    assert not dead


def test_batch_and_options_reach_the_symbol():
    net = nets.build("resnet50", batch=3, image=64, classes=7)
    assert net.shapes == {"data": (3, 3, 64, 64), "softmax_label": (3,)}
    assert net.symbol.infer_shape(**net.shapes)[1] == [(3, 7)]


def test_dmlc_hints_are_optional_and_change_only_attributes():
    plain, hinted = (nets.build("dmlc_resnet50", hints=hints) for hints in (False, True))
    marked = [name for name, attributes in hinted.symbol.attr_dict().items()
              if attributes.get("mirror_stage") == "True"]
    assert len(marked) == 3 + 4 + 6 + 3
    assert "mirror_stage" not in plain.symbol.tojson()
    assert plain.symbol.list_arguments() == hinted.symbol.list_arguments()


@pytest.mark.parametrize("network, options, message", [
    ("resnet5", {}, "did you mean resnet50"),
    ("resnet50", {"picture": 64}, "no option 'picture'; it has classes, image, model"),
    ("resnet50", {"batch": 0}, "batch"),
    ("resnet50", {"image": "large"}, "the option image of resnet50 is a value like 224, not"),
    ("darts_cifar10", {"genotype": "other"}, "darts_cifar10 cannot be built with genotype=other"),
    ("dmlc_resnet50", {"image": -2}, "dmlc_resnet50 cannot be built with image=-2: "),
    ("gan", {"image": 48}, "gan cannot be built with image=48: image must be a power of two"),
    ("amoebanet_d", {"cells": 17}, "cells must be a multiple of three"),
    ("unet", {"height": 100}, "height and width must be multiples of 16"),
    ("transformer", {"heads": 5}, "units must be a multiple of heads")])
def test_what_cannot_be_built_is_refused(network, options, message):
    with pytest.raises(InputError, match=message):
        nets.build(network, **options)
