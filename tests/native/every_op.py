"""Runs again every differentiable op that MXNet registers; prints one JSON line for each.

    python every_op.py [ops]

Each op stands between ``square`` of its inputs and ``square`` of those of its outputs that are
asked for, so clones of it and of its inputs run in backward. Attributes and shapes are found by
trying what the op's description allows, but for those of ``GIVEN``.
"""
from __future__ import annotations

import ctypes
import itertools
import json
import re
import sys

import mxnet as mx
import numpy as np
from mxnet.base import _LIB, c_str, check_call
from mxnet.operator import get_operator_arguments
from mxnet.symbol._internal import _symbol_creator

from memonger import native

OpHandle = ctypes.c_void_p

#: Attributes and shapes of ops that trying does not find.
GIVEN = {
    "BilinearSampler": ({}, [(2, 3, 6, 6), (2, 2, 5, 5)]),
    "BatchNorm": ({}, [(2, 3, 6, 6)]),
    "BatchNorm_v1": ({}, [(2, 3, 6, 6)]),
    "InstanceNorm": ({}, [(2, 3, 6, 6)]),
    "GroupNorm": ({"num_groups": "2"}, [(2, 4, 6, 6)]),
    "_contrib_BatchNormWithReLU": ({}, [(2, 3, 6, 6)]),
    "LRN": ({"nsize": "3"}, [(2, 4, 6, 6)]),
    "Pooling": ({"kernel": "(2, 2)"}, [(2, 3, 6, 6)]),
    "Pooling_v1": ({"kernel": "(2, 2)"}, [(2, 3, 6, 6)]),
    "Reshape": ({"shape": "(-1, 2)"}, [(4, 4)]),
    "Pad": ({"mode": "edge", "pad_width": "(0, 0, 0, 0, 1, 1, 1, 1)"}, [(2, 3, 4, 4)]),
    "CTCLoss": ({"blank_label": "last"}, [(5, 2, 4), (2, 3)]),
    "SoftmaxOutput": ({}, [(4, 4), (4,)]),
    "softmax_cross_entropy": ({}, [(4, 4), (4,)]),
    "broadcast_to": ({"shape": "(4, 6)"}, [(1, 6)]),
    "_npi_broadcast_to": ({"shape": "(4, 6)"}, [(1, 6)]),
    "slice": ({"begin": "(0, 1)", "end": "(2, 3)"}, [(4, 4)]),
    "col2im": ({"kernel": "(2, 2)", "output_size": "(3, 3)"}, [(2, 12, 4)]),
    "_np_roll": ({"shift": "(1,)", "axis": "(0,)"}, [(4, 4)]),
    "_npi_rot90": ({"k": "1", "axes": "(0, 1)"}, [(4, 4)]),
    "_npi_dsplit": ({"sections": "2", "axis": "2", "indices": "()"}, [(2, 4, 4)]),
    "_npi_tensordot": ({"a_axes_summed": "(1,)", "b_axes_summed": "(0,)"}, [(4, 4), (4, 4)]),
    "_npi_tensordot_int_axes": ({"axes": "1"}, [(4, 4), (4, 4)]),
    "_contrib_interleaved_matmul_selfatt_valatt": ({"heads": "2"}, [(3, 2, 24), (4, 3, 3)]),
    "_contrib_interleaved_matmul_encdec_qk": ({"heads": "2"}, [(3, 2, 8), (5, 2, 16)]),
    "_contrib_interleaved_matmul_encdec_valatt": ({"heads": "2"}, [(5, 2, 16), (4, 3, 5)]),
    "_contrib_index_copy": ({}, [(4, 4), (1,), (1, 4)]),
    "_contrib_DeformableConvolution": (
        {"kernel": "(3, 3)", "num_filter": "4"}, [(2, 3, 6, 6), (2, 18, 4, 4)]),
    "Convolution_v1": ({"kernel": "(3, 3)", "num_filter": "4"}, [(2, 3, 6, 6)]),
    "Correlation": ({}, [(2, 3, 6, 6), (2, 3, 6, 6)]),
    "Crop": ({"num_args": "2"}, [(2, 3, 6, 6), (2, 3, 4, 4)]),
    "Deconvolution": ({"kernel": "(3, 3)", "num_filter": "4"}, [(2, 3, 6, 6)]),
    "GridGenerator": ({"transform_type": "affine", "target_shape": "(5, 5)"}, [(2, 6)]),
    "ROIPooling": ({"pooled_size": "(2, 2)", "spatial_scale": "1"}, [(2, 3, 6, 6), (2, 5)]),
    "RNN": ({"mode": "gru", "state_size": "4", "num_layers": "1"}, [(3, 2, 4), None, (1, 2, 4)]),
    "SpatialTransformer": ({"transform_type": "affine", "sampler_type": "bilinear",
                            "target_shape": "(5, 5)"}, [(2, 3, 6, 6), (2, 6)]),
    "UpSampling": ({"scale": "2", "sample_type": "nearest", "num_args": "1"}, [(2, 3, 4, 4)]),
    "amp_multicast": ({"num_outputs": "2"}, [(4, 4), (4, 4)]),
    "moments": ({"axes": "(0, 1)"}, [(4, 4)]),
    "pad": ({"mode": "constant", "pad_width": "(0, 0, 0, 0, 1, 1, 1, 1)"}, [(2, 3, 4, 4)]),
    "gather_nd": ({}, [(4, 4), (2, 3)]),
    "scatter_nd": ({"shape": "(4, 4)"}, [(3,), (2, 3)]),
    "_contrib_ROIAlign": ({"pooled_size": "(2, 2)", "spatial_scale": "1"}, [(2, 3, 6, 6), (2, 5)]),
    "_contrib_PSROIPooling": ({"spatial_scale": "1", "output_dim": "1", "pooled_size": "2"},
                              [(2, 4, 6, 6), (2, 5)]),
    "_contrib_DeformablePSROIPooling": (
        {"spatial_scale": "1", "output_dim": "1", "group_size": "2", "pooled_size": "2"},
        [(2, 4, 6, 6), (2, 5), (2, 2, 2, 2)]),
    "_image_crop": ({"x": "1", "y": "1", "width": "2", "height": "2"}, [(4, 4, 3)]),
    "_image_normalize": ({"mean": "(0.5,)", "std": "(2,)"}, [(3, 4, 4)]),
    "_image_resize": ({"size": "(2, 2)"}, [(4, 4, 3)]),
    "_npx_pooling": ({"kernel": "(2, 2)"}, [(2, 3, 6, 6)]),
    "_npi_einsum": ({"subscripts": "ij,jk->ik", "num_args": "2"}, [(4, 4), (4, 4)]),
}
#: MXNet leaves the gradient of their second input unwritten.
LABELS = ("CTCLoss", "LinearRegressionOutput", "LogisticRegressionOutput", "MAERegressionOutput",
          "SVMOutput", "SoftmaxOutput", "_contrib_index_copy")
