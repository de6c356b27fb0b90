"""``budget="knee"``: the budget at which less memory starts to cost more time."""
from __future__ import annotations

from dataclasses import replace
from typing import Dict, Tuple

import pytest
from footprints import pair, plan_with
from planning_net import StatedNetwork
from small_graphs import chain

from memonger.graph.schedule import expand
from memonger.planning.max_batch import search_batch
from memonger.planning.requests import PlanRequest
from memonger.planning.searches import plan_network
from memonger.plans.plan import Plan
from memonger.solve.frontier import find_knee
from memonger.solve.imported import plan_graph
from memonger.util.errors import InfeasibleBudget, InputError

#: Forward values of 100 bytes, each of which takes a second to make again: 1200 bytes in all.
GRAPH = replace(chain((100,) * 10, (1.0,) * 10), pools="units")


def stated(curve: Dict[int, float]):
    """What plans for a budget, where the cheapest plan of each total takes so much extra time."""
    def plan_at(budget_bytes: int) -> Plan:
        fitting = [total for total in curve if total <= budget_bytes]
        if not fitting:
            raise InfeasibleBudget("no plan fits", budget_bytes, min(curve), bound_bytes=min(curve))
        total = min(fitting, key=lambda size: (curve[size], size))
        schedule = expand(GRAPH, {})
        times = [op.time_s * (1 + curve[total]) for op in GRAPH.ops]
        return _Fixed(plan_with(pair(total, 1000), GRAPH.with_times(times), schedule,
                                budget_bytes=budget_bytes), curve[total])
    return plan_at


class _Fixed:
    """A plan whose overhead is given."""

    def __init__(self, plan: Plan, overhead: float):
        self._plan, self.overhead = plan, overhead

    def __getattr__(self, name: str):
        return getattr(self._plan, name)


def test_the_knee_of_a_curve_is_found_and_said() -> None:
    share, plan, note = find_knee(1000, stated({
        1000: 0.0, 800: 0.01, 640: 0.02, 500: 0.03, 400: 0.3, 300: 0.9}))
    assert share == "50%" and plan.total_bytes == 500
    assert note == ("the knee of memory against time is at 50% of the unplanned total "
                    "(100%: +0.0 % time, 80%: +1.0 % time, 65%: +2.0 % time, 50%: +3.0 % time, "
                    "40%: +30.0 % time, 30%: +90.0 % time)")


@pytest.mark.parametrize("curve, total", [
    ({1000: 0.0}, 1000), ({1000: 0.0, 450: 0.5}, 1000), ({1000: 0.0, 900: 0.0, 300: 0.5}, 900),
    ({1000: 0.0, 450: 0.0}, 450)])
def test_a_curve_of_less_than_three_plans_has_its_fastest(
        curve: Dict[int, float], total: int) -> None:
    assert find_knee(1000, stated(curve)).plan.total_bytes == total


def test_a_step_that_no_plan_takes_less_than_is_refused() -> None:
    with pytest.raises(InfeasibleBudget):
        find_knee(1000, stated({1200: 0.0}))


def curve_of(note: str) -> Tuple[str, int]:
    """The share that a note names, and of how many plans."""
    return note.split(" is at ")[1].split(" ")[0], note.count("% time")


def test_a_graph_is_planned_at_its_knee() -> None:
    plan = plan_graph(GRAPH, "knee")
    share, plans = curve_of(plan.notes[-1])
    assert plans > 3
    assert plan.budget_bytes == int(float(share[:-1]) * plan.baseline_total_bytes / 100)
    assert plan.schedule == plan_graph(GRAPH, share).schedule
    assert plan.total_bytes <= plan.budget_bytes < plan.baseline_total_bytes


def test_a_network_is_planned_at_its_knee() -> None:
    network = StatedNetwork(replace(GRAPH, pools="executor"))
    plan = plan_network(network, PlanRequest("knee"))
    share, _ = curve_of(plan.notes[-1])
    assert plan.budget_bytes == int(float(share[:-1]) * network.unplanned.total_bytes / 100)
    assert plan.options["budget"] == share
    assert plan.overhead == plan_network(network, PlanRequest(share)).overhead


def test_a_largest_batch_has_no_knee() -> None:
    with pytest.raises(InputError, match="in bytes"):
        search_batch(PlanRequest("knee"), 4, lambda batch: 1, lambda request, batch: None)
