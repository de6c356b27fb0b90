"""Checks that a planned network trains as the original does."""
from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any, Dict, Mapping, Optional, Sequence, Set, Tuple

import numpy as np

from ...plans.verification import TOLERANCE, Difference, Verification
from ...util.errors import BindError, InputError
from ..capture.binding import Arguments, GradReq, infer_arguments
from ..plugin.environment import logger
from .control import results_with
from .in_float64 import all_nodes, in_float64, symbol_data, wide_types
from .training_run import (
    Results,
    Training,
    Types,
    Values,
    index_inputs,
    random_values,
    without_index_gradients,
)

#: The error of the planned training may be this multiple of the rounding error of the original.
FACTOR = 5.0
#: Largest number of differently rounded runs of the original that estimate its rounding error.
#: Errors of deep networks have heavy tails: fewer runs now and then refuse right plans.
ROUNDINGS = 64
#: If the error is still larger, the plan runs this often with perturbed last bits. A ReLU that
#: flips by chance flips in some of these runs; a fault shows in all.
SECOND_LOOKS = 8
#: For these runs inputs and parameters move by up to this number of units in the last place.
LAST_BITS = 4
#: A gradient this small, relative to the network's largest, is rounding noise of sums that cancel,
#: as for a bias before BatchNorm, whose gradient is zero. In the given types, then in float64.
NOISE, NOISE_IN_DOUBLE = 1e-6, 1e-12
#: Outputs this far apart in float64 come from another training: random ops draw other numbers.
ANOTHER = 0.1


def verify(planned: Any, original: Any, shapes: Mapping[str, Sequence[int]], steps: int = 2,
           ctx: Any = None, type_dict: Optional[Mapping[str, Any]] = None,
           grad_req: GradReq = "write", seed: int = 0, tolerance: float = TOLERANCE,
           values: Optional[Mapping[str, Any]] = None,
           learning_rate: float = 0.001, control: bool = False) -> Verification:
    """Train both symbols for some steps from the same values and compare everything.

    Outputs, every gradient and every aux state are compared after each step; parameters move by
    plain gradient descent between steps. Random ops draw the same numbers on both sides.

    Deep networks amplify the last bits: other rounding may flip a ReLU many layers later. So where
    a difference exceeds the tolerance, float64 judges: planned and original must agree in float64,
    and the error of the planned training in the given types, against the original in float64, may
    be ``FACTOR`` times the largest one of up to ``ROUNDINGS`` differently rounded originals, in one
    of ``SECOND_LOOKS`` differently rounded runs of it, too.

    Parameters are those of :func:`memonger.verify`; BindError where MXNet cannot run the network.
    """
    arguments = infer_arguments(original, shapes, type_dict,
                                without_index_gradients(original, grad_req))
    start = random_values(original, arguments, seed, values)
    training = Training(shapes, steps, ctx, grad_req, seed, learning_rate)
    return compared(planned, original, training, start, arguments, type_dict, tolerance, control)


def compared(planned: Any, original: Any, training: Training, start: Values, arguments: Arguments,
             type_dict: Types, tolerance: float = TOLERANCE, control: bool = False) -> Verification:
    """:func:`verify` of a training that is given, and the values that it starts from."""
    expected = training.run(original, start, type_dict)
    made = training.run(planned, start, type_dict)
    result = Verification(_compare(expected, made, tolerance), training.steps, tolerance,
                          lost_casts=_lost_casts(planned, original))
    if control:
        threads, again = results_with(original, training, start, type_dict)
        result = replace(result, control=_compare(expected, again, tolerance),
                         control_threads=threads)
    if result.wrong is None or any(set(a) != set(b) for a, b in zip(expected, made)):
        return result
    truth, judge = expected, "rounding"
    types, wide = wide_types(arguments), in_float64(original)
    wide_start = {name: value.astype(types[name]) for name, value in start.items()}
    try:
        exact = training.run(wide, wide_start, types)
        result = replace(result, in_double=_compare(exact, training.run(
            in_float64(planned), wide_start, types), tolerance, NOISE_IN_DOUBLE))
        if not all(d.ok for d in result.in_double):
            return result
        if not _is_another(exact, expected):
            truth, judge = exact, "float64"
    except (InputError, BindError) as error:
        logger.info("the network cannot be run in float64: %s", error)
    result = replace(result, judge=judge)
    return _judged(training, (original, planned), start, type_dict, result, truth, (expected, made))