SHAPES = [(4, 4), (2, 3, 6, 6), (2, 4, 6), (6,), (2, 8), (1, 1), (2, 4, 4, 4), (2, 3, 4, 6, 6)]
_TRIES, _BINDS = 400, 6


def names():
    count, found = ctypes.c_uint(), ctypes.POINTER(ctypes.c_char_p)()
    check_call(_LIB.MXListAllOpNames(ctypes.byref(count), ctypes.byref(found)))
    return sorted(name for name in (found[i].decode() for i in range(count.value))
                  if "_backward" not in name and not name.startswith("memonger_"))


def values_for(kind):
    """What an attribute of this description may hold; nothing where it has a default."""
    if "required" not in kind:
        return [None]
    choice = re.match(r"\{(.*?)\}", kind)
    if choice:
        items = [item.strip(" '") for item in choice.group(1).split(",")]
        floats = [item for item in items if item.startswith("float")]
        return (floats or items)[:4]
    if kind.startswith(("Shape", "tuple")):
        return ["(1, 1)", "(2, 2)", "(0, 1)", "(1,)", "(0,)", "(0, 2, 3, 1)", "(4, 4)", "()"]
    if kind.startswith(("int", "long")):
        return ["2", "1", "4", "0"]
    if kind.startswith("boolean"):
        return ["True", "False"]
    return ["0.5"] if kind.startswith(("float", "double", "real")) else ["float32", "1"]


