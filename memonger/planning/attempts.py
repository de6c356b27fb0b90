"""What a budget allows, and which pool to search with after a plan that takes more."""
from __future__ import annotations

from dataclasses import dataclass
from typing import Mapping, Optional, Sequence, Tuple

from ..plans.plan import Plan
from ..solve.result import refusal
from ..util.errors import InfeasibleBudget
from ..util.units import format_distinct, parse_budget
from .network import Network
from .requests import PlanRequest


@dataclass(frozen=True)
class Limits:
    """What the budget of a request allows; without a budget, None and 0."""

    total_bytes: Optional[int]
    pool_bytes: Optional[int]
    #: A plan is accepted up to so many bytes in all.
    most_bytes: int
    #: Bytes that the first search leaves free for what is foreseen outside the graph.
    reserve_bytes: int
    outside_bytes: Mapping[str, int]


@dataclass(frozen=True)
class Attempt:
    """One search: its answer, the plan that was made of it, and the solver's refusal if any."""

    number: int
    tried_bytes: Optional[int]
    answer: Plan
    made: Plan
    refused: Optional[InfeasibleBudget]

    @property
    def more_bytes(self) -> int:
        """Bytes outside the pool that the search did not know of."""
        return sum(self.made.fixed_bytes.values()) - sum(self.answer.fixed_bytes.values())


def limited(network: Network, request: PlanRequest) -> Tuple[Network, Limits]:
    """The network as it is counted for the request's budget, and what that allows."""
    if request.budget is None:
        return network, Limits(None, None, 0, 0, network.outside_bytes)
    whole_bytes = network.unplanned.total_bytes
    total_bytes = parse_budget(request.budget, whole_bytes)
    if total_bytes >= whole_bytes:  # nothing changes: count it unplanned
        network = network.as_it_comes()
    allowed = network.pool_within(total_bytes)
    return network, Limits(
        total_bytes, allowed.pool_bytes, max(total_bytes, allowed.total_bytes),
        0 if total_bytes >= whole_bytes else network.reserve_bytes, allowed.outside_bytes)


def is_accepted(network: Network, limits: Limits, attempt: Attempt) -> bool:
    """Whether the plan keeps the budget, or cannot take fewer bytes than the search foresaw."""
    made, answer = attempt.made, attempt.answer
    if limits.total_bytes is None or made.total_bytes <= limits.most_bytes:
        return True
    return attempt.refused is None and network.is_foreseen \
        and made.pool_bytes == answer.pool_bytes and attempt.more_bytes <= 0


def next_budget(network: Network, limits: Limits, attempt: Attempt) -> Optional[int]:
    """The pool to search with after a plan that took too much; None if no other is worth it."""
    assert limits.total_bytes is not None and limits.pool_bytes is not None
    assert attempt.tried_bytes is not None
    if attempt.refused is None:
        tried_bytes = lowered(attempt.tried_bytes, attempt.made.total_bytes - limits.most_bytes)
        if network.is_foreseen:  # another plan's copies are most likely as large
            tried_bytes = min(tried_bytes, limits.pool_bytes - attempt.more_bytes)
        return tried_bytes
    if attempt.number == 0 and attempt.more_bytes < limits.reserve_bytes \
            and attempt.refused.bound_bytes <= limits.total_bytes:
        return limits.pool_bytes - attempt.more_bytes  # more was left free than is needed
    return None


def no_plan(network: Network, limits: Limits, attempts: Sequence[Attempt]) -> InfeasibleBudget:
    """The error where none of the attempts gave a plan within the budget."""
    assert limits.total_bytes is not None
    smallest = min((attempt.made for attempt in attempts), key=lambda plan: plan.total_bytes)
    if attempts[0].refused is not None:
        return refusal(smallest)
    return InfeasibleBudget(
        "no plan was found that takes no more than %s: the smallest takes %s"
        % format_distinct(limits.total_bytes, smallest.total_bytes) + network.advice(smallest),
        limits.total_bytes, smallest.total_bytes, best_plan=smallest)


def lowered(budget_bytes: int, excess_bytes: int) -> int:
    """The budget to search with after a plan took ``excess_bytes`` too much."""
    return budget_bytes - excess_bytes - budget_bytes // 500
