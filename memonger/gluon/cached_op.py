"""The graph of an executor as CachedOp, through which hybridized blocks run, runs it."""
from __future__ import annotations

from dataclasses import replace
from typing import Any, Callable, Dict, Mapping, Optional, Sequence, Set, Tuple

from ..graph.types import Graph, Op
from ..util.errors import MemongerError


def cached_op_reader(shapes: Mapping[str, Sequence[int]], types: Mapping[str, Any],
                     ctx: Any = None) -> Callable[[Graph, Any], Graph]:
    """:func:`as_cached_op` of a graph and its symbol, with what is kept for any gradient."""
    from ..mx.capture.record import read

    def convert(graph: Graph, symbol: Any) -> Graph:
        fused = any(op.kind == "_FusedOp" for op in graph.ops)
        try:
            every = read(symbol, shapes, types, "write", ctx, as_run=fused).graph
        except MemongerError:  # not all inputs have gradients: nothing more is known
            return as_cached_op(graph)
        return as_cached_op(graph, every)
    return convert


def as_cached_op(graph: Graph, every: Optional[Graph] = None) -> Graph:
    """The graph of an executor as CachedOp runs it.

    The nodes that give head gradients the shape of the outputs are gone, outputs are the
    caller's, and each half of the step has a pool of its own. Ops with a state are never
    recomputed: CachedOp does not keep the states of clones (plugins/mxnet/op_facts.h).

    Parameters
    ----------
    graph : Graph
        With the gradients that are asked for.
    every : Graph, optional
        With the gradients of all inputs. CachedOp keeps in forward what any of them would read.
    """
    unasked: Tuple[int, ...] = ()
    # Tensors that are read for their shape alone stay even if recomputed: nothing waits for clones.
    stays: Set[int] = set()
    if every is not None:
        # Forward comes first in both graphs, with the same numbers.
        known = [(op.name, op.inputs, op.outputs) for op in graph.ops if not op.is_backward]
        other = [(op.name, op.inputs, op.outputs) for op in every.ops if not op.is_backward]
        if known == other:
            stays = _read_for_its_shape(every) - set(graph.outputs)
            unasked = tuple(sorted(_read_in_backward(every) - _read_in_backward(graph) - stays))
            graph = _refusing(graph, every)
    replaced: Dict[int, int] = {}
    dropped = set()
    for index, op in enumerate(graph.ops):
        if op.is_backward and op.kind == "_identity_with_attr_like_rhs" \
                and graph.tensors[op.inputs[0]].category == "head_gradient":
            replaced[op.outputs[0]] = op.inputs[0]
            dropped.add(index)
    number = {old: new for new, old in enumerate(i for i in range(len(graph.ops))
                                                 if i not in dropped)}

    def renumbered(op: Op) -> Op:
        return op.changed(inputs=tuple(replaced.get(t, t) for t in op.inputs),
                       forward_op=number.get(op.forward_op, -1),
                       not_recomputable_because=op.not_recomputable_because or
                       ("it has a state of its own, which CachedOp cannot make twice"
                        if op.makes_state else ""),
                       control_deps=tuple(number[d] for d in op.control_deps if d in number))

    held = set(graph.outputs)
    tensors = tuple(
        replace(t, producer=-1, category="head_gradient", space="outside") if i in replaced else
        replace(t, producer=number.get(t.producer, -1),
                space="outside" if i in held else t.space)
        for i, t in enumerate(graph.tensors))
    ops = tuple(renumbered(op) for i, op in enumerate(graph.ops) if i not in dropped)
    return replace(graph, tensors=tensors, ops=ops, outputs=graph.outputs + tuple(sorted(stays)),
                   pools="cached_op", held_for_gradients=unasked)


def _refusing(graph: Graph, every: Graph) -> Graph:
    """With the ops kept that the graph with all gradients keeps.

    What a gradient that nobody asked for reads stays, so a clone would free nothing.
    """
    refusals = [op.not_recomputable_because for op in every.ops if not op.is_backward]
    ops = tuple(replace(op, not_recomputable_because=op.not_recomputable_because or reason)
                for op, reason in zip(graph.ops, refusals))
    return replace(graph, ops=ops + graph.ops[len(refusals):])


def _made_in_forward(graph: Graph) -> Set[int]:
    return {t for op in graph.ops if not op.is_backward for t in op.outputs}


def _read_in_backward(graph: Graph) -> Set[int]:
    made = _made_in_forward(graph)
    return {t for op in graph.ops if op.is_backward for t in op.inputs if t in made}


def _read_for_its_shape(graph: Graph) -> Set[int]:
    made = _made_in_forward(graph)
    return {op.inputs[i] for op in graph.ops if op.is_backward for i in op.ignored_inputs
            if op.inputs[i] in made}
