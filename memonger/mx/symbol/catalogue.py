"""The catalogue of variants: which chains of ops each replaces, on which conditions, by what.

Adding one takes an entry in the catalogue and an operator under ``plugins/ops``.
"""
from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Callable, Dict, Mapping, Sequence, Tuple

from ...util.errors import UnknownOpError

Attributes = Mapping[str, str]


@dataclass(frozen=True)
class VariantKind:
    """One way to run a chain of ops with less memory."""

    name: str
    #: Kinds of the ops it replaces, first to last; each entry may offer several.
    chain: Tuple[Tuple[str, ...], ...]
    #: The operator that takes their place.
    op: str
    #: True: bit for bit the same with MKLDNN off. False: within a stated tolerance.
    exact: bool
    #: "" or why the chain with these attributes must stay as it is.
    refusal: Callable[[Sequence[Attributes]], str]
    #: Attributes of the new op.
    attributes: Callable[[Sequence[Attributes]], Dict[str, str]]
    #: Ops that make its gradient. Of several the last makes that of the first input.
    gradient_ops: int = 1
    #: Whether plans for a GPU are offered it. There BatchNorm is cuDNN's: what ours save, running
    #: MXNet's own again or a mask behind it saves as well. LayerNorm has no GPU code.
    on_gpu: bool = True


# ---------------------------------------------------------------------- conditions
def _copy(*names: str, **fixed: str) -> Callable[[Sequence[Attributes]], Dict[str, str]]:
    """Attributes of the chain's first op under the same names, and fixed ones."""
    def make(chain: Sequence[Attributes]) -> Dict[str, str]:
        return {**{n: chain[0][n] for n in names if n in chain[0]}, **fixed}
    return make


def _always(chain: Sequence[Attributes]) -> str:
    return ""


def _true(text: str) -> bool:
    return text.lower() in ("true", "1")


def _only_activation(kind: str) -> Callable[[Sequence[Attributes]], str]:
    def refusal(chain: Sequence[Attributes]) -> str:
        # The default of LeakyReLU; Activation has none, and relu has no type.
        act_type = chain[-1].get("act_type", "relu" if kind == "relu" else "leaky")
        return "" if act_type == kind else "the activation is %s, not %s" % (act_type, kind)
    return refusal


def _leaky(chain: Sequence[Attributes]) -> str:
    negative = float(chain[-1].get("slope", 0.25)) < 0
    return _only_activation("leaky")(chain) or (
        "a negative slope makes the output's sign useless" if negative else "")


def _dropout(chain: Sequence[Attributes]) -> str:
    shares = re.search(r"\d", chain[0].get("axes", ""))
    return "elements share mask elements along axes" if shares else ""


def _max_pooling(chain: Sequence[Attributes]) -> str:
    kind = chain[0].get("pool_type", "max")
    if kind != "max":
        return "%s pooling needs no maxima" % kind
    return "the pad is negative" if "-" in chain[0].get("pad", "") else ""


def _average_pooling(chain: Sequence[Attributes]) -> str:
    kind = chain[0].get("pool_type", "max")
    return "" if kind in ("avg", "sum") else "the gradient of %s pooling reads its input" % kind


def _layer_norm(chain: Sequence[Attributes]) -> str:
    shown = _true(chain[0].get("output_mean_var", "False"))
    return "mean and variance are outputs of this op" if shown else ""


def _batch_norm(chain: Sequence[Attributes]) -> str:
    calibrated = "min_calib_range" in chain[0] or "max_calib_range" in chain[0]
    return _layer_norm(chain) or ("the op is calibrated for quantization" if calibrated else "")


def _batch_norm_relu(chain: Sequence[Attributes]) -> str:
    is_relu = chain[1].get("act_type", "relu") == "relu"
    return _batch_norm(chain) or ("" if is_relu else "the activation is not relu")


def _batch_norm_relu_convolution(chain: Sequence[Attributes]) -> str:
    axes = 2 + len(re.findall(r"\d+", chain[2].get("kernel", "")))
    if int(chain[0].get("axis", "1")) in (0, -axes):
        return "the channel axis of BatchNorm is the batch"
    return _batch_norm_relu(chain)


def _batch_norm_and_leaky(chain: Sequence[Attributes]) -> str:
    flat = float(chain[1].get("slope", 0.25)) <= 0
    return _only_activation("leaky")(chain) or (
        "without a positive slope the activation cannot be inverted" if flat
        else _batch_norm(chain))


def _relu(attributes: Attributes) -> Dict[str, str]:
    """Activation and relu treat NaN differently; of the two, Activation alone has a type."""
    return {"stands_for": "Activation"} if "act_type" in attributes else {}


