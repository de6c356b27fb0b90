"""Code that takes more than its plan says: planned again, refused, or let be."""
from __future__ import annotations

import pytest
from report.graphs import plan_of, resnet

from memonger.planning.trial import MARGINS, code_within_budget
from memonger.plans.footprint import Footprint
from memonger.plans.plan import Plan
from memonger.util.errors import InfeasibleBudget

PLAN = plan_of(resnet((1,), 4, 16))
FINGERPRINT = PLAN.graph.fingerprint
OUTSIDE = {"parameters": 100}


class Compiler:
    """Plans take what they may, and their code ``taken`` bytes, one after the other."""

    def __init__(self, *taken, smallest=0, **fields):
        self.taken, self.smallest, self.allowed = list(taken), smallest, []
        self.plan = PLAN.changed(**{
            "planned": Footprint(1000, OUTSIDE), "unplanned": Footprint(2000, OUTSIDE),
            "budget_bytes": 1100, **fields})

    def make(self, most_bytes):
        self.allowed.append(most_bytes.get(FINGERPRINT))
        plan = self._of(self.allowed[-1] or 1000)
        if plan.pool_bytes < self.smallest:
            raise InfeasibleBudget("no plan", self.plan.budget_bytes, self.smallest + 100,
                                   best_plan=self._of(self.smallest))
        return "code %d" % len(self.allowed), plan

    def _of(self, pool_bytes) -> Plan:
        return self.plan.changed(planned=Footprint(pool_bytes, OUTSIDE))

    def used_bytes(self, code, plan):
        assert code == "code %d" % len(self.allowed)
        return self.taken[len(self.allowed) - 1]

    def within_budget(self, **options):
        return code_within_budget(self.make, self.used_bytes, **options)


def test_code_within_the_budget_is_tried_once():
    compiler = Compiler(999)
    code, plan = compiler.within_budget()
    assert code == "code 1" and compiler.allowed == [None]
    assert plan.planned == Footprint(999, OUTSIDE, 1000)


def test_what_code_takes_beyond_its_plan_is_taken_off_the_next_budget():
    compiler = Compiler(1250, 1001, 900)
    code, plan = compiler.within_budget()
    first = int(1000 * 1000 / 1250 * MARGINS[0])
    assert compiler.allowed == [None, first, int(first * 1000 / 1001 * MARGINS[1])]
    assert code == "code 3" and plan.pool_bytes == 900
    assert plan.predicted_pool_bytes == compiler.allowed[-1]


def test_after_the_last_try_the_least_that_code_took_is_named():
    compiler = Compiler(1500, 1200, 1300, None, 1400, smallest=100)
    with pytest.raises(InfeasibleBudget, match="ask for at least 1300 bytes, or ask me") as refused:
        compiler.within_budget(advice=", or ask me")
    assert len(compiler.allowed) == 1 + len(MARGINS) + 2 and compiler.allowed[-1] == 100
    assert (refused.value.minimum_bytes, refused.value.budget_bytes) == (1300, 1100)


def test_where_no_plan_fits_what_is_left_the_smallest_is_the_last_try():
    fits = Compiler(5000, None, 990, smallest=700)
    assert fits.within_budget()[1].pool_bytes == 990
    assert fits.allowed == [None, 198, 700]
    with pytest.raises(InfeasibleBudget):
        Compiler(5000, None, 1001, smallest=700).within_budget()
    with pytest.raises(InfeasibleBudget):  # the first plan was the smallest
        Compiler(5000, smallest=1000).within_budget()


def test_where_no_plan_fits_the_smallest_is_tried_and_a_refusal_names_what_it_takes():
    fits = Compiler(None, 990, smallest=1200)
    assert fits.within_budget()[1].planned == Footprint(990, OUTSIDE, 1200)
    compiler = Compiler(None, 1500, smallest=1200)
    with pytest.raises(InfeasibleBudget) as refused:
        compiler.within_budget()
    named = refused.value.minimum_bytes
    assert named == 1600 and compiler.allowed == [None, 1200]
    # Asked for, it is taken, even where the code of plans that say less takes more.
    asked = Compiler(1900, 1800, 1700, None, 1500, smallest=100, budget_bytes=named)
    assert asked.within_budget()[1].total_bytes == named
    with pytest.raises(InfeasibleBudget, match="no plan"):  # nothing can be tried
        Compiler(None, None, smallest=1200).within_budget()
    far = Compiler(smallest=1600)
    with pytest.raises(InfeasibleBudget, match="no plan"):
        far.within_budget()
    assert far.allowed == [None]


@pytest.mark.parametrize("unplanned_bytes, named", [(1000, None), (1150, 1250), (1250, 1300)])
def test_where_the_code_of_no_plan_fits_the_unplanned_code_is_tried(unplanned_bytes, named):
    compiler = Compiler(None, 1200, unplanned_bytes, smallest=1200,
                        unplanned=Footprint(1100, OUTSIDE))
    unplanned = compiler.plan.changed(method="none", planned=Footprint(1100, OUTSIDE))

    def make():
        compiler.allowed.append("unplanned")
        return "code 3", unplanned
    if named is None:
        code, plan = compiler.within_budget(unplanned=make)
        assert code == "code 3" and plan.method == "none"
        assert plan.planned == Footprint(1000, OUTSIDE, 1100)
    else:
        with pytest.raises(InfeasibleBudget) as refused:
            compiler.within_budget(unplanned=make)
        assert refused.value.minimum_bytes == named
    assert compiler.allowed == [None, 1200, "unplanned"]


def test_unplanned_code_is_not_tried_where_it_is_foreseen_far_above_all_plans():
    compiler = Compiler(None, 1200, smallest=1200, unplanned=Footprint(1900, OUTSIDE))
    with pytest.raises(InfeasibleBudget):
        compiler.within_budget(unplanned=lambda: pytest.fail("tried"))


def test_a_plan_that_was_tried_before_keeps_its_prediction():
    tried = Compiler(999).within_budget()[1]
    compiler = Compiler(1200, 998)
    compiler.plan = tried

    def make(most_bytes):
        code, plan = compiler.make(most_bytes)
        return code, tried if code == "code 1" else plan
    plan = code_within_budget(make, compiler.used_bytes)[1]
    assert compiler.allowed == [None, int(1000 * 1000 / 1200 * MARGINS[0])]
    assert plan.planned == Footprint(998, OUTSIDE, compiler.allowed[-1])
    again = code_within_budget(lambda _: ("code", tried), lambda *_: 997)[1]
    assert again.planned == Footprint(997, OUTSIDE, 1000)


@pytest.mark.parametrize("taken, proven", [(950, 1050), (900, None)])
def test_code_may_take_less_than_was_proven_of_predictions(taken, proven):
    plan = Compiler(taken, minimum_total_bytes=1050).within_budget()[1]
    assert plan.total_bytes == taken + 100 and plan.minimum_total_bytes == proven


def test_unplanned_code_has_a_share_of_what_it_takes():
    compiler = Compiler(1250, method="none", options={"budget": "200%"})
    plan = compiler.within_budget()[1]
    assert plan.unplanned == Footprint(1250, OUTSIDE, 2000)
    assert plan.pool_bytes == 1250 and plan.budget_bytes == 2 * 1350


@pytest.mark.parametrize("fields, taken", [({"budget_bytes": None}, 5000), ({}, None)])
def test_what_cannot_be_tried_or_has_no_budget_stays_as_predicted(fields, taken):
    compiler = Compiler(taken, **fields)
    assert compiler.within_budget() == ("code 1", compiler.plan)
    assert code_within_budget(lambda most: ("code", None), compiler.used_bytes) == ("code", None)
