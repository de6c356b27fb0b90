"""Fields of a plan's parts: read, changed and compared on the plan itself."""
from __future__ import annotations

from dataclasses import FrozenInstanceError, fields

import pytest
from footprints import pair, plan_with
from report.graphs import tiny

from memonger.graph.schedule import expand
from memonger.plans.footprint import Footprint
from memonger.plans.plan import Plan, Status

GRAPH = tiny()
PLAN = plan_with(pair(40, 50, {"inputs": 8}), GRAPH, expand(GRAPH, {}), options={"budget": "80%"})
PARTS = ("terms", "footprints", "outcome")


def test_every_field_of_a_part_is_read_on_the_plan():
    read = {name: getattr(getattr(PLAN, part), name)
            for part in PARTS for name in (item.name for item in fields(getattr(PLAN, part)))}
    assert read.keys() == {
        "budget_bytes", "options", "costs", "storage", "planned", "unplanned", "status", "method",
        "bound", "bounded", "minimum_total_bytes", "notes", "planning_s", "measured", "from_file"}
    assert all(getattr(PLAN, name) is value for name, value in read.items())
    with pytest.raises(FrozenInstanceError):
        PLAN.status = Status.OPTIMAL


def test_changed_fields_go_to_the_parts_that_have_them():
    schedule = expand(GRAPH, {0: {}})
    plan = PLAN.changed(schedule=schedule, status=Status.OPTIMAL, planned=Footprint(30),
                        budget_bytes=60)
    assert (plan.schedule, plan.status, plan.total_bytes, plan.budget_bytes) == (
        schedule, Status.OPTIMAL, 30, 60)
    assert (plan.graph, plan.method, plan.unplanned, plan.options) == (
        PLAN.graph, PLAN.method, PLAN.unplanned, PLAN.options)
    assert PLAN.status is Status.FEASIBLE and PLAN.changed() == PLAN
    with pytest.raises(TypeError):
        PLAN.changed(total_bytes=30)


@pytest.mark.parametrize("name, value, same", [
    ("planning_s", 1.0, True), ("bounded", True, True), ("from_file", True, True),
    ("bound", 0.1, False), ("notes", ("a",), False), ("costs", "another", False),
    ("options", {}, False), ("planned", Footprint(41), False), ("measured", {}, False)])
def test_plans_compare_by_what_a_file_of_them_holds(name, value, same):
    other = PLAN.changed(**{name: value})
    assert getattr(other, name) == value and (other == PLAN) is same


def test_a_plan_has_five_parts_and_a_record():
    assert [item.name for item in fields(Plan)] == [
        "terms", "graph", "schedule", "footprints", "outcome", "record"]
