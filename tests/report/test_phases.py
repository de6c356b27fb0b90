"""Reports on steps of several passes, and on values that are moved to the host."""
from __future__ import annotations

import pytest
from laid import IN_A_ROW, laid
from solve.test_host import offloadable
from training_nets import residual_network, transformer

from memonger.report import html
from memonger.report.explain import explain
from memonger.report.facts import Facts
from memonger.solve.imported import plan_graph
from memonger.util.errors import UnknownOpError


def test_a_later_forward_pass_reads_nothing_in_backward():
    graph = laid([residual_network(2), transformer(1)], IN_A_ROW)
    plan = plan_graph(graph, "75%", "local", time_limit_s=1)
    facts = Facts(plan)
    later = graph.phases[2].first_op
    for fact in facts.ops:
        late = facts.late_readers(fact.op) if fact.op >= later else []
        assert all("backward" in facts.step_name(s) or "#" in facts.step_name(s) for s in late)
    # Its one reader is a forward op of the second pass.
    assert "is not needed in backward" in explain(plan, "1/dense5")
    assert "%d ops" % graph.num_forward in str(plan) and html.page(plan)


def test_places_for_copies_that_no_variant_uses_are_no_ops():
    graph = offloadable()
    plan = plan_graph(graph, "60%", "auto", time_limit_s=1)
    used = {graph.ops[op].name for v in plan.schedule.variants
            for op, _ in graph.variants[v].choices}
    stores = [op.name for op in graph.ops if op.kind == "store"]
    unused = next(name for name in stores if name not in used)
    with pytest.raises(UnknownOpError, match="runs in variants alone"):
        explain(plan, unused)
    moved = next(name for name in stores if name in used)
    assert explain(plan, moved) and html.page(plan)
    assert "%d ops" % graph.num_forward in str(plan)
    assert graph.num_forward == transformer(2).num_forward
