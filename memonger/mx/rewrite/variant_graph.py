"""Adds the variants that a network allows to its graph.

The network is bound a few more times, each time with variants in place of as many ops as do not
touch each other, until each op has been replaced by each variant that it allows. What MXNet reports
of the replaced ops becomes :class:`memonger.graph.Variant` entries of the base graph: the tensors
that forward makes and backward reads, in-place options, times. Planners choose among them without
MXNet.
"""
from __future__ import annotations

from dataclasses import replace
from typing import (
    AbstractSet,
    Any,
    Callable,
    Dict,
    List,
    Mapping,
    NamedTuple,
    Optional,
    Sequence,
    Set,
    Tuple,
)

from ...graph.offers import Offer, offering
from ...graph.types import Graph, Implementation, Op, Tensor
from ..capture.record import Captured
from ..symbol.catalogue import VariantKind
from ..symbol.swap import candidates, kind, members, swap_json
from .apply import from_json
from .gradient_split import with_placeholders, worth_splitting

_REAL = frozenset({"float16", "float32", "float64"})

#: A variant of which nothing was measured counts as so many times the ops that it stands for, at
#: least: it is no gain, and running an op again that costs the same is better.
UNMEASURED = 1.1


class Prices(NamedTuple):
    """What the ops of a graph take."""

    times_s: Sequence[float]
    workspace_bytes: Sequence[int]
    #: Ops whose times are a guess.
    guessed: AbstractSet[int] = frozenset()


Read = Callable[[Any], Captured]
Times = Callable[[Captured], Prices]


def with_variants(graph: Graph, symbol_json: str, exact_only: bool, read: Read,
                  times: Times, on_gpu: bool = False) -> Graph:
    """The graph with every variant that the symbol allows.

    It has placeholders where a variant has more gradient ops than what it replaces.

    ``graph``: of the unplanned symbol.
    ``exact_only``: leave variants out whose results differ in the last bits.
    ``read``: binds a symbol in the same way as ``graph`` was bound.
    ``times``: times and workspaces of the ops of a captured graph.
    ``on_gpu``: whether the plan is for a GPU.
    """
    by_kind: Dict[str, List[str]] = {}
    for op, names in sorted(offers(graph, symbol_json, exact_only, on_gpu).items()):
        for name in names:
            by_kind.setdefault(name, []).append(op)
    gradients = worth_splitting(graph)
    graph = with_placeholders(graph, {gradients[op] for op in by_kind.get("split_convolution", ())})
    tensors, offered = list(graph.tensors), []
    base = _Known.of(graph)
    chains = {(name, op): members(symbol_json, op, name) for name in sorted(by_kind)
              for op in _disjoint(symbol_json, by_kind[name], name)}
    swapped_in: Dict[Tuple[str, str], _Known] = {}
    for together in swapped_together(chains):
        swapped = read(from_json(swap_json(symbol_json, {op: name for name, op in together},
                                           graph.op_index.keys())))
        seconds, spaces, guessed = times(swapped)
        swapped_in.update(dict.fromkeys(
            together, _Known.of(swapped.graph.with_times(seconds, spaces), guessed)))
    for (name, op), chain in chains.items():
        made = _variant(base, tensors, swapped_in[name, op], op, chain, kind(name))
        if made is not None:
            offered.append(made)
    return offering(replace(graph, tensors=tuple(tensors)), offered)


def offers(graph: Graph, symbol_json: str, exact_only: bool = False,
           on_gpu: bool = False) -> Dict[str, List[str]]:
    """Variants to consider for each op of the graph.

    None for integer tensors, which most of our operators refuse.
    """
    split = worth_splitting(graph)
    real = {op.name for op in graph.ops if graph.tensors[op.outputs[0]].dtype in _REAL}
    names_of = {op: [name for name in names if name != "split_convolution" or op in split]
                for op, names in candidates(symbol_json, exact_only, on_gpu).items()
                if op in graph.op_index and op in real}
    return {op: names for op, names in names_of.items() if names}


