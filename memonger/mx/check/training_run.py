"""Executors with reproducible random data, for checks and measurements."""
from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Dict, List, Mapping, Optional, Sequence, Set

import numpy as np

from ...util.argument_checks import shown
from ...util.errors import BindError, InputError
from ..capture.binding import (
    Arguments,
    GradReq,
    checked_shape,
    first_line,
    infer_arguments,
    sparse_gradients,
)
from ..plugin.environment import mxnet
from ..symbol.common_subexpressions import to_json

#: What each step left in each tensor.
Results = Sequence[Mapping[str, np.ndarray]]
Values = Mapping[str, np.ndarray]
Types = Optional[Mapping[str, Any]]

#: Input positions that hold class numbers, indices or lengths rather than real values.
_INDEX_INPUTS = {
    "SoftmaxOutput": (1,), "softmax_cross_entropy": (1,), "SVMOutput": (1,), "CTCLoss": (1,),
    "Embedding": (0,), "take": (1,), "batch_take": (1,), "pick": (1,), "one_hot": (0,),
    "SequenceMask": (1,), "SequenceLast": (1,), "SequenceReverse": (1,), "gather_nd": (1,),
}
#: Ops that leave such numbers unchanged.
_PASS_ON = frozenset({"Reshape", "reshape", "Flatten", "transpose", "expand_dims", "squeeze",
                      "SwapAxis", "slice", "slice_axis", "Cast", "SliceChannel", "identity"})


def index_inputs(symbol: Any) -> Set[str]:
    """Names of the arguments that must hold small whole numbers: labels, indices, lengths.

    MXNet has no gradient for them: it refuses to make one, or leaves what was in memory.
    """
    nodes = json.loads(to_json(symbol))["nodes"]
    found = set()
    for node in nodes:
        for position in _INDEX_INPUTS.get(node["op"], ()):
            if position < len(node["inputs"]):
                source = nodes[node["inputs"][position][0]]
                while source["op"] in _PASS_ON and source["inputs"]:
                    source = nodes[source["inputs"][0][0]]
                if source["op"] == "null":
                    found.add(source["name"])
    return found


def random_values(symbol: Any, arguments: Arguments, seed: int = 0,
                  given: Optional[Mapping[str, Any]] = None) -> Dict[str, np.ndarray]:
    """A value for every argument and aux state.

    Weights are scaled by the square root of 2 / fan-in (He et al. 2015), so that values stay
    finite and alive through deep networks; variances and gammas are near 1.
    """
    random = np.random.RandomState(seed)
    indices = index_inputs(symbol)
    values: Dict[str, np.ndarray] = {}
    for name, shape, dtype in list(zip(arguments.names, arguments.shapes, arguments.dtypes)) + \
            list(zip(arguments.aux_names, arguments.aux_shapes, arguments.aux_dtypes)):
        if given is not None and name in given:
            values[name] = _given_value(name, given[name], shape, dtype)
        elif name in indices:
            values[name] = random.randint(0, 2, shape).astype(dtype)
        elif name in arguments.input_names:
            values[name] = random.standard_normal(shape).astype(dtype)
        elif name.endswith(("var", "gamma")):
            values[name] = random.uniform(0.5, 1.5, shape).astype(dtype)
        else:
            fan_in = int(np.prod(shape[1:])) if len(shape) > 1 else 100
            values[name] = (random.standard_normal(shape) *
                            np.sqrt(2.0 / max(fan_in, 1))).astype(dtype)
    return values


def _given_value(name: str, value: Any, shape: Sequence[int], dtype: str) -> np.ndarray:
    try:
        array = np.asarray(value.asnumpy() if hasattr(value, "asnumpy") else value, dtype=dtype)
    except (TypeError, ValueError):
        array = None
    if array is None or array.shape != tuple(shape):
        raise InputError("values[%r] must be an array of shape %s, not %s"
                         % (name, tuple(shape), shown(value) if array is None else array.shape))
    return array


def without_index_gradients(symbol: Any, grad_req: GradReq) -> GradReq:
    """The request for all arguments; none for :func:`index_inputs`, which have no gradient."""
    if not isinstance(grad_req, str):
        return grad_req
    indices = index_inputs(symbol)
    return {name: "null" if name in indices else grad_req for name in symbol.list_arguments()}


