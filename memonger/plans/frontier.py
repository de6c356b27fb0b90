"""Plans of one step for many budgets: those that no other beats, and where the curve bends."""
from __future__ import annotations

from typing import List, Optional, Sequence

from .plan import Plan


def frontier(plans: Sequence[Plan]) -> List[Plan]:
    """The plans that no other plan beats in both memory and time, least memory first."""
    best: List[Plan] = []
    for plan in sorted(plans, key=lambda p: (p.total_bytes, p.overhead)):
        if not best or plan.overhead < best[-1].overhead:
            best.append(plan)
    return best


def knee(plans: Sequence[Plan]) -> Optional[Plan]:
    """The point of the frontier farthest below the straight line between its two ends.

    "Kneedle" (Satopaa et al. 2011, section III) for one curve: both axes scaled to 0..1, the
    largest distance from the diagonal. None for fewer than three points. O(n log n).
    """
    points = frontier(plans)
    if len(points) < 3:
        return None
    low, high = points[0], points[-1]
    width = high.total_bytes - low.total_bytes
    height = low.overhead - high.overhead

    def gain(plan: Plan) -> float:
        return (high.total_bytes - plan.total_bytes) / width \
            + (low.overhead - plan.overhead) / height

    return max(points[1:-1], key=gain)
