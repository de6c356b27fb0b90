"""Planning hybridized Gluon blocks.

A hybridized block runs through MXNet's CachedOp, which takes gradients with the same pass as an
executor, so the plugin's clones work there too. Two things differ and are modelled here: CachedOp
has one pool for forward and one for backward, and outputs, gradients and head gradients lie in
arrays of the caller.
"""
from __future__ import annotations

import inspect
import json
import operator
import time
from dataclasses import replace
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Set, Tuple

import numpy as np

from ...graph.types import Graph, Op
from ...plan.plan import Budget, Plan
from ...report.progress import shows_progress
from ...util import argument_checks as check
from ...util.errors import InputError, MemongerError, PluginError
from ..memory.stated_gpu import place, resolve_budget
from ..plugin import loading as native
from ..plugin.environment import mxnet


@shows_progress
def plan(block: Any, *inputs_or_shapes: Any, budget: Budget = None, dtype: str = "float32",
         ctx: Any = None, device: Optional[str] = None, **options: Any) -> Plan:
    """Plan a hybridized block; from now on it trains by the plan.

    Parameters
    ----------
    block : mx.gluon.HybridBlock
        Hybridized. Its graph is traced if it was not yet. ``block.hybridize()`` called again
        removes the plan.
    *inputs_or_shapes : mx.nd.NDArray or tuple of int
        One for each input of the block; only shape, dtype and whether a gradient is attached
        matter.
    budget : int, float or str, optional
        As in :func:`memonger.plan`, on parameters, gradients, inputs, outputs and both pools.
    dtype : str
        Of inputs that are given as shapes.
    ctx : mx.Context, optional
        Where the block trains; by default where its parameters are.
    device : str, optional
        A GPU that need not be there, as in :func:`memonger.plan`.
    **options
        As in :func:`memonger.plan`: method, variants, keep, recompute, costs, time_limit, ...

    Returns
    -------
    Plan
        ``plan.symbol`` is the graph that the block now runs.

    Raises
    ------
    InputError
        If the block is not hybridized, or the inputs do not fit it.
    """
    started_s = time.perf_counter()
    from ...planning.planning import plan_network
    from ...planning.requests import PlanRequest
    from .binding import Binding
    from .inputs import check_options
    from .opening import open_network
    mx = mxnet()
    if not isinstance(block, mx.gluon.HybridBlock):
        raise InputError("only HybridBlocks can be planned here, not %s; memonger.plan plans "
                         "symbols" % type(block).__name__)
    if not block._active and not isinstance(block, mx.gluon.SymbolBlock):
        raise InputError("hybridize the block before planning it: block.hybridize()")
    native.load()
    if native.backend() == "stock":
        raise PluginError("stock MXNet does not recompute in Gluon blocks; switch the plugin on: "
                          "memonger.native.enable()")
    known = {*inspect.signature(PlanRequest).parameters, "costs", "optimizer", "optimizer_params"}
    unknown = sorted(set(options) - known)
    check_options("gluon.plan", known, unknown)
    if unknown:
        raise InputError("gluon.plan() has no option %r; there are %s"
                         % (unknown[0], ", ".join(sorted(known))))
    check.dtype("dtype", dtype)
    arrays = [_as_array(item, dtype) for item in inputs_or_shapes]
    if not arrays:
        raise InputError("give the inputs of the block or their shapes, for example "
                         "memonger.gluon.plan(net, (32, 3, 224, 224))")
    data, out = _traced(block, arrays)
    if len(data) != len(arrays):
        raise InputError("the block has %d inputs, %d were given" % (len(data), len(arrays)))
    from ..rewrite.apply import strip_symbol
    shapes = {symbol.name: array.shape for symbol, array in zip(data, arrays)}
    parameters = block.collect_params()
    original = _with_known_shapes(strip_symbol(out), shapes, parameters)
    types = {name: np.dtype(parameters[name].dtype).name for name in original.list_inputs()
             if name in parameters}
    types.update({symbol.name: np.dtype(array.dtype).name
                  for symbol, array in zip(data, arrays)})
    requests = {name: parameters[name].grad_req if name in parameters else "null"
                for name in original.list_arguments()}
    requests.update({symbol.name: "write" for symbol, array in zip(data, arrays)
                     if array.grad is not None})
    ctx = place(ctx, device) or _place_of(block)
    binding = Binding(shapes, types, requests, ctx, optimizer=options.pop("optimizer", None),
                      optimizer_params=options.pop("optimizer_params", None))
    network = open_network(original, binding, options.pop("costs", "auto"),
                           cached_op_reader(shapes, types, ctx), copies_stay=_is_static(block))
    options.setdefault("name", type(block).__name__)
    made = plan_network(network, PlanRequest(resolve_budget(budget, ctx), **options), started_s)
    block._cached_graph = (data, made.symbol)
    block._cached_op = None
    return made


