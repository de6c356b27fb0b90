"""The values of a random network while it grows."""
from __future__ import annotations

import random
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Tuple

import mxnet as mx
import numpy as np

Shape = Tuple[int, ...]
#: No tensor has more elements: a network trains in milliseconds.
MOST_ELEMENTS = 60000


class Value(NamedTuple):
    """An output of an op with its shape and the name of its dtype."""

    symbol: Any
    shape: Shape
    dtype: str

    @property
    def is_float(self) -> bool:
        return self.dtype.startswith("float")


class Values:
    """Variables and outputs so far; whatever MXNet's inference accepts is taken."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.shapes: Dict[str, Shape] = {}
        self.dtypes: Dict[str, str] = {}
        #: Of variables that are no random numbers: indices, lengths, labels.
        self.given: Dict[str, np.ndarray] = {}
        self.outputs: List[Value] = []
        self.read: set = set()
        self._shared: Dict[str, Any] = {}

    def variable(self, name: str, shape: Shape, given: Any = None, dtype: str = "float32") -> Any:
        name = "%s%d" % (name, len(self.shapes))
        self.shapes[name], self.dtypes[name] = tuple(shape), dtype
        if given is not None:
            self.given[name] = np.asarray(given)
        return mx.sym.var(name)

    def shared(self, name: str) -> Any:
        """A parameter that several ops have in common; its shape is inferred."""
        return self._shared.setdefault(name, mx.sym.var(name))

    def below(self, *limits: int) -> np.ndarray:
        """One index below each limit."""
        return np.array([self.random.randrange(limit) for limit in limits])

    def chance(self, share: float) -> bool:
        return self.random.random() < share

    def pick(self, fits: Callable[[Value], bool]) -> Optional[Value]:
        """An output, more often a recent one; None if none fits."""
        fitting = [value for value in self.outputs if fits(value)]
        if not fitting:
            return None
        value = fitting[-1] if self.chance(0.6) else self.random.choice(fitting)
        self.read.add(id(value.symbol))
        return value

    def same(self, value: Value) -> Value:
        """An output of the same shape and dtype, perhaps itself."""
        return self.pick(lambda v: v.shape == value.shape and v.dtype == value.dtype) or value

    def add(self, symbol: Any) -> None:
        """Take the outputs of an op. Raises MXNet's error if shapes or dtypes do not fit."""
        _, shapes, _ = symbol.infer_shape(**self.shapes)
        _, dtypes, _ = symbol.infer_type(**self.dtypes)
        if shapes is None or dtypes is None:
            raise ValueError("a shape is not known")
        for i, (shape, dtype) in enumerate(zip(shapes, dtypes)):
            if shape and min(shape) > 0 and int(np.prod(shape)) <= MOST_ELEMENTS:
                self.outputs.append(Value(symbol[i] if len(shapes) > 1 else symbol, tuple(shape),
                                          np.dtype(dtype).name))

    def attempt(self, make: Callable[[], Any]) -> bool:
        """Add what ``make`` gives; whether that went well. Without it nothing is changed."""
        before = dict(self.shapes), dict(self.dtypes), dict(self.given)
        try:
            symbol = make()
            if symbol is not None:
                self.add(symbol)
                return True
        except Exception:  # MXNet refuses in many ways; the next op may fit
            pass
        self.shapes, self.dtypes, self.given = before
        return False
