"""Every call into what is not public of joint graphs, forward and backward, and partitioners.

Descriptors of inputs and outputs in the form read here came with PyTorch 2.11.
"""
from __future__ import annotations

import contextlib
from typing import Any, Iterator, List, Optional, Sequence, Set, Tuple

import torch
import torch.fx as fx
from torch.utils.checkpoint import CheckpointPolicy

from .private_ops import written_arguments

try:
    from torch._functorch import partitioners
    from torch._functorch.compile_utils import fx_graph_cse
    from torch.fx._lazy_graph_module import _LazyGraphModule
except ImportError:  # another PyTorch than those tested: versions.py finds out before others do
    pass

#: Marks nodes that no partitioner is to compute again.
_ONCE = "memonger_once"
#: What a node said before :func:`place`.
_TRACED = "memonger_traced"

Modules = Tuple[fx.GraphModule, fx.GraphModule]


def normalize(joint: fx.GraphModule) -> None:
    """Drop what nothing reads and merge what is computed twice, as PyTorch's partitioner does."""
    joint.graph.eliminate_dead_code()
    joint.graph = fx_graph_cse(joint.graph)
    joint.recompile()


def is_tangent(node: fx.Node) -> bool:
    return partitioners._is_tangent(node)


def is_backward(node: fx.Node) -> bool:
    """Traced while autograd ran backward."""
    return partitioners._has_tag_is_backward(node) or \
        partitioners._has_tag_must_be_in_backward(node)


def is_forward(node: fx.Node) -> bool:
    """Traced before autograd ran backward."""
    return partitioners._has_tag_is_forward(node) or partitioners._has_tag_must_be_in_forward(node)


def is_symbolic(node: fx.Node) -> bool:
    """A size, not a tensor."""
    return isinstance(node.meta.get("val"), (torch.SymInt, torch.SymFloat, torch.SymBool))


def written_inputs(joint: fx.GraphModule, backward: bool = False) -> List[fx.Node]:
    """Inputs that forward writes into, by its operators or where it ends.

    ``backward``: also those that backward writes into.
    """
    inputs = [n for n in joint.graph.nodes if n.op in ("placeholder", "get_attr")]
    backs = {_of_tensor(item).mutated_input for item, written in zip(
        joint.graph.output_node().meta.get("desc") or (), written_back(joint)) if written}
    into = {value for node in joint.graph.nodes if backward or not is_backward(node)
            for value in written_arguments(node)}
    return [n for n in inputs if n in into or _of_tensor(n.meta.get("desc")) in backs]


def input_positions(nodes: Sequence[fx.Node]) -> List[Optional[int]]:
    """For each input of a joint graph which argument of the Dynamo graph it is; None for others.

    Arguments that lie in one memory, of which the step writes into one, are one input.
    """
    return [_position(node.meta.get("desc")) for node in nodes]


def tangent_positions(nodes: Sequence[fx.Node]) -> List[Optional[int]]:
    """For each tangent of a joint graph of which output of the Dynamo graph it is; or None."""
    return [_position(getattr(_of_tensor(node.meta.get("desc")), "output", None))
            for node in nodes]


def output_positions(joint: fx.GraphModule) -> List[Optional[int]]:
    """For each output of a joint graph which one of the Dynamo graph it is, or lies in; or None.
    """
    outputs = (getattr(_of_tensor(d), "base_of", d) for d in _descriptors(joint))
    return [_position(d) if "PlainAOTOutput" in type(_of_tensor(d)).__name__ else None
            for d in outputs]


def gradient_positions(joint: fx.GraphModule) -> List[Optional[int]]:
    """For each output of a joint graph of which argument it is the gradient; None for others."""
    return [_position(getattr(_of_tensor(d), "grad_of", None)) for d in _descriptors(joint)]


def _descriptors(joint: fx.GraphModule) -> Sequence[Any]:
    output = joint.graph.output_node()
    return output.meta.get("desc") or [None] * len(output.args[0])


def _position(descriptor: Any) -> Optional[int]:
    """The position that a descriptor names, of an argument or an output of the Dynamo graph."""
    found = _of_tensor(descriptor)
    return getattr(getattr(found, "base_of", found), "idx", None)


def written_back(joint: fx.GraphModule) -> List[bool]:
    """For each output whether it is the new value of an input (running statistics)."""
    return ["InputMutation" in type(_of_tensor(item)).__name__ for item in _descriptors(joint)]


def _of_tensor(descriptor: Any) -> Any:
    """The descriptor of a tensor; of a part of one that consists of several, that one's."""
    while "SubclassGetAttr" in type(descriptor).__name__:
        descriptor = descriptor.base
    return descriptor


