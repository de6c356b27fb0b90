"""Requests for plans in the words of users: budgets, shares, names of ops."""
from __future__ import annotations

import difflib
import fnmatch
from dataclasses import dataclass, field
from typing import FrozenSet, List, Optional, Sequence, Tuple, Union

from ..graph.types import Graph
from ..plans.plan import Budget, Plan
from ..report.progress import Callback
from ..solve import methods
from ..solve.options import VARIANTS
from ..util import argument_checks as check
from ..util.errors import InputError, UnknownOpError
from ..util.messages import listed


@dataclass(frozen=True)
class PlanRequest:
    """A request for a plan; fields as the parameters of :func:`memonger.plan`."""

    budget: Budget = None
    overhead: Union[None, str, float] = None
    method: str = "auto"
    variants: str = "exact"
    keep: Sequence[str] = ()
    recompute: Sequence[str] = ()
    time_limit: float = 10.0
    max_clones: int = 0
    name: str = ""
    progress: Optional[Callback] = field(default=None, repr=False)
    #: Prove how little a plan can cost; else all work goes into finding one.
    prove: bool = True
    #: As in :class:`memonger.solve.Options`.
    without: FrozenSet[str] = frozenset()
    #: A plan of the same network to begin with, such as that of another batch.
    given: Optional[Plan] = field(default=None, repr=False)
    #: Sentences on the request, for the notes of its plan.
    notes: Tuple[str, ...] = ()
    #: Most bytes of values on the host; None is no limit.
    host_budget_bytes: Optional[int] = None

    def __post_init__(self) -> None:
        if self.budget is not None and self.overhead is not None:
            raise InputError("give a budget or an overhead, not both")
        if self.method not in methods():
            raise InputError("unknown method %s; one of %s, or a registered name"
                             % (check.shown(self.method), ", ".join(methods())))
        check.text("name", self.name, "resnet50")
        check.whole_number("max_clones", self.max_clones, 0)
        if self.host_budget_bytes is not None:
            check.whole_number("host_budget_bytes", self.host_budget_bytes, 0)
        if self.progress is not None:
            check.function("progress", self.progress)
        check_variants(self.variants)
        object.__setattr__(self, "time_limit", check.real_number("time_limit", self.time_limit))


def check_variants(variants: str) -> None:
    """Raise InputError unless it is one of :data:`memonger.solve.options.VARIANTS`."""
    if variants not in VARIANTS:
        raise InputError("variants must be none, exact or all, not %r" % (variants,))


def pins(graph: Graph, patterns: Union[str, Sequence[str]], what: str) -> Tuple[int, ...]:
    """Ids of the forward ops that the patterns name; shell wildcards are allowed.

    Raises UnknownOpError if a pattern names no op; close names are suggested.
    """
    names = graph.op_index
    matching: List[int] = []
    listing = [patterns] if isinstance(patterns, str) else patterns
    if not isinstance(listing, (list, tuple, set, frozenset)) or \
            not all(isinstance(pattern, str) for pattern in listing):
        raise InputError("%s must be names of ops, such as [\"fc*\"], not %s"
                         % (what, check.shown(patterns)))
    for pattern in listing:
        named = [index for name, index in names.items()
                 if name == pattern or fnmatch.fnmatchcase(name, pattern)]
        if not named:
            close = difflib.get_close_matches(pattern, list(names), 3)
            variable = any(tensor.name == pattern for tensor in graph.tensors
                           if tensor.producer < 0)
            raise UnknownOpError("%s=%r names no op of the network%s" % (
                what, pattern, ", but an input or parameter, which stays in memory" if variable
                else "; did you mean %s?" % listed(close) if close else ""))
        matching += named
    return tuple(sorted(set(matching)))


def share_of(value: Union[None, str, float]) -> Optional[float]:
    """An overhead as a share: "10%" and 0.1 are the same."""
    if value is None:
        return None
    try:
        percent = isinstance(value, str) and value.endswith("%")
        if isinstance(value, bool):
            raise TypeError
        share = float(str(value)[:-1]) / 100 if percent else float(value)
    except (TypeError, ValueError):
        raise InputError("cannot read the overhead %r; write it as 10%% or 0.1"
                         % (value,)) from None
    if not percent and share >= 3:
        raise InputError("an overhead of %g means steps %g times as long; write \"%g%%\", or "
                         "\"%g%%\" if you mean that"
                         % (share, 1 + share, share, 100 * share))
    if not 0 <= share < float("inf"):
        raise InputError("the overhead cannot be %r" % (value,))
    return share