def op_symbol(name, attributes, count):
    """The op of squares of ``count`` inputs; MXNet makes variables for all others."""
    handle = OpHandle()
    check_call(_LIB.NNGetOpHandle(c_str(name), ctypes.byref(handle)))
    inputs = [mx.sym.square(mx.sym.var("x%d" % i), name="before%d" % i) for i in range(count)]
    return _symbol_creator(handle.value, inputs, None, list(attributes), list(attributes.values()),
                           "it", 0, False)


def kind_of(symbol):
    return json.loads(symbol.tojson(remove_amp_cast=False))["nodes"][-1]["op"]


def asked(symbol, positions):
    """The squares of some outputs as losses."""
    return mx.sym.Group([mx.sym.MakeLoss(mx.sym.square(symbol[i], name="behind%d" % i))
                         for i in positions])


def again(symbol):
    document = json.loads(symbol.tojson(remove_amp_cast=False))
    for node in document["nodes"]:
        if node["op"] != "null" and node["name"].startswith(("it", "before")):
            node.setdefault("attrs", {})["__memonger_recompute__"] = "1"
    return mx.sym.load_json(json.dumps(document))


def trials(name):
    """Attributes, number of inputs and their shapes, likeliest first."""
    described = get_operator_arguments(name)
    tensors = [t for t in described.types if "Symbol" in t or t.startswith("NDArray")]
    if name in GIVEN:
        attributes, shapes = GIVEN[name]
        yield attributes, len(shapes), shapes
        return
    wanted = [(n, values_for(t)) for n, t in zip(described.names, described.types)
              if t not in tensors and "required" in t and n != "num_args"]
    if "scalar" in described.names and "scalar" not in dict(wanted):
        wanted.append(("scalar", ["2"]))
    axis = dict(zip(described.names, described.types)).get("axis", "")
    if "or None" in axis:
        wanted.append(("axis", ["(0,)" if axis.startswith("Shape") else "0"]))
    many = any("[]" in t for t in tensors)
    for values in itertools.product(*(values for _, values in wanted)):
        attributes = dict(zip((n for n, _ in wanted), values))
        if many:
            attributes["num_args"] = "2"
        counts = [2] if many else range(len(tensors), 0, -1)
        for count in counts:
            for shape in SHAPES:
                if count > 1:
                    yield attributes, count, [shape] + [None] * (count - 1)
                yield attributes, count, [shape] * count


def known_before_shapes(symbol):
    """What MXNet and the plugin say while gradients are made: before MXNet looks at shapes."""
    arrays = {n: mx.nd.ones((1,)) for n in symbol.list_inputs()}
    names = symbol.list_arguments()
    try:
        again(asked(symbol, [0])).bind(
            mx.cpu(), {n: arrays[n] for n in names}, {n: mx.nd.ones((1,)) for n in names},
            aux_states={n: arrays[n] for n in symbol.list_auxiliary_states()})
    except mx.MXNetError as caught:
        refusal = re.search(r"a second time, but (.*?);", str(caught))
        if refusal:
            return "kept", refusal.group(1)
        if "non-differentiable" in str(caught):
            return "not differentiable", ""
    return None


def complete(symbol, shapes):
    """All argument shapes, or None."""
    given = {"x%d" % i: shape for i, shape in enumerate(shapes) if shape}
    try:
        arguments, _, aux = symbol.infer_shape(**given)
    except mx.MXNetError:
        return None
    if not arguments or any(not s or 0 in s for s in arguments + aux):
        return None
    return dict(zip(symbol.list_arguments() + symbol.list_auxiliary_states(), arguments + aux))