def _disjoint(symbol_json: str, ops: Sequence[str], name: str) -> List[str]:
    """Those of ``ops`` whose chains do not overlap."""
    taken: Set[str] = set()
    chosen = []
    for op in ops:
        chain = set(members(symbol_json, op, name))
        if not chain & taken:
            taken |= chain
            chosen.append(op)
    return chosen


def swapped_together(chains: Mapping[Tuple[str, str], Sequence[str]]
                     ) -> List[List[Tuple[str, str]]]:
    """Swaps grouped greedily into few sets, so that chains of one set do not overlap."""
    rounds: List[List[Tuple[str, str]]] = []
    taken: List[Set[str]] = []
    for swap, chain in chains.items():
        number = next((i for i, ops in enumerate(taken) if ops.isdisjoint(chain)), len(rounds))
        if number == len(rounds):
            rounds.append([])
            taken.append(set())
        rounds[number].append(swap)
        taken[number].update(chain)
    return rounds


class _Known(NamedTuple):
    """A graph with the look-up tables for translating variants."""

    graph: Graph
    #: Gradient ops of each forward op.
    backward: Dict[int, List[int]]
    #: Tensors that exist before the step, by name.
    variables: Dict[str, int]
    #: Ops whose times are a guess.
    guessed: AbstractSet[int]

    @classmethod
    def of(cls, graph: Graph, guessed: AbstractSet[int] = frozenset()) -> "_Known":
        backward: Dict[int, List[int]] = {}
        for index, op in enumerate(graph.ops):
            if op.is_backward:
                backward.setdefault(op.forward_op, []).append(index)
        return cls(graph, backward,
                   {t.name: i for i, t in enumerate(graph.tensors) if t.producer < 0}, guessed)


def _variant(base: _Known, tensors: List[Tensor], other: _Known, name: str,
             chain: Sequence[str], variant: VariantKind) -> Optional[Offer]:
    """Translate one swapped op; adds the tensors that only it makes to ``tensors``.

    None where the gradients have too different a structure to match their ops.
    """
    graph, swapped = base.graph, other.graph
    index = graph.op_index
    if any(op not in index for op in chain) or name not in swapped.op_index:
        return None
    forward_ids = [index[op] for op in chain]
    last, first = forward_ids[-1], forward_ids[0]
    new_id = swapped.op_index[name]
    new_forward = swapped.ops[new_id]
    old_backward = {f: base.backward.get(f, []) for f in forward_ids}
    new_backward = _gradient_ops(other, new_id, variant)
    if any(len(ops) != 1 for ops in old_backward.values()) or not new_backward:
        return None
    # Where they run: placeholders in front of the gradient of the chain's first op, and that one.
    targets = range(old_backward[first][0] + 1 - len(new_backward), old_backward[first][0] + 1)
    if any(graph.ops[target].runs for target in targets[:-1]):
        return None
    behind = graph.ops[old_backward[last][0]]
    made = _gradients_made(graph, [old_backward[f][0] for f in forward_ids])
    if made is None:
        return None
    known: Dict[int, int] = {}

    def fresh(tensor: int, producer: int) -> int:
        tensors.append(replace(swapped.tensors[tensor], producer=producer))
        return len(tensors) - 1

    for position, tensor in enumerate(new_forward.outputs):
        known[tensor] = graph.ops[last].outputs[0] if position == 0 else fresh(tensor, last)
    waiting = list(made)
    for op, target in zip(reversed(new_backward), reversed(targets)):
        for tensor in op.outputs:
            known[tensor] = waiting.pop(0) if waiting else fresh(tensor, target)
    gradients = [t for t in behind.inputs if _is_gradient(graph, t)]
    implementations: List[Tuple[int, Implementation]] = []
    for op, target in zip([new_forward, *new_backward], [last, *targets]):
        inputs = _inputs(base, swapped, op, known, gradients)
        if inputs is None:
            return None
        implementations.append((target, replace(
            op.implementations[0], inputs=inputs, outputs=tuple(known[t] for t in op.outputs))))
    if not other.guessed.isdisjoint([new_id, *other.backward[new_id]]):
        implementations[0] = (last, _without_gain(graph, [
            *forward_ids, *(i for ops in old_backward.values() for i in ops)], implementations))
    idle = [f for f in forward_ids if f != last] + \
        [old_backward[f][0] for f in forward_ids if f != first]
    read = {t for _, implementation in implementations for t in implementation.inputs}
    idle += _for_nobody_else(graph, [old_backward[f][0] for f in forward_ids], read)
    implementations += [(op, Implementation((), (), runs=False)) for op in idle]
    return Offer(variant.name, last,
                 tuple(sorted(implementations, key=lambda item: item[0])), variant.exact)