_CONVOLUTION = ("kernel", "stride", "dilate", "pad", "num_filter", "num_group", "workspace",
                "no_bias", "cudnn_tune", "cudnn_off", "layout")
_POOLING = ("kernel", "stride", "pad", "pooling_convention", "global_pool", "layout", "cudnn_off")
_NORM = ("eps", "momentum", "fix_gamma", "use_global_stats", "axis", "cudnn_off")


def _norm_and_leaky(chain: Sequence[Attributes]) -> Dict[str, str]:
    return {**_copy(*_NORM)(chain), "act_type": "leaky",
            **{n: v for n, v in chain[1].items() if n == "slope"}}


def _norm_and_convolution(chain: Sequence[Attributes]) -> Dict[str, str]:
    norm = _copy(*_NORM)(chain)
    if "cudnn_off" in norm:
        norm["bn_cudnn_off"] = norm.pop("cudnn_off")
    # Four samples at a time: a small buffer, and enough work for all threads; more of small ones,
    # each part of which costs MKLDNN about 25 microseconds.
    return {**norm, **_relu(chain[1]), **_copy(*_CONVOLUTION)(chain[2:]), "micro_batch": "4",
            "micro_batch_mb": "2"}


def _separate_gradients(chain: Sequence[Attributes]) -> str:
    if _true(chain[0].get("cudnn_off", "False")):
        return "without cuDNN a GPU makes both gradients at once"
    return ""


_CATALOGUE = (
    VariantKind("mask_relu", (("relu", "Activation"),), "memonger_mask_relu", True,
                _only_activation("relu"), lambda chain: _relu(chain[0])),
    VariantKind("mask_leaky_relu", (("LeakyReLU",),), "memonger_mask_leaky_relu", True, _leaky,
                _copy("slope")),
    VariantKind("mask_clip", (("clip",),), "memonger_mask_clip", True, _always,
                _copy("a_min", "a_max", adds="False")),
    VariantKind("mask_dropout", (("Dropout",),), "memonger_mask_dropout", True, _dropout,
                _copy("p", "mode", "cudnn_off")),
    VariantKind("max_pool", (("Pooling",),), "memonger_max_pool", True, _max_pooling,
                _copy(*_POOLING)),
    VariantKind("batch_norm_relu", (("BatchNorm",), ("relu", "Activation")),
                "memonger_batch_norm_relu", True, _batch_norm_relu,
                lambda chain: {**_copy(*_NORM)(chain), **_relu(chain[1])}, on_gpu=False),
    VariantKind("bn_relu_convolution", (("BatchNorm",), ("relu", "Activation"), ("Convolution",)),
                "memonger_bn_relu_convolution", True, _batch_norm_relu_convolution,
                _norm_and_convolution, on_gpu=False),
    VariantKind("inplace_batch_norm", (("BatchNorm",),), "memonger_inplace_batch_norm", False,
                _batch_norm, _copy(*_NORM, act_type="identity"), on_gpu=False),
    VariantKind("inplace_batch_norm_leaky", (("BatchNorm",), ("LeakyReLU",)),
                "memonger_inplace_batch_norm", False, _batch_norm_and_leaky, _norm_and_leaky,
                on_gpu=False),
    VariantKind("layer_norm", (("LayerNorm",),), "memonger_layer_norm", False, _layer_norm,
                _copy("axis", "eps"), on_gpu=False),
    *(VariantKind("output_" + name, (("Activation",),), "memonger_activation", True,
                  _only_activation(name), _copy("act_type")) for name in ("sigmoid", "tanh")),
    VariantKind("output_gelu", (("LeakyReLU",),), "memonger_gelu", False,
                _only_activation("gelu"), _copy()),
    VariantKind("concat", (("Concat", "concat"),), "memonger_concat", True, _always,
                _copy("num_args", "dim")),
    VariantKind("avg_pool", (("Pooling",),), "memonger_avg_pool", True, _average_pooling,
                _copy(*_POOLING, "pool_type", "count_include_pad", "p_value")),
    VariantKind("split_convolution", (("Convolution",),), "memonger_split_convolution", True,
                _separate_gradients, _copy(*_CONVOLUTION), gradient_ops=2),
)


def catalogue() -> Tuple[VariantKind, ...]:
    """Every variant, in the order in which :func:`candidates` offers them."""
    return _CATALOGUE


def kind(name: str) -> VariantKind:
    """The variant of that name.

    Raises UnknownOpError if there is none; the message lists them.
    """
    for item in _CATALOGUE:
        if item.name == name:
            return item
    raise UnknownOpError("no variant is called %r; there are %s"
                         % (name, ", ".join(item.name for item in _CATALOGUE)))