def values_of(name, shapes):
    """Numbers between 0.3 and 0.9; matrices of linear algebra well away from singular."""
    random = np.random.RandomState(0)
    values = {}
    for key, shape in sorted(shapes.items()):
        value = random.uniform(0.3, 0.9, shape)
        if "linalg" in name and len(shape) > 1 and shape[-1] == shape[-2]:
            value = np.sqrt(value / 20 + np.eye(shape[-1])) if key == "x0" else value
            value = (value + np.swapaxes(value, -1, -2)) / 2
        values[key] = value.astype("float32")
    return values


def run(symbol, values, gradients):
    """All results of a step, and the names of the clones that ran."""
    arrays = {n: mx.nd.array(v) for n, v in values.items()}
    grads = {n: mx.nd.zeros(values[n].shape) for n in gradients}
    with native.capture() as records:
        executor = symbol.bind(
            mx.cpu(), {n: arrays[n] for n in symbol.list_arguments()}, grads,
            {n: "write" if n in grads else "null" for n in symbol.list_arguments()},
            {n: arrays[n] for n in symbol.list_auxiliary_states()})
    mx.random.seed(0)
    outputs = executor.forward(is_train=True)
    executor.backward([mx.nd.ones_like(o) for o in outputs])
    results = [o.asnumpy() for o in outputs] + [grads[n].asnumpy() for n in sorted(grads)] + \
        [arrays[n].asnumpy() for n in symbol.list_auxiliary_states()]
    nodes = records[-1]["nodes"]
    return results, [n["name"] for n in nodes if "_recompute" in n["name"]], \
        next((n.get("not_recomputable_because", "") for n in nodes if n["name"] == "it"), "")


def same(one, other):
    return all(a.tobytes() == b.tobytes() for a, b in zip(one, other))


def judged(name, symbol, shapes):
    """What comes of running the op again for each choice of outputs."""
    count = len(symbol.list_outputs())
    choices = [tuple(range(count))] + [(i,) for i in range(count)] * (count > 1)
    values = values_of(name, shapes)
    names = symbol.list_arguments()
    found, reason, error = {}, "", ""
    for choice in choices:
        net = asked(symbol, choice)
        # Indices and labels have no gradient, but nothing says which inputs these are.
        for gradients in (names[:1],) if name in LABELS else (names, names[:1], names[1:2]):
            try:
                plain, _, reason = run(net, values, gradients)
                if same(plain, run(net, values, gradients)[0]):
                    break
                error = "MXNet's own results differ from run to run"
            except mx.MXNetError as caught:
                error = str(caught).strip().splitlines()[-1]
                if "non-differentiable" in str(caught):
                    return "not differentiable", ""
        else:
            continue
        try:
            ours, clones, _ = run(again(net), values, gradients)
        except mx.MXNetError as caught:
            if "asks to run it" in str(caught):
                return "kept", reason
            return "wrong", "%s raises: %s" % (choice, str(caught).strip().splitlines()[-1])
        if not same(plain, ours):
            return "wrong", "%s differs" % (choice,)
        found[choice] = "again" if any(c.startswith("it_") for c in clones) else \
            "kept" if reason else "not read"
    if not found:
        return "uncovered", error
    return next(o for o in ("again", "kept", "not read") if o in found.values()), reason


def outcome(name):
    error, bound = "no attributes and shapes were found", 0
    for attributes, count, shapes in itertools.islice(trials(name), _TRIES):
        try:
            symbol = op_symbol(name, attributes, count)
        except (mx.MXNetError, TypeError, ValueError) as caught:
            error = str(caught).strip().splitlines()[-1]
            continue
        if kind_of(symbol) != name:
            return "another name", kind_of(symbol)
        known = None if bound else known_before_shapes(symbol)
        if known:
            return known
        found = complete(symbol, shapes)
        if found is not None:
            result = judged(name, symbol, found)
            if result[0] != "uncovered":
                return result
            error, bound = result[1], bound + 1
            if bound == _BINDS:
                break
    return "uncovered", error


def main(*chosen):
    native.load()
    for name in chosen or names():
        print(json.dumps({"start": name}), flush=True)
        try:
            kind, why = outcome(name)
        except Exception as caught:  # of this script: the test shows it
            kind, why = "failed", repr(caught)
        print(json.dumps({"op": name, "outcome": kind, "why": why[:200]}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
