"""Random training networks: one a seed, the same in every process."""
from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Dict, List, Tuple

import mxnet as mx
import numpy as np

from .operators import KINDS
from .values import Value, Values

S = mx.sym
_DATA = {"image": lambda r: (r.choice([2, 3]), r.choice([3, 4, 8]), r.choice([6, 7, 8]), 6),
         "sequence": lambda r: (r.choice([3, 5]), 2, r.choice([4, 6, 8])),
         "volume": lambda r: (2, 2, 4, 5, 5), "vector": lambda r: (r.choice([2, 4]), 8)}


@dataclass(frozen=True)
class Network:
    """A symbol with all that binding it takes."""

    seed: int
    symbol: Any
    shapes: Dict[str, Tuple[int, ...]]
    dtypes: Dict[str, str]
    grad_req: Dict[str, str]
    arguments: Dict[str, np.ndarray]
    states: Dict[str, np.ndarray]

    @property
    def has_loop(self) -> bool:
        return '"_foreach"' in self.symbol.tojson()


def build(seed: int) -> Network:
    """The network of a seed: six to twenty-four ops, one to three heads."""
    with mx.name.NameManager():
        n = Values(seed)
        for kind in n.random.sample(sorted(_DATA), n.random.choice([1, 1, 2])):
            shape = _DATA[kind](n.random)
            dtype = n.random.choice(["float32"] * 6 + ["float64", "float16"])
            n.outputs.append(Value(n.variable("data", shape, dtype=dtype), shape, dtype))
        wanted = n.random.choice([6, 10, 16, 24])
        for _ in range(12 * wanted):
            wanted -= n.attempt(lambda: _operator(n))
            if not wanted:
                break
        return _finished(seed, n, _heads(n))


def _operator(n: Values) -> Any:
    kind = n.random.choices(KINDS, [kind.weight for kind in KINDS])[0]
    value = n.pick(lambda v: v.is_float and len(v.shape) in kind.axes
                   and (v.dtype == "float32" or not kind.only_float32))
    return kind.make(n, value.symbol, value) if value else None


def _heads(n: Values) -> Any:
    heads: List[Any] = []
    for k in range(n.random.choice([1, 1, 1, 2, 3])):
        value = n.pick(lambda v: v.is_float)
        assert value is not None  # the data
        heads.append(_head(n, value, "head%d" % k))
    rest = [v for v in n.outputs if v.is_float and id(v.symbol) not in n.read][:20]
    if rest and n.chance(0.7):  # what nothing reads is in no graph
        parts = [S.cast(S.reshape(S.mean(S.square(v.symbol)), shape=(1,)), dtype="float32")
                 for v in rest]
        heads.append(S.MakeLoss(S.add_n(*parts), name="rest"))
    return heads[0] if len(heads) == 1 else S.Group(heads)


def _head(n: Values, value: Value, name: str) -> Any:
    x = value.symbol if value.dtype == "float32" else S.cast(value.symbol, dtype="float32")
    rows = value.shape[0]
    return n.random.choice([
        lambda: S.SoftmaxOutput(S.FullyConnected(x, num_hidden=5, name=name + "_scores"),
                                n.variable("label", (rows,), n.below(*[5] * rows)), name=name),
        lambda: S.MakeLoss(S.mean(S.square(x)), name=name),
        lambda: S.LinearRegressionOutput(x, n.variable("label", value.shape), name=name),
        lambda: S.sum(x, name=name), lambda: S.identity(x, name=name)])()


def _finished(seed: int, n: Values, symbol: Any) -> Network:
    names = symbol.list_arguments()
    shapes = {name: shape for name, shape in n.shapes.items() if name in names}
    dtypes = {name: dtype for name, dtype in n.dtypes.items() if name in names}
    argument_shapes, _, state_shapes = symbol.infer_shape(**shapes)
    argument_dtypes, _, state_dtypes = symbol.infer_type(**dtypes)
    mixed, every = n.chance(0.4), "add" if n.chance(0.2) else "write"
    requests = {name: "null" if name in n.given else
                n.random.choice(["write", "write", "add", "null"]) if mixed else every
                for name in names}
    if set(requests.values()) == {"null"}:
        requests.update((name, "write") for name in names if name not in n.given)
    random = np.random.RandomState(seed)
    arguments = {
        name: (n.given[name].reshape(shape) if name in n.given else
               random.standard_normal(shape)
               * (1 if name.startswith("data") else 0.3)).astype(dtype)
        for name, shape, dtype in zip(names, argument_shapes, argument_dtypes)}
    states = {name: (random.uniform(0.5, 1.5, shape) if name.endswith("var") else
                     random.standard_normal(shape) * 0.1).astype(dtype)
              for name, shape, dtype in zip(symbol.list_auxiliary_states(), state_shapes,
                                            state_dtypes)}
    return Network(seed, symbol, shapes, dtypes, requests, arguments, states)
