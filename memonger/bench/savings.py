"""Which frugal operators pay: the pool of whole networks with all ops of a kind swapped.

Each number is the pool that MXNet would allocate, bound with arrays that take no memory; nothing
runs again and no plan is searched. A kind that saves nothing alone can still save beside another:
ReLU's output stays alive as long as anybody reads it. For operators that were not built
there is the most that they could save: the pool if their gradients kept nothing at all.
"""
from __future__ import annotations

from dataclasses import dataclass, replace
from typing import AbstractSet, Dict, List, Optional, Sequence, Tuple

from ..graph.schedule import expand
from ..graph.types import Graph
from ..memory.storage import plan_storage
from ..mx.capture import read
from ..mx.rewrite import from_json
from ..mx.variant_graph import _disjoint
from ..variants import rewrite as variants
from ..variants.common_subexpressions import to_json
from ..zoo import nets

#: Networks and batches; small batches, for the shares hardly depend on them.
NETWORKS: Tuple[Tuple[str, int], ...] = (
    ("vgg16", 8), ("resnet50", 8), ("resnet50_v2", 8), ("densenet121", 8), ("googlenet", 8),
    ("mobilenet_v2", 8), ("unet", 1), ("transformer_96", 2), ("lstm_lm_35", 8))

@dataclass(frozen=True)
class Candidate:
    """An operator that was looked at and not built."""

    kinds: Tuple[str, ...]
    why: str


NOT_BUILT = (
    Candidate(("Embedding",), "its gradient keeps the indices alone"),
    Candidate(("softmax", "log_softmax"), "the gradient is made of the output, which nobody else "
              "keeps; planners run it again with the batch_dot before it"),
    Candidate(("SoftmaxOutput", "LogisticRegressionOutput"), "keep the output, the network's own"),
    Candidate(("softmax_cross_entropy",), "keeps its input; the softmax is as large"),
    Candidate(("SliceChannel", "split", "stack", "transpose", "slice_axis", "Reshape", "Flatten",
               "expand_dims", "mean", "UpSampling"), "keep nothing"),
    Candidate(("elemwise_add", "broadcast_add", "_mul_scalar"), "keep nothing"),
    Candidate(("elemwise_mul", "broadcast_mul"), "the gradient needs both operands"),
    Candidate(("L2Normalization", "sqrt", "exp"), "keep the output alone"),
)


def keeping_nothing(graph: Graph, ops: AbstractSet[int]) -> Graph:
    """The graph if the gradients of these forward ops read nothing but gradients."""
    changed = list(graph.ops)
    for index, op in enumerate(graph.ops):
        if not op.is_backward or op.forward_op not in ops:
            continue
        producers = [graph.tensors[tensor].producer for tensor in op.inputs]
        unread = {position for position, producer in enumerate(producers)
                  if producer < 0 or not graph.ops[producer].is_backward}
        changed[index] = replace(
            op, ignored_inputs=tuple(sorted(unread.union(op.ignored_inputs))),
            inplace=tuple(item for item in op.inplace if item.input not in unread))
    return replace(graph, ops=tuple(changed))


def at_most(name: str, batch: int) -> Dict[Candidate, float]:
    """For each candidate in the network: the share of the pool that it could save at most.

    That is what MXNet would save if the ops' gradients kept nothing at all.
    """
    net = nets.build(name, batch=batch)
    graph = read(net.symbol, net.shapes).graph

    def pool(changed: Graph) -> int:
        return plan_storage(changed, expand(changed, {}), "stock").pool_bytes
    whole = pool(graph)
    result = {}
    for item in NOT_BUILT:
        ops = {index for index, op in enumerate(graph.ops)
               if not op.is_backward and op.kind in item.kinds}
        if ops:
            result[item] = 1.0 - pool(keeping_nothing(graph, ops)) / whole
    return result


def savings(name: str, batch: int) -> Dict[str, float]:
    """For each kind of variant that the network allows, the share of the pool that it saves.

    ``"pool"`` holds the pool without any, in bytes.
    """
    net = nets.build(name, batch=batch)
    text = to_json(net.symbol)
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


def _shares(head: str, networks: Sequence[Tuple[str, int]],
            rows: Sequence[Tuple[str, Sequence[Optional[float]]]]) -> List[str]:
    lines = ["| %s | %s |" % (head, " | ".join("%s, %d" % network for network in networks)),
             "|---|%s" % ("---:|" * len(networks))]
    for name, shares in rows:
        if any(share is not None for share in shares):
            # Adding 0.0 makes -0.0 positive.
            lines.append("| %s | %s |" % (name, " | ".join(
                "" if share is None else "%.1f %%" % (round(100 * share, 1) + 0.0)
                for share in shares)))
    return lines


def table(networks: Sequence[Tuple[str, int]] = NETWORKS) -> str:
    """Markdown: a row for each kind, a column for each network; then what was not built."""
    found = [savings(*network) for network in networks]
    lines = _shares("share of the pool that it saves alone", networks,
                    [(item.name, [shares.get(item.name) for shares in found])
                     for item in variants.catalogue()])
    bounds = [at_most(*network) for network in networks]
    names = {item: ", ".join(item.kinds) for item in NOT_BUILT}
    lines += ["", *_shares("not built: the most that it could save", networks,
                           [(names[item], [shares.get(item) for shares in bounds])
                            for item in NOT_BUILT])]
    lines += ["", "| not built | why |", "|---|---|"]
    lines += ["| %s | %s |" % (names[item], item.why) for item in NOT_BUILT]
    return "\n".join(lines)
