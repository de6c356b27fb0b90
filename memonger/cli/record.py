"""Plans as the flat records that ``--json`` prints."""
from __future__ import annotations

from collections import Counter
from typing import Any, Dict

from ..plans.plan import Plan
from ..report.facts import Facts


def plan_record(plan: Plan) -> Dict[str, Any]:
    """What is worth knowing about a plan, in bytes, seconds and shares.

    The plan itself, with its decisions in full, is what ``-o`` writes.
    """
    decisions = plan.decisions
    return {
        "status": plan.status.value, "advice": plan.status.advice, "method": plan.method,
        "storage": plan.storage, "costs": plan.costs,
        "pool_bytes": plan.pool_bytes, "baseline_pool_bytes": plan.baseline_pool_bytes,
        "total_bytes": plan.total_bytes, "baseline_total_bytes": plan.baseline_total_bytes,
        "fixed_bytes": dict(plan.fixed_bytes), "budget_bytes": plan.budget_bytes,
        "minimum_total_bytes": plan.minimum_total_bytes,
        "overhead": plan.overhead, "bound": plan.bound, "step_s": plan.graph.time_s,
        "recomputed_s": Facts(plan).recomputed_s,
        "ops": len(decisions), "decisions": dict(Counter(decisions.values())),
        "notes": list(plan.notes), "seconds": round(plan.planning_s, 3),
        "measured": plan.measured, "as_the_file_says": list(plan.unchecked),
    }