def how_to_bind(shapes: Mapping[str, Sequence[int]], types: Types,
                grad_req: GradReq) -> Dict[str, Any]:
    """How another process binds a network, fit for JSON."""
    return {"shapes": {name: checked_shape(name, shape) for name, shape in shapes.items()},
            "types": {name: np.dtype(dtype).name for name, dtype in (types or {}).items()},
            "grad_req": dict(grad_req) if isinstance(grad_req, Mapping) else grad_req}


class TrainingRun:
    """One symbol bound for training, with its own arrays."""

    def __init__(self, symbol: Any, shapes: Mapping[str, Sequence[int]], ctx: Any = None,
                 type_dict: Optional[Mapping[str, Any]] = None, grad_req: GradReq = "write",
                 seed: int = 0, values: Optional[Mapping[str, Any]] = None) -> None:
        self.mx = mxnet()
        self.arguments = infer_arguments(
            symbol, shapes, type_dict, without_index_gradients(symbol, grad_req))
        ctx = ctx or self.mx.cpu()
        a = self.arguments
        filled = random_values(symbol, a, seed, values)

        def array(name: str, dtype: str) -> Any:
            return self.mx.nd.array(filled[name], ctx=ctx, dtype=dtype)

        self.arrays = {n: array(n, d) for n, d in zip(a.names, a.dtypes)}
        self.aux = {n: array(n, d) for n, d in zip(a.aux_names, a.aux_dtypes)}
        sparse = sparse_gradients(symbol)
        self.gradients = {
            n: self.mx.nd.zeros(s, ctx, d, stype="row_sparse" if n in sparse else "default")
            for n, s, d, r in zip(a.names, a.shapes, a.dtypes, a.grad_reqs) if r != "null"}
        self.executor = symbol.bind(
            ctx, args=[self.arrays[n] for n in a.names], args_grad=self.gradients,
            grad_req=dict(zip(a.names, a.grad_reqs)),
            aux_states=[self.aux[n] for n in a.aux_names])
        self.head_gradients: Optional[List[Any]] = None
        self.seed = seed
        self.output_names = symbol.list_outputs()

    def step(self, number: int = 0) -> None:
        """Run forward and backward and wait for both; the step's number seeds random ops."""
        self.mx.random.seed(self.seed + number)
        outputs = self.executor.forward(is_train=True)
        if self.head_gradients is None:
            self.head_gradients = [self.mx.nd.ones_like(o) for o in outputs]
        self.executor.backward(self.head_gradients)
        self.mx.nd.waitall()

    def update(self, learning_rate: float) -> None:
        """One step of plain gradient descent on the parameters."""
        for name, gradient in self.gradients.items():
            if name not in self.arguments.input_names:
                self.arrays[name][:] = self.arrays[name] - learning_rate * gradient

    def results(self) -> Dict[str, np.ndarray]:
        """Outputs, gradients and aux states by kind and name."""
        numbers = {"output " + n: o.asnumpy()
                   for n, o in zip(self.output_names, self.executor.outputs)}
        numbers.update(("gradient " + n, g.asnumpy()) for n, g in self.gradients.items())
        numbers.update(("aux " + n, a.asnumpy()) for n, a in self.aux.items())
        return numbers


@dataclass(frozen=True)
class Training:
    """Settings of a training that several networks share."""

    shapes: Mapping[str, Sequence[int]]
    steps: int
    ctx: Any
    grad_req: GradReq
    seed: int
    learning_rate: float

    def run(self, symbol: Any, start: Values, types: Types) -> Results:
        """Tensors after each step; the network is in memory during this call only.

        Raises BindError where MXNet cannot run the network.
        """
        results = []
        try:
            run = TrainingRun(symbol, self.shapes, self.ctx, types, self.grad_req, self.seed, start)
            for number in range(self.steps):
                if number:
                    run.update(self.learning_rate)
                run.step(number)
                results.append(run.results())
        except mxnet().MXNetError as error:
            raise BindError("MXNet cannot run this network: %s" % first_line(error)) from error
        return results
