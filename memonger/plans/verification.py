"""What a comparison of planned and unplanned training found: every tensor of every step."""
from __future__ import annotations

from dataclasses import dataclass, field
from typing import Mapping, Optional, Tuple

from ..util.errors import VerificationError
from .above import views

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
    #: How far the planned training is off: from the original, or from the judge where there is one.
    error: float
    #: The largest ``error`` that passes.
    allowed: float

    @property
    def ok(self) -> bool:
        """Rounding explains the difference."""
        return self.identical or self.error <= self.allowed


@dataclass(frozen=True)
class Verification:
    """All tensors of all steps; true in a condition when planned and original agree."""

    differences: Tuple[Difference, ...]
    steps: int
    tolerance: float = TOLERANCE
    #: What ``error`` is measured from where the tolerance did not suffice and both agree in
    #: float64: "float64", or "rounding" for the original itself where float64 cannot be had.
    judge: str = ""
    #: The same comparison with both networks in float64; empty where not needed or impossible.
    in_double: Tuple[Difference, ...] = ()
    #: From the network as the framework runs it otherwise; empty where it has one way.
    beside: Tuple[Difference, ...] = ()
    #: Casts of mixed precision that the original has and the planned network has not, by kind.
    lost_casts: Mapping[str, int] = field(default_factory=dict)
    #: The original against itself with another number of threads; empty unless asked for.
    control: Tuple[Difference, ...] = ()
    #: The two numbers of threads.
    control_threads: Tuple[int, ...] = ()

    @property
    def identical(self) -> bool:
        """Every bit of every tensor is equal."""
        return all(d.identical for d in self.differences)

    @property
    def worst(self) -> Difference:
        """The largest relative difference."""
        return max(self.differences, key=lambda d: (not d.identical, d.max_rel))

    @property
    def ok(self) -> bool:
        """Rounding explains every difference, and no cast is lost."""
        return self.wrong is None and not self.lost_casts

    @property
    def wrong(self) -> Optional[Difference]:
        """The first tensor that differs by more than rounding explains."""
        every = self.differences + self.in_double + self.beside
        return next((d for d in every if not d.ok), None)

    def __bool__(self) -> bool:
        return self.ok

    def check(self) -> Verification:
        """Raise VerificationError unless ``ok``; names the first tensor that differs."""
        advice = "Do not train with this plan; please report it with the network"
        d = self.wrong or self.worst
        if self.lost_casts:
            raise VerificationError("the planned network lacks %s of the original. %s" % (
                " and ".join("%d %s" % (count, kind)
                             for kind, count in sorted(self.lost_casts.items())), advice),
                d.tensor, d.max_abs, d.max_rel)
        if not self.ok:
            raise VerificationError(
                "step %d: %s differs by %.3g (%.3g of its largest value), more than rounding "
                "explains; %d of %d tensors differ. %s" % (
                    d.step, d.tensor, d.max_abs, d.max_rel, sum(
                        not x.identical for x in self.differences), len(self.differences), advice),
                d.tensor, d.max_abs, d.max_rel)
        return self

    def __str__(self) -> str:
        return str(views().verification_table(self))
