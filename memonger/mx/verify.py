"""Does the planned network train exactly as the original?"""
from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Any, Dict, Mapping, Optional, Sequence, Set, Tuple

import numpy as np

from ..errors import BindError, InputError, VerificationError
from ..merging import symbol_text
from .apply import from_json
from .bind import GradReq, first_line, infer_arguments
from .environment import logger, mxnet
from .trial import Trial, index_inputs, random_values, without_index_gradients

#: Relative difference allowed where bits may differ (MKLDNN sums in another order).
TOLERANCE = 1e-5
#: So many times what rounding does to the original passes as rounding.
ROUNDINGS = 10.0
#: A tensor that last bits change in the first step by this share of its largest value holds nothing
#: but rounding: the gradient of a bias before BatchNorm is zero, and computed is what sums leave.
NOISE = 0.1


@dataclass(frozen=True)
class Difference:
    """One tensor of one step."""

    step: int
    #: "output softmax_output", "gradient fc1_weight", "aux bn0_moving_mean".
    tensor: str
    identical: bool
    max_abs: float
    #: ``max_abs`` divided by the original's largest absolute value.
    max_rel: float

    def within(self, limit: float) -> bool:
        """Identical, or not further apart (a difference that is not a number is)."""
        return self.identical or self.max_rel <= limit


@dataclass(frozen=True)
class Verification:
    """All tensors of all steps; true in a condition when planned and original agree."""

    differences: Tuple[Difference, ...]
    steps: int
    tolerance: float = TOLERANCE
    #: For each step, the largest ``max_rel`` that moving all inputs and parameters by their last
    #: bits makes in the original, tensors of ``noise`` aside; empty where nothing is above the
    #: tolerance.
    rounding: Tuple[float, ...] = ()
    #: The same comparison in float64, without what holds nothing but rounding there; empty where it
    #: was not needed or cannot be made.
    in_double: Tuple[Difference, ...] = ()
    #: What moving all by last bits does to tensors that hold nothing but rounding (``NOISE``).
    noise: Tuple[Difference, ...] = ()

    @property
    def identical(self) -> bool:
        """Every bit of every tensor is equal."""
        return all(d.identical for d in self.differences)

    @property
    def worst(self) -> Difference:
        return max(self.differences, key=lambda d: (not d.identical, d.max_rel))

    @property
    def ok(self) -> bool:
        return self.wrong is None

    @property
    def wrong(self) -> Optional[Difference]:
        """The first tensor that differs by more than rounding explains."""
        return next((d for d in self.differences if not d.within(self.limit(d.step, d.tensor))),
                    next((d for d in self.in_double if not d.within(self.tolerance)), None))

    def limit(self, step: int, tensor: str = "") -> float:
        """The largest relative difference that passes as rounding in a step (from 1)."""
        own = [d.max_rel for d in self.noise if d.tensor == tensor]
        moved = max(own) if own else self.rounding[step - 1] if self.rounding else 0.0
        return max(self.tolerance, ROUNDINGS * moved)

    def __bool__(self) -> bool:
        return self.ok

    def check(self) -> "Verification":
        """Raise VerificationError unless ``ok``; names the first tensor that differs."""
        d = self.wrong
        if d is not None:
            raise VerificationError(
                "step %d: %s differs by %.3g (%.3g of its largest value), more than rounding "
                "explains; %d of %d tensors differ. Do not train with this plan; please report it "
                "with the symbol file" % (d.step, d.tensor, d.max_abs, d.max_rel,
                                          sum(not x.identical for x in self.differences),
                                          len(self.differences)), d.tensor, d.max_abs, d.max_rel)
        return self

    def __str__(self) -> str:
        from ..report.text import verification_table
        return verification_table(self)


#: What each step left in each tensor.
Results = Sequence[Mapping[str, np.ndarray]]
Values = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class _Training:
    """How both networks are trained: all but the network, its values and their types."""

    shapes: Mapping[str, Sequence[int]]
    steps: int
    ctx: Any
    grad_req: GradReq
    seed: int
    learning_rate: float

    def run(self, symbol: Any, start: Values, types: Optional[Mapping[str, Any]]) -> Results:
        """What each step leaves; only here is the network in memory."""
        results = []
        try:
            trial = Trial(symbol, self.shapes, self.ctx, types, self.grad_req, self.seed, start)
            for number in range(self.steps):
                trial.step(number)
                results.append(trial.results())
                trial.update(self.learning_rate)
        except mxnet().MXNetError as error:
            raise BindError("MXNet cannot run this network: %s" % first_line(error)) from error
        return results

    def moved(self, symbol: Any, start: Values, types: Optional[Mapping[str, Any]],
              expected: Results) -> Tuple[Difference, ...]:
        """What moving all inputs and parameters by their last bits changes."""
        moved = _last_bits_moved(start, index_inputs(symbol), self.seed)
        return _compare_all(expected, self.run(symbol, moved, types))


