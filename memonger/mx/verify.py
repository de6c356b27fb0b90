"""Does the planned network train exactly as the original?"""
from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Mapping, Optional, Sequence, Tuple

import numpy as np

from ..errors import VerificationError
from .bind import GradReq
from .trial import Trial

#: Relative difference allowed where bits may differ (MKLDNN sums in another order).
TOLERANCE = 1e-5


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


@dataclass(frozen=True)
class Verification:
    """All tensors of all steps; true in a condition when planned and original agree."""

    differences: Tuple[Difference, ...]
    steps: int
    tolerance: float = TOLERANCE

    @property
    def identical(self) -> bool:
        """Every bit of every tensor is equal."""
        return all(d.identical for d in self.differences)

    @property
    def worst(self) -> Difference:
        return max(self.differences, key=lambda d: (not d.identical, d.max_rel))

    @property
    def ok(self) -> bool:
        return all(d.identical or d.max_rel <= self.tolerance for d in self.differences)

    def __bool__(self) -> bool:
        return self.ok

    def check(self) -> "Verification":
        """Raise VerificationError unless ``ok``; names the first tensor that differs."""
        for d in self.differences:
            if not d.identical and not d.max_rel <= self.tolerance:
                raise VerificationError(
                    "step %d: %s differs by %.3g (%.3g of its largest value), more than %.0e; "
                    "%d of %d tensors differ. Do not train with this plan; please report it "
                    "with the symbol file" % (d.step, d.tensor, d.max_abs, d.max_rel,
                                              self.tolerance,
                                              sum(not x.identical for x in self.differences),
                                              len(self.differences)),
                    d.tensor, d.max_abs, d.max_rel)
        return self

    def __str__(self) -> str:
        from ..report.text import verification_table
        return verification_table(self)


def verify(planned: Any, original: Any, shapes: Mapping[str, Sequence[int]], steps: int = 2,
           ctx: Any = None, type_dict: Optional[Mapping[str, Any]] = None,
           grad_req: GradReq = "write", seed: int = 0, tolerance: float = TOLERANCE,
           values: Optional[Mapping[str, Any]] = None,
           learning_rate: float = 0.001) -> Verification:
    """Train both symbols for some steps from the same values and compare everything.

    Outputs, every gradient and every aux state are compared after each step; parameters move by
    plain gradient descent between steps. Random ops draw the same numbers on both sides.

    Parameters
    ----------
    planned, original : mx.sym.Symbol
    shapes : mapping
        Input shapes; a small batch is enough.
    values : mapping, optional
        Values of inputs or parameters by name instead of random ones.

    Returns
    -------
    Verification
    """
    sides = []
    for symbol in (original, planned):  # one after the other: only one is in memory at a time
        trial = Trial(symbol, shapes, ctx, type_dict, grad_req, seed, values)
        results = []
        for number in range(steps):
            trial.step(number)
            results.append(trial.results())
            trial.update(learning_rate)
        sides.append(results)
        del trial
    rows = []
    for number, (expected, found) in enumerate(zip(*sides), 1):
        for tensor, value in expected.items():
            other = found.get(tensor)
            rows.append(_compare(number, tensor, value, other))
    return Verification(tuple(rows), steps, tolerance)


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
