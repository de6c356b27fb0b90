"""Planning hybridized Gluon blocks.

A hybridized block runs through MXNet's CachedOp, which takes gradients with the same pass as an
executor, so the plugin's clones work there too. Two things differ and are modelled here: CachedOp
has one pool for forward and one for backward, and outputs, gradients and head gradients lie in
arrays of the caller.
"""
from __future__ import annotations

import inspect
import json
import time
from typing import TYPE_CHECKING, Any, Dict, Iterator, Mapping, Optional, Sequence, Tuple

import numpy as np

from ..mx.memory.stated_gpu import place, resolve_budget
from ..mx.plugin import loading as native
from ..mx.plugin.environment import mxnet
from ..plans.plan import Budget, Plan
from ..report.progress import shows_progress
from ..util import argument_checks as check
from ..util.errors import InputError
from .cached_op import cached_op_reader
from .tracing import Trace, as_arrays, has_own_call, takes_by_name, trace

if TYPE_CHECKING:
    from ..plans.verification import Verification


@shows_progress
def plan(block: Any, *inputs_or_shapes: Any, budget: Budget = None, dtype: str = "float32",
         ctx: Any = None, device: Optional[str] = None, **options: Any) -> Plan:
    """Plan a hybridized block; from now on it trains by the plan.

    Parameters
    ----------
    block : mx.gluon.HybridBlock
        Hybridized. Its graph is the one that it would get in a first call in training, under
        ``autograd.record()``. ``block.hybridize()`` called again removes the plan.
    *inputs_or_shapes : mx.nd.NDArray, tuple of int, None or list of these
        The arguments of the block's call; of arrays only shape, dtype and whether a gradient is
        attached matter.
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
        Other names are arguments of the block's call, where that takes any by name.

    Returns
    -------
    Plan
        ``plan.symbol`` is the graph that the block now runs.

    Raises
    ------
    InputError
        If the block is not hybridized, or its call fails with these inputs.
    """
    started_s = time.perf_counter()
    from ..mx.calls.binding import Binding
    from ..mx.calls.inputs import check_options
    from ..mx.calls.opening import open_network
    from ..planning.requests import PlanRequest
    from ..planning.searches import plan_network
    _check_block(block, "memonger.plan plans symbols")
    if not block._active and not isinstance(block, mxnet().gluon.SymbolBlock):
        raise InputError("hybridize the block before planning it: block.hybridize()")
    native.load()
    known = {*inspect.signature(PlanRequest).parameters, "costs", "optimizer", "optimizer_params"}
    unknown = sorted(set(options) - known)
    named = {name: options.pop(name) for name in unknown if takes_by_name(block, name)}
    unknown = [name for name in unknown if name not in named]
    check_options("gluon.plan", known, unknown)
    if unknown:
        raise InputError("gluon.plan() has no option %r; there are %s"
                         % (unknown[0], ", ".join(sorted(known))))
    check.dtype("dtype", dtype)
    traced = _traced(block, inputs_or_shapes, named, dtype)
    original, shapes, types, requests = _bound(block, traced)
    ctx = place(ctx, device) or _place_of(block)
    binding = Binding(shapes, types, requests, ctx, optimizer=options.pop("optimizer", None),
                      optimizer_params=options.pop("optimizer_params", None))
    network = open_network(original, binding, options.pop("costs", "auto"),
                           cached_op_reader(shapes, types, ctx), copies_stay=_is_static(block))
    options.setdefault("name", type(block).__name__)
    made = plan_network(network, PlanRequest(resolve_budget(budget, ctx), **options), started_s)
    traced.put(block, made.symbol)
    return made


def verify(block: Any, *inputs_or_shapes: Any, steps: int = 2, seed: int = 0,
           tolerance: float = 1e-5, dtype: str = "float32", **named: Any) -> Verification:
    """Train a planned block beside the block as Gluon runs it without a plan.

    The unplanned graph is traced anew, by a first call in training. Both run as a hybridized block
    does, under ``autograd.record()``; gradients are taken from all outputs that have any, and
    outputs, gradients and aux states are compared after each step. The block's own arrays stay as
    they are.

    Parameters
    ----------
    block : mx.gluon.HybridBlock
        Planned. Values of its parameters are used where it is initialized.
    *inputs_or_shapes, dtype, **named
        As for :func:`plan`. Values of arrays are used; shapes get random values.
    steps : int
        Training steps, with plain gradient descent between them.
    seed : int
        Of random values.
    tolerance : float
        As in :func:`memonger.verify`.

    Returns
    -------
    memonger.plans.verification.Verification
        As of :func:`memonger.verify`.

    Raises
    ------
    InputError
        If the block carries no plan, or its call fails with these inputs.
    BindError
        If MXNet cannot run it.
    """
    from ..mx.capture.binding import infer_arguments
    from ..mx.check.training_run import random_values
    from ..mx.check.verify import compared
    from ..mx.rewrite.apply import is_planned
    from ..mx.symbol.common_subexpressions import to_json
    from .block_training import BlockTraining
    _check_block(block, "memonger.verify compares symbols and plans")
    check.whole_number("steps", steps, 1)
    check.whole_number("seed", seed, 0)
    check.real_number("tolerance", tolerance)
    check.dtype("dtype", dtype)
    native.available()
    traced = _traced(block, inputs_or_shapes, named, dtype)
    original, shapes, types, requests = _bound(block, traced)
    planned = block._cached_graph[1] if block._cached_graph else original
    if not is_planned(planned) and to_json(original) == to_json(
            _settled(planned, shapes, block.collect_params())):
        raise InputError("the block carries no plan, so there is nothing to compare; plan it with "
                         "memonger.gluon.plan, after the last block.hybridize()")
    ctx = _place_of(block)
    values = {name: parameter.data(parameter.list_ctx()[0]).asnumpy()
              for name, parameter in block.collect_params().items() if parameter._data is not None}
    given = {id(array) for array in _arrays_in([inputs_or_shapes, list(named.values())])}
    values.update({symbol.name: array.asnumpy()
                   for symbol, array in zip(traced.data, traced.arrays) if id(array) in given})
    start: Dict[str, np.ndarray] = {}
    for symbol in (planned, original):
        asked = {name: requests.get(name, "null") for name in symbol.list_arguments()}
        arguments = infer_arguments(symbol, {
            name: shape for name, shape in shapes.items() if name in symbol.list_inputs()},
            {name: dtype for name, dtype in types.items() if name in symbol.list_inputs()}, asked)
        start.update(random_values(symbol, arguments, seed, values))
    training = BlockTraining(shapes, steps, ctx, requests, seed, 0.001, tuple(block._flags),
                             frozenset(symbol.name for symbol in traced.data))
    return compared(planned, original, training, start, arguments, types, tolerance)