def extract(module: fx.GraphModule, saved: List[fx.Node], num_forward_outputs: int) -> Modules:
    """Forward and backward of a joint graph whose nodes say where they must be.

    Theirs say again where they were traced.
    """
    forward, backward = partitioners._extract_fwd_bwd_modules(
        module, [node for node in saved if not is_symbolic(node)],
        [node for node in saved if is_symbolic(node)], num_fwd_outputs=num_forward_outputs)
    for node in (*forward.graph.nodes, *backward.graph.nodes):
        node.meta.update(node.meta.pop(_TRACED, {}))
    return partitioners.raise_getitems(forward), partitioners.raise_getitems(backward)


def place(node: fx.Node, in_backward: bool) -> None:
    """Say where a node must be, for :func:`extract`."""
    traced = {"partitioner_tag": node.meta.get("partitioner_tag", "")}
    node.meta = {_TRACED: traced, **node.meta, "partitioner_tag":
                 "must_be_in_backward" if in_backward else "must_be_in_forward"}


def default_partition(joint: fx.GraphModule, inputs: Sequence[Any],
                      again: Optional[Sequence[fx.Node]], **kwargs: Any) -> Modules:
    """PyTorch's own split, with the nodes ``again`` recomputed in backward.

    None: those that the module's own checkpoints name.
    """
    _mark(joint, again)
    return partitioners.default_partition(joint, inputs, **kwargs)


def min_cut(joint: fx.GraphModule, inputs: Sequence[Any], again: Optional[Sequence[fx.Node]],
            **kwargs: Any) -> Modules:
    """Inductor's usual split: what makes the least traffic between forward and backward.

    The nodes ``again`` are recomputed in backward in any case; None: those that the module's own
    checkpoints name.
    """
    _mark(joint, again)
    return partitioners.min_cut_rematerialization_partition(joint, inputs, **kwargs)


def _mark(joint: fx.GraphModule, again: Optional[Sequence[fx.Node]]) -> None:
    """Replace the marks of the module's own checkpoints, unless ``again`` is None."""
    if again is None:
        return
    for node in joint.graph.nodes:
        node.meta.pop("recompute", None)
        node.meta.pop("ac_graph_id", None)  # what one checkpoint reads of another one is kept
        if node.meta.get(_ONCE):
            run_once(node)
    for node in again:
        node.meta["recompute"] = CheckpointPolicy.MUST_RECOMPUTE


def run_once(node: fx.Node) -> None:
    """Keep the value of a forward node, in a checkpoint of the module, too."""
    node.meta.update({_ONCE: True, "recompute": CheckpointPolicy.MUST_SAVE})


def decision(again: bool, to_host: bool = False) -> CheckpointPolicy:
    """What trainers that split a graph themselves read: a node is computed again, its value moved
    to the host, or kept."""
    return CheckpointPolicy.MUST_CPU_OFFLOAD if to_host else \
        CheckpointPolicy.MUST_RECOMPUTE if again else CheckpointPolicy.MUST_SAVE


def is_again(decided: Any) -> bool:
    """Whether that decision is to compute a node again."""
    return decided in (CheckpointPolicy.MUST_RECOMPUTE, CheckpointPolicy.PREFER_RECOMPUTE)


def mark_phase(node: fx.Node, backward: bool) -> None:
    """Say for :func:`is_backward` and :func:`is_forward` where a node was traced."""
    node.meta["partitioner_tag"] = "is_backward" if backward else "is_forward"


def checkpoint_of(node: fx.Node) -> Optional[int]:
    """The number of the module's own checkpoint that computes a node again; None without one."""
    return node.meta.get("ac_graph_id", 0) if partitioners.must_recompute(node) else None


def usual_halves(joint: fx.GraphModule, num_forward_outputs: int, fused: bool,
                 parameters: Sequence[int] = ()) -> List[Set[str]]:
    """Names of what PyTorch runs in forward and in backward without a plan.

    That is as the module's own checkpoints say and, under Inductor, as is the least traffic, for
    which these inputs are there anyway.
    """
    divide = min_cut if fused else default_partition
    with _undrawn():
        halves = divide(copied(joint), (), None, num_fwd_outputs=num_forward_outputs,
                        static_lifetime_input_indices=list(parameters))
    return [{node.name for node in half.graph.nodes if node.op == "call_function"}
            for half in halves]


@contextlib.contextmanager
def _undrawn() -> Iterator[None]:
    """Splits in the block are only looked at: they save no random states.

    Those are for what draws again, such as attention, even where its dropout is 0.
    """
    saved = partitioners.has_recomputable_rng_ops
    partitioners.has_recomputable_rng_ops = lambda joint: False
    try:
        yield
    finally:
        partitioners.has_recomputable_rng_ops = saved


def copied(joint: fx.GraphModule) -> fx.GraphModule:
    """A joint graph that a partitioner may change; nodes keep their names.

    Code is written for it when it runs.
    """
    graph = fx.Graph()
    made = graph.output(graph.graph_copy(joint.graph, {}))
    made.meta = dict(joint.graph.output_node().meta)
    return _LazyGraphModule(joint, graph)