def verify(planned: Any, original: Any, shapes: Mapping[str, Sequence[int]], steps: int = 2,
           ctx: Any = None, type_dict: Optional[Mapping[str, Any]] = None,
           grad_req: GradReq = "write", seed: int = 0, tolerance: float = TOLERANCE,
           values: Optional[Mapping[str, Any]] = None,
           learning_rate: float = 0.001) -> Verification:
    """Train both symbols for some steps from the same values and compare everything.

    Outputs, every gradient and every aux state are compared after each step; parameters move by
    plain gradient descent between steps. Random ops draw the same numbers on both sides.

    Deep networks enlarge the last bits: where these are decided otherwise, a ReLU far behind may
    open instead of close. So where a difference is above the tolerance, two more things are seen:
    what moving all inputs and parameters of the original by their last bits changes, which the
    plan may change too (``ROUNDINGS`` times), and both networks in float64, where the tolerance
    holds. Tensors that hold nothing but rounding are judged by themselves.

    Parameters
    ----------
    planned, original : mx.sym.Symbol
    shapes : mapping
        Input shapes; a small batch is enough.
    steps : int
        Training steps.
    ctx, type_dict, grad_req
        As for ``simple_bind``.
    seed : int
        Of the random values, and of what random ops draw.
    tolerance : float
        Largest difference, relative to a tensor's largest value, that counts as the same.
    values : mapping, optional
        Values of inputs or parameters by name instead of random ones.
    learning_rate : float
        Of the gradient descent between the steps.

    Returns
    -------
    Verification

    Raises
    ------
    BindError
        If MXNet cannot run the network.
    """
    arguments = infer_arguments(original, shapes, type_dict,
                                without_index_gradients(original, grad_req))
    start = random_values(original, arguments, seed, values)
    training = _Training(shapes, steps, ctx, grad_req, seed, learning_rate)
    expected = training.run(original, start, type_dict)
    found = Verification(_compare_all(expected, training.run(planned, start, type_dict)), steps,
                         tolerance)
    if found.ok:
        return found
    moved = training.moved(original, start, type_dict, expected)
    noise = _noise_in(moved)
    rounding = [max([d.max_rel for d in moved if d.step == step and d not in noise] or [0.0])
                for step in range(1, steps + 1)]
    in_double: Tuple[Difference, ...] = ()
    if set(arguments.dtypes) == {"float32"}:
        try:
            in_double = _compare_in_float64(training, planned, original, arguments.names, start,
                                            found)
        except (InputError, BindError) as error:
            logger.info("the network cannot be run in float64: %s", error)
    return replace(found, rounding=tuple(rounding), noise=noise, in_double=in_double)


def _compare_in_float64(training: _Training, planned: Any, original: Any, names: Sequence[str],
                        start: Values, found: Verification) -> Tuple[Difference, ...]:
    """The comparison in float64, without what holds nothing but rounding there.

    That is looked for where ``found.tolerance`` is exceeded.
    """
    types = dict.fromkeys(names, "float64")
    wide_start = {name: value.astype(np.float64) for name, value in start.items()}
    wide = _in_float64(original)
    expected = training.run(wide, wide_start, types)
    apart = _compare_all(expected, training.run(_in_float64(planned), wide_start, types))
    if all(d.within(found.tolerance) for d in apart):
        return apart
    noisy = replace(found, noise=_noise_in(training.moved(wide, wide_start, types, expected)))
    return tuple(d for d in apart if d.within(found.tolerance)
                 or not d.within(noisy.limit(d.step, d.tensor)))


def _noise_in(moved: Sequence[Difference]) -> Tuple[Difference, ...]:
    """What was moved in tensors that hold nothing but rounding."""
    names = {d.tensor for d in moved if d.step == 1 and NOISE < d.max_rel < float("inf")}
    return tuple(d for d in moved if d.tensor in names)


def _last_bits_moved(values: Mapping[str, np.ndarray], fixed: Set[str],
                     seed: int) -> Dict[str, np.ndarray]:
    """Each number replaced by the next one above or below it, but for whole-number inputs."""
    random = np.random.RandomState(seed)
    return {name: value if name in fixed or value.dtype.kind != "f" else np.nextafter(
        value, np.where(random.rand(*value.shape) < 0.5, -np.inf, np.inf).astype(value.dtype))
        for name, value in values.items()}


def _in_float64(symbol: Any) -> Any:
    """The symbol with float64 where it asks for float32."""
    data = json.loads(symbol.tojson())
    wider = {"dtype": ("float32", "float64"), "__dtype__": ("0", "1")}  # names, and mshadow's codes
    for node in data["nodes"]:
        attributes = node.get("attrs", {})
        for name, (narrow, wide) in wider.items():
            if attributes.get(name) == narrow:
                attributes[name] = wide
    return from_json(symbol_text(data))


def _compare_all(expected: Results, found: Results) -> Tuple[Difference, ...]:
    return tuple(_compare(number, tensor, value, other.get(tensor))
                 for number, (one, other) in enumerate(zip(expected, found), 1)
                 for tensor, value in one.items())


def _compare(step: int, tensor: str, expected: np.ndarray,
             found: Optional[np.ndarray]) -> Difference:
    if found is None or expected.shape != found.shape or expected.dtype != found.dtype:
        return Difference(step, tensor, False, float("inf"), float("inf"))
    if expected.tobytes() == found.tobytes():
        return Difference(step, tensor, True, 0.0, 0.0)
    a, b = expected.astype(np.float64), found.astype(np.float64)
    with np.errstate(invalid="ignore"):
        apart = np.where((a == b) | (np.isnan(a) & np.isnan(b)), 0.0, np.abs(a - b))
    max_abs = float(apart.max()) if apart.size else 0.0
    largest = float(np.nanmax(np.abs(a))) if a.size and not np.isnan(a).all() else 0.0
    if np.isnan(max_abs):
        return Difference(step, tensor, False, float("inf"), float("inf"))
    return Difference(step, tensor, False, max_abs, max_abs / largest if largest else
                      (float("inf") if max_abs else 0.0))
