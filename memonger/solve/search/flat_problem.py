"""A graph as the flat numbers that ``Problem::Parse`` in ``plugins/core/problem.cc`` reads."""
from __future__ import annotations

import itertools
from typing import List, Sequence, Tuple

from ...graph.clock import STREAMS
from ...graph.types import DTYPES, Graph, Implementation
from ...memory.liveness import dtype_number, number_of_elements, own_buffer_tensors
from ..options import Options


def flat_problem(graph: Graph, options: Options,
                 variants: Sequence[int]) -> Tuple[List[int], List[float]]:
    """Integers and times of a problem with these variants."""
    integers: List[int] = [graph.pools == "cached_op", options.max_clones,
                           graph.objects_bytes_per_op,
                           -1 if options.host_budget_bytes is None else options.host_budget_bytes,
                           len(graph.tensors), len(graph.ops), len(variants)]
    times: List[float] = []
    outputs = {*graph.outputs, *graph.held_for_gradients}
    kept = {op.outputs[position] for op in graph.ops for position in op.kept_outputs}
    # An op's own implementation and those that the variants choose, numbered anew.
    implementations = [[op.implementations[0]] for op in graph.ops]
    choices: List[List[Tuple[int, int]]] = []
    for index in variants:
        choices.append([])
        for changed, other in graph.implementations_of(index):
            choices[-1].append((changed, len(implementations[changed])))
            implementations[changed].append(other)
    everything = list(itertools.chain.from_iterable(implementations))
    # Whichever run of its op made the value: a little more than :func:`build_program` counts.
    own_buffers = {t for other in everything for t in own_buffer_tensors(other)}
    made = {t for other in everything for t in other.outputs}
    for number in range(len(graph.tensors)):
        tensor = graph.tensors[graph.owner(number)]
        item_bytes = DTYPES[tensor.dtype]
        on_host = tensor.space == "host"
        integers += [tensor.size_bytes * (not on_host), tensor.size_bytes * on_host,
                     number_of_elements(tensor.size_bytes, tensor.shape, item_bytes),
                     dtype_number(tensor.dtype), item_bytes, not tensor.pooled,
                     graph.owner(number) != number, number in outputs, number in kept,
                     number in own_buffers, number in made]
    pins = {**dict.fromkeys(options.keep, 1), **dict.fromkeys(options.recompute, 2)}
    for number, op in enumerate(graph.ops):
        rerun = op.recomputable and not op.is_backward
        state_of = op.forward_op if op.uses_state else -1
        integers += [op.is_backward, rerun, state_of, op.device, pins.get(number, 0),
                     len(implementations[number])]
        for other in implementations[number]:
            _flatten_implementation(other, op.uses_state, integers)
            times.append(other.time_s if other.runs else 0.0)
    for chosen in choices:
        integers.append(len(chosen))
        for pair in chosen:
            integers += pair
    if graph.has_streams:
        for op in graph.ops:
            integers += [STREAMS.index(op.stream), op.hands_on + 1]
    return [int(number) for number in integers], times


def _flatten_implementation(implementation: Implementation, uses_state: bool,
                            integers: List[int]) -> None:
    runs = implementation.runs
    inputs = implementation.inputs if runs else ()
    outputs = implementation.outputs if runs else ()
    inplace = implementation.inplace if runs else ()
    integers += [runs, uses_state and runs, implementation.adds_into_first and runs,
                 implementation.workspace_bytes if runs else 0, len(inputs)]
    ignored = set(implementation.ignored_inputs)
    for position, tensor in enumerate(inputs):
        integers += [tensor, position in ignored]
    integers += [len(outputs), *outputs, len(inplace)]
    for option in inplace:
        integers += [option.input, option.output, option.identity]