def strip(block: Any) -> None:
    """Remove the plan of a block.

    Parameters
    ----------
    block : mx.gluon.HybridBlock
        One without a plan stays as it is.
    """
    from ..rewrite.apply import strip_symbol
    if not isinstance(block, mxnet().gluon.HybridBlock):
        raise InputError("only HybridBlocks carry plans here, not %s; memonger.strip removes one "
                         "from a symbol" % type(block).__name__)
    if block._cached_graph:
        data, out = block._cached_graph
        block._cached_graph = (data, strip_symbol(out))
        block._cached_op = None


def _is_static(block: Any) -> bool:
    """Whether the block's CachedOp keeps the executors of its ops from call to call."""
    flags = dict(block._flags)
    return bool(flags.get("static_alloc")) and bool(flags.get("static_shape"))


def _place_of(block: Any) -> Any:
    """The first device of the parameters; None where they have none yet."""
    for parameter in block.collect_params().values():
        if parameter._data is not None:
            return parameter.list_ctx()[0]
        if parameter._deferred_init:
            return parameter._deferred_init[1][0]
    return None


def _as_array(item: Any, dtype: str) -> Any:
    mx = mxnet()
    if isinstance(item, mx.nd.NDArray):
        return item
    try:
        if hasattr(item, "shape"):  # of NumPy, say
            item = item.shape
        shape = tuple(operator.index(n) for n in item)
        if min(shape, default=0) < 0:
            raise TypeError
    except TypeError:
        raise InputError("an input must be an mx.nd.NDArray or a shape, not %s; write options by "
                         "name, for example budget=\"60%%\"" % check.shown(item)) from None
    from mxnet.ndarray.ndarray import _new_alloc_handle
    array = mx.np.ndarray if mx.util.is_np_array() else mx.nd.NDArray
    return array(_new_alloc_handle(shape, mx.cpu(), True, np.dtype(dtype).type))


def _traced(block: Any, arrays: Sequence[Any]) -> Tuple[List[Any], Any]:
    mx = mxnet()
    try:
        data, out = block._get_graph(*arrays)
    except (mx.MXNetError, ValueError, AssertionError, TypeError) as error:
        raise InputError("the block cannot be traced with these inputs: %s" % error) from error
    return list(data), out


def _with_known_shapes(symbol: Any, shapes: Mapping[str, Sequence[int]],
                       parameters: Mapping[str, Any]) -> Any:
    """With the shapes of parameters on their variables, where those of the data leave any open.

    A SymbolBlock's variables have none; a CachedOp takes them from the arrays.
    """
    from ..capture.binding import infers_all, is_known
    from ..rewrite.apply import from_json
    from ..symbol.common_subexpressions import symbol_text, to_json
    if infers_all(symbol, shapes):
        return symbol
    document = json.loads(to_json(symbol))
    for node in document["nodes"]:
        if node["op"] == "null" and node["name"] in parameters:
            shape = parameters[node["name"]].shape
            if is_known(shape):
                node.setdefault("attrs", {})["__shape__"] = str(tuple(shape))
    return from_json(symbol_text(document), symbol)


def cached_op_reader(shapes: Mapping[str, Sequence[int]], types: Mapping[str, Any],
                     ctx: Any = None) -> Callable[[Graph, Any], Graph]:
    """:func:`as_cached_op` of a graph and its symbol, with what is kept for any gradient."""
    from ..capture.record import read

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
        return replace(op, inputs=tuple(replaced.get(t, t) for t in op.inputs),
                       forward_op=number.get(op.forward_op, -1),
                       not_recomputable_because=op.not_recomputable_because or
                       ("it has a state of its own, which CachedOp cannot make twice"
                        if op.makes_state else ""),
                       control_deps=tuple(number[d] for d in op.control_deps if d in number))

    held = set(graph.outputs)
    tensors = tuple(
        replace(t, producer=-1, category="head_gradient", pooled=False) if i in replaced else
        replace(t, producer=number.get(t.producer, -1),
                pooled=t.pooled and i not in held)
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