def _without_gain(graph: Graph, replaced: Sequence[int],
                  implementations: Sequence[Tuple[int, Implementation]]) -> Implementation:
    """The first implementation, so slow that all together are slower than what they replace."""
    least_s = UNMEASURED * sum(graph.ops[op].time_s for op in replaced)
    first = implementations[0][1]
    missing_s = least_s - sum(implementation.time_s for _, implementation in implementations)
    return replace(first, time_s=first.time_s + max(0.0, missing_s))


def _inputs(base: _Known, swapped: Graph, op: Op, known: Mapping[int, int],
            gradients: Sequence[int]) -> Optional[Tuple[int, ...]]:
    """What an op of the swapped graph reads, as tensors of the base graph.

    ``known``: tensors of the swapped graph that were translated already.
    ``gradients``: gradients that the chain receives, in order; names do not identify them.
    None where the base graph has no such tensor.
    """
    result: List[int] = []
    waiting = list(gradients)
    for tensor in op.inputs:
        item = swapped.tensors[tensor]
        if tensor in known:
            result.append(known[tensor])
        elif item.producer < 0 and item.name in base.variables:
            result.append(base.variables[item.name])
        elif _is_gradient(swapped, tensor):
            if not waiting:
                return None
            result.append(waiting.pop(0))
        else:
            maker = swapped.ops[item.producer]
            if maker.name not in base.graph.op_index:
                return None
            outputs = base.graph.ops[base.graph.op_index[maker.name]].outputs
            position = maker.outputs.index(tensor)
            if position >= len(outputs):
                return None
            result.append(outputs[position])
    return tuple(result)


def _gradient_ops(swapped: _Known, forward: int, variant: VariantKind) -> List[Op]:
    """The ops that make a variant's gradient; none where they do not run one after the other."""
    indices = swapped.backward.get(forward, [])
    if len(indices) != variant.gradient_ops or indices[-1] - indices[0] != len(indices) - 1:
        return []
    return [swapped.graph.ops[index] for index in indices]


def _for_nobody_else(graph: Graph, backward: Sequence[int], read: AbstractSet[int]) -> List[int]:
    """Backward ops that serve ``backward`` alone, and nothing once only ``read`` is read.

    The zeros that stand for gradients of hidden outputs are such ops.
    """
    makers = []
    for tensor in sorted({t for op in backward for t in graph.ops[op].inputs}):
        maker = graph.tensors[tensor].producer
        if maker in backward or maker < 0 or not graph.ops[maker].is_backward:
            continue
        outputs = graph.ops[maker].outputs
        if not read & set(outputs) and graph.output_set.isdisjoint(outputs) and all(
                reader in backward for t in outputs for reader in graph.consumers[t]):
            makers.append(maker)
    return sorted(set(makers))


def _gradients_made(graph: Graph, backward: Sequence[int]) -> Optional[List[int]]:
    """The gradients that a chain's backward ops make for others, in the order of its inputs.

    ``backward`` lists the ops by the order of the chain in forward; each reads the gradient that
    the one behind it makes. The op that takes their place makes them all, where that of the
    chain's first op is made. None when somebody wants one earlier.
    """
    made: List[int] = []
    for position, op in enumerate(backward):
        inside = graph.ops[backward[position - 1]].inputs if position else ()
        outputs = [t for t in graph.ops[op].outputs if t not in inside]
        if any(reader < backward[0] for t in outputs for reader in graph.consumers[t]):
            return None
        made += outputs
    return made


def _is_gradient(graph: Graph, tensor: int) -> bool:
    producer = graph.tensors[tensor].producer
    if producer < 0:
        return graph.tensors[tensor].category == "head_gradient"
    return graph.ops[producer].is_backward
