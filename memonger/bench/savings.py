"""Which frugal operators pay: the pool of whole networks with all ops of a kind swapped.

Each number is the pool that MXNet would allocate, bound with arrays that take no memory; nothing
runs again and no plan is searched. A kind that saves nothing alone can still save beside another:
ReLU's output stays alive as long as anybody reads it.
"""
from __future__ import annotations

from typing import Dict, List, Sequence, Tuple

from .. import variants
from ..mx.apply import from_json
from ..mx.read import read
from ..mx.variant_graph import _disjoint
from . import nets

#: Networks and batches; small batches, for the shares hardly depend on them.
NETWORKS: Tuple[Tuple[str, int], ...] = (
    ("vgg16", 8), ("resnet50", 8), ("resnet50_v2", 8), ("densenet121", 8), ("googlenet", 8),
    ("mobilenet_v2", 8), ("unet", 1), ("transformer_96", 2), ("lstm_lm_35", 8))

#: What was looked at and not built, and why.
NOT_BUILT = (
    ("Embedding", "its gradient keeps the indices alone"),
    ("softmax, log_softmax, SoftmaxOutput", "they keep the output alone, which the loss needs"),
    ("softmax_cross_entropy", "keeps its input; the softmax is as large"),
    ("split, stack, transpose, slice, pad, mean", "they keep nothing"),
    ("elemwise_mul, broadcast_mul", "the gradient needs both operands"),
    ("LeakyReLU gelu", "the gradient needs the input; the output, which the next layer keeps, "
     "cannot be inverted, but it is cheap to compute again: planners do"),
    ("L2Normalization, sqrt, exp", "they keep the output alone"),
)


def savings(name: str, batch: int) -> Dict[str, float]:
    """For each kind of variant that the network allows, the share of the pool that it saves.

    ``"pool"`` holds the pool without any, in bytes.
    """
    net = nets.build(name, batch=batch)
    text = net.symbol.tojson()
    whole = read(net.symbol, net.shapes).pool_bytes
    result: Dict[str, float] = {"pool": whole}
    by_kind: Dict[str, List[str]] = {}
    for op, kinds in variants.candidates(text).items():
        for kind in kinds:
            by_kind.setdefault(kind, []).append(op)
    for kind, ops in by_kind.items():
        choice = dict.fromkeys(_disjoint(text, ops, kind), kind)
        swapped = from_json(variants.swap_json(text, choice))
        result[kind] = 1.0 - read(swapped, net.shapes).pool_bytes / whole
    return result


def table(networks: Sequence[Tuple[str, int]] = NETWORKS) -> str:
    """Markdown: a row for each kind, a column for each network."""
    found = {name: savings(name, batch) for name, batch in networks}
    lines = ["| share of the pool that it saves alone | %s |"
             % " | ".join("%s, %d" % network for network in networks),
             "|---|%s" % ("---:|" * len(networks))]
    for item in variants.catalogue():
        shares = [found[name].get(item.name) for name, _ in networks]
        if any(share is not None for share in shares):
            lines.append("| %s | %s |" % (item.name, " | ".join(
                "" if share is None else "%.1f %%" % (100 * share) for share in shares)))
    lines += ["", "| not built | why |", "|---|---|"]
    lines += ["| %s | %s |" % row for row in NOT_BUILT]
    return "\n".join(lines)
