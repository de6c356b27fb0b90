"""What a caller may ask of a solver: one frozen record for all methods."""
from __future__ import annotations

from dataclasses import dataclass, field
from typing import Callable, FrozenSet, Mapping, Optional, Tuple

from ..graph.schedule import Recompute, Schedule
from ..memory.storage import STORAGES
from ..plans.plan import Progress
from ..util.errors import InputError
from .effort import Effort

#: The time limit when nobody asks, in counted seconds.
USUAL_TIME_LIMIT_S = 10.0
#: Which operator variants may be used.
VARIANTS = ("none", "exact", "all")


@dataclass(frozen=True)
class Options:
    """Everything but the graph and the budget.

    The defaults suit a user who knows nothing about solvers.
    """

    #: Most work, in counted seconds (:mod:`memonger.solve.effort`): about what it takes on an idle
    #: machine with two cores, and the same work on a busy one. A search that would go on says
    #: ``Status.TIME_LIMIT``. Above the default, method "auto" searches on where the plan is not
    #: near its bound. The clock itself ends a search only after twenty times as long.
    time_limit_s: float = USUAL_TIME_LIMIT_S
    seed: int = 1
    #: Multiplies the number of evaluations, which otherwise follows from the graph's size.
    effort: float = 1.0
    #: How memory is counted: one of :data:`memonger.memory.storage.STORAGES`.
    storage: str = "best"
    #: Ids of ops that must not run again.
    keep: Tuple[int, ...] = ()
    #: Ids of ops whose values must not stay from forward to backward.
    recompute: Tuple[int, ...] = ()
    variants: str = "exact"
    #: Method "sublinear": how many thresholds on the grid.
    ntrial: int = 6
    #: How often one op may run again; 0 is no limit.
    max_clones: int = 0
    #: "time": least time within the budget. "memory": least memory within ``max_overhead``.
    objective: str = "time"
    #: Largest extra step time for the objective "memory", 0.1 is +10 %; None is no limit.
    max_overhead: Optional[float] = None
    #: Decisions to start from.
    warm_start: Optional[Recompute] = None
    warm_variants: Tuple[int, ...] = ()
    #: A plan for method "auto" to improve on, whether it fits or not.
    given: Optional[Schedule] = None
    #: Bytes outside the pool besides what the graph says, by category ("optimizer", ...).
    fixed_bytes: Mapping[str, int] = field(default_factory=dict)
    #: Most bytes of tensors on the host (:mod:`memonger.memory.host`); None is no limit.
    host_budget_bytes: Optional[int] = None
    #: Called now and then; an exception in it ends the search.
    progress: Optional[Callable[[Progress], None]] = None
    #: Prove a lower bound and attach it to the plan.
    bound: bool = True
    #: Names of rows of :data:`memonger.solve.auto.ROWS`, and of parts of the native search
    #: (:data:`memonger.solve.search.native.PARTS`), that are left out: for measuring their worth.
    without: FrozenSet[str] = frozenset()
    #: The work of the call that this search is a part of: what the search does is spent there, too.
    account: Optional[Effort] = field(default=None, repr=False, compare=False)
    #: Where op times come from, copied to the plan.
    costs: str = "units"

    def check(self) -> None:
        """Raise InputError for values that mean nothing."""
        if self.storage not in STORAGES:
            raise InputError("storage must be one of %s, not %r"
                             % (", ".join(STORAGES), self.storage))
        if self.variants not in VARIANTS:
            raise InputError("variants must be one of %s, not %r"
                             % (", ".join(VARIANTS), self.variants))
        if self.objective not in ("time", "memory"):
            raise InputError("objective must be time or memory, not %r" % self.objective)
        if not self.time_limit_s > 0:
            raise InputError("time_limit must be positive, not %r" % self.time_limit_s)
        if self.host_budget_bytes is not None and self.host_budget_bytes < 0:
            raise InputError("the host's budget cannot be negative: %r" % self.host_budget_bytes)
        if self.max_clones < 0:
            raise InputError("max_clones must not be negative: %r" % self.max_clones)
        if not self.effort > 0:
            raise InputError("effort must be positive, not %r" % self.effort)
        if self.max_overhead is not None and not self.max_overhead >= 0:
            raise InputError("the overhead cannot be negative: %r" % self.max_overhead)
        both = sorted(set(self.keep) & set(self.recompute))
        if both:
            raise InputError("op %d is both to be kept and to be recomputed" % both[0])