def _judged(training: Training, symbols: Tuple[Any, Any], start: Values, types: Types,
            found: Verification, truth: Results, runs: Tuple[Results, Results]) -> Verification:
    """Errors of original and planned against the truth, over as many roundings as needed."""
    original, planned = symbols
    off = [_compare(truth, run, found.tolerance, NOISE) for run in runs]
    original_errors = [d.error for d in off[0]]
    fixed = index_inputs(original)

    def moved(symbol: Any, rounding: int) -> Tuple[Difference, ...]:
        values = _last_bits_moved(start, fixed, training.seed + rounding)
        return _compare(truth, training.run(symbol, values, types), found.tolerance, NOISE)

    def judged_by(errors: Sequence[Difference]) -> Tuple[Difference, ...]:
        return tuple(replace(d, error=far.error, allowed=max(far.allowed, FACTOR * least))
                     if not d.ok else d
                     for d, far, least in zip(found.differences, errors, original_errors))

    judged = judged_by(off[1])
    for rounding in range(ROUNDINGS):
        if all(d.ok for d in judged):
            break
        original_errors = [max(known, d.error) for known, d in zip(
            original_errors, moved(original, rounding))]
        judged = judged_by(off[1])
    for rounding in range(SECOND_LOOKS):
        if all(d.ok for d in judged):
            break
        again = judged_by(moved(planned, rounding))
        judged = again if all(d.ok for d in again) else judged
    return replace(found, differences=judged)


def _last_bits_moved(values: Values, fixed: Set[str], seed: int) -> Dict[str, np.ndarray]:
    """Each number moved by up to ``LAST_BITS`` of its last bits, but for whole-number inputs."""
    random = np.random.RandomState(seed)
    return {name: value if name in fixed or value.dtype.kind != "f" else
            (value + random.randint(-LAST_BITS, LAST_BITS + 1, value.shape) * np.spacing(value)
             ).astype(value.dtype)
            for name, value in values.items()}


def _lost_casts(planned: Any, original: Any) -> Dict[str, int]:
    """Mixed precision rounds less without its casts, so float64 would not miss them."""
    has, had = (Counter(node["op"] for node in all_nodes(symbol_data(symbol))
                        if node["op"].startswith("amp_")) for symbol in (planned, original))
    return dict(had - has)


def _is_another(truth: Results, expected: Results) -> bool:
    """Whether training in float64 is another training than in the given types."""
    return any(d.max_rel > ANOTHER for d in _compare(truth, expected, 0.0)
               if d.tensor.startswith("output"))


def _compare(expected: Results, found: Results, tolerance: float,
             noise: float = 0.0) -> Tuple[Difference, ...]:
    """How far every tensor is from what is expected, and how far it may be."""
    result, inf = [], float("inf")
    for step, (values, others) in enumerate(zip(expected, found), 1):
        largest = {tensor: _largest(value) for tensor, value in values.items()}
        steepest = max([v for t, v in largest.items() if t.startswith("gradient")] or [0.0])
        for tensor, value in values.items():
            allowed = tolerance * largest[tensor]
            if tensor.startswith("gradient"):
                allowed = max(allowed, noise * steepest)
            identical, max_abs = _distance(value, others.get(tensor))
            max_rel = max_abs / largest[tensor] if largest[tensor] and max_abs else \
                inf if max_abs else 0.0
            result.append(Difference(step, tensor, identical, max_abs, max_rel, max_abs, allowed))
        result += [Difference(step, tensor, False, inf, inf, inf, 0.0)
                   for tensor in others if tensor not in values]
    return tuple(result)


def _largest(value: np.ndarray) -> float:
    finite = np.abs(value[np.isfinite(value)].astype(np.float64))
    return float(finite.max()) if finite.size else 0.0


def _distance(expected: np.ndarray, found: Optional[np.ndarray]) -> Tuple[bool, float]:
    """Whether all bits are equal, and the largest difference."""
    if found is None or expected.shape != found.shape or \
            expected.dtype not in (found.dtype, np.float64):
        return False, float("inf")
    if expected.dtype == found.dtype and expected.tobytes() == found.tobytes():
        return True, 0.0
    a, b = expected.astype(np.float64), found.astype(np.float64)
    with np.errstate(invalid="ignore"):
        apart = np.where((a == b) | (np.isnan(a) & np.isnan(b)), 0.0, np.abs(a - b))
    max_abs = float(apart.max()) if apart.size else 0.0
    return False, float("inf") if np.isnan(max_abs) else max_abs