def strip(block: Any) -> None:
    """Remove the plan of a block.

    Parameters
    ----------
    block : mx.gluon.HybridBlock
        One without a plan stays as it is.
    """
    from ..mx.rewrite.apply import strip_symbol
    _check_block(block, "memonger.strip removes one from a symbol")
    if block._cached_graph:
        data, out = block._cached_graph
        block._cached_graph = (data, strip_symbol(out))
        block._cached_op = None


def _check_block(block: Any, elsewhere: str) -> None:
    if not isinstance(block, mxnet().gluon.HybridBlock):
        raise InputError("only HybridBlocks carry plans here, not %s; %s"
                         % (type(block).__name__, elsewhere))


def _traced(block: Any, inputs: Sequence[Any], named: Mapping[str, Any], dtype: str) -> Trace:
    """What the block runs in training, its inputs given as arrays or shapes."""
    if not inputs and not named:
        raise InputError("give the inputs of the block or their shapes, for example "
                         "memonger.gluon.plan(net, (32, 3, 224, 224))")
    loose = has_own_call(block)
    traced = trace(block, [as_arrays(item, dtype, loose) for item in inputs],
                   {name: as_arrays(item, dtype, loose) for name, item in named.items()})
    if len(traced.data) != len(traced.arrays):
        raise InputError("the block has %d inputs, %d were given"
                         % (len(traced.data), len(traced.arrays)))
    return traced


def _bound(block: Any, traced: Trace) -> Tuple[Any, Dict[str, Any], Dict[str, str], Dict[str, str]]:
    """The graph of a block without a plan; shapes of its inputs, types, and gradient requests."""
    from ..mx.rewrite.apply import strip_symbol
    used = set(traced.out.list_inputs())
    inputs = {symbol.name: array for symbol, array in zip(traced.data, traced.arrays)
              if symbol.name in used}
    shapes = {name: array.shape for name, array in inputs.items()}
    parameters = block.collect_params()
    original = _settled(strip_symbol(traced.out), shapes, parameters)
    types = {name: np.dtype(parameters[name].dtype).name for name in original.list_inputs()
             if name in parameters}
    types.update({name: np.dtype(array.dtype).name for name, array in inputs.items()})
    requests = {name: parameters[name].grad_req if name in parameters else "null"
                for name in original.list_arguments()}
    requests.update({name: "write" for name, array in inputs.items() if array.grad is not None})
    return original, shapes, types, requests


def _arrays_in(item: Any) -> Iterator[Any]:
    if isinstance(item, (list, tuple)):
        for part in item:
            yield from _arrays_in(part)
    elif isinstance(item, mxnet().nd.NDArray):
        yield item


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


def _settled(symbol: Any, shapes: Mapping[str, Sequence[int]],
             parameters: Mapping[str, Any]) -> Any:
    """With the shapes of parameters on their variables, where those of the data leave any open.

    A SymbolBlock's variables have none; a CachedOp takes them from the arrays. What MXNet counts on
    in an aux state's variable with each trace of a block starts from 0: a network has one JSON.
    """
    from ..mx.capture.binding import infers_all, is_known
    from ..mx.rewrite.apply import from_json
    from ..mx.symbol.common_subexpressions import symbol_text, to_json
    document = json.loads(to_json(symbol))
    entries = [entry for node in document["nodes"] for entry in node["inputs"]]
    least: Dict[int, int] = {}
    for source, _, version in entries:
        least[source] = min(version, least.get(source, version))
    for entry in entries:
        entry[2] -= least[entry[0]]
    if not infers_all(symbol, shapes):
        for node in document["nodes"]:
            if node["op"] == "null" and node["name"] in parameters:
                shape = parameters[node["name"]].shape
                if is_known(shape):
                    node.setdefault("attrs", {})["__shape__"] = str(tuple(shape))
    return from_json(symbol_text(document), symbol)
