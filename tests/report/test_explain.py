"""Explanations: golden texts, and numbers that equal an independent calculation."""
from __future__ import annotations

import json
from dataclasses import replace

import pytest
from report.graphs import cheap_ops, plan_of, resnet

from memonger.graph.in_use import graph_in_use
from memonger.graph.offers import Offer, offering
from memonger.graph.schedule import Schedule, expand
from memonger.graph.types import Implementation
from memonger.memory.storage import plan_storage
from memonger.mx.calls.symbol_record import SymbolRecord
from memonger.report.explain import explain, flipped_schedule, rank_words
from memonger.report.facts import Facts
from memonger.report.formatting import format_time
from memonger.report.op_table import op_table
from memonger.util.errors import UnknownOpError
from memonger.util.units import format_bytes


@pytest.fixture(scope="module")
def plan():
    return plan_of(resnet((2, 2), 16, 64), options={"keep": ("softm*",)})


def test_explanations(plan, golden):
    names = ["bn0", "relu0", "conv0", "stage2_unit1_plus", "softmax",
             "stage1_unit1_conv1"]
    golden("explain.txt", "\n\n".join(explain(plan, name) for name in names) + "\n")
    assert all(plan.explain(name).startswith(name + " (") for name in plan.decisions)


@pytest.mark.parametrize("name", ["relu0", "stage2_unit2_bn1", "stage1_unit1_plus"])
def test_the_alternative_pool_is_that_of_the_other_decision(plan, name):
    graph = plan.graph
    without = {op: {} for op in cheap_ops(graph) if graph.ops[op].name != name}
    other = plan_storage(graph, expand(graph, without), "best")
    here = plan_storage(graph, plan.schedule, "best")
    assert "(%s instead of %s)" % (format_bytes(other.pool_bytes),
                                   format_bytes(here.pool_bytes)) in explain(plan, name)


def test_what_recomputing_a_kept_op_would_cost(plan):
    conv = plan.graph.op_index["conv0"]
    facts = Facts(plan)
    flipped = flipped_schedule(facts, facts.by_name["conv0"])
    assert set(flipped.recomputed()) == {conv} | set(plan.schedule.recomputed())
    assert "would cost %s a step" % format_time(plan.graph.ops[conv].time_s) \
        in explain(plan, "conv0")


def test_variants_are_explained_with_what_they_save():
    graph = resnet((1, 1), 4, 32)
    relu, bn = graph.op_index["relu0"], graph.op_index["bn0"]
    parts = [(relu, Implementation((graph.ops[bn].inputs[0],), graph.ops[relu].outputs,
                                   time_s=graph.ops[relu].time_s))]
    graph = offering(graph, [Offer("fused", relu, tuple(parts))])
    plan = plan_of(graph, schedule=Schedule(expand(graph, {}).steps, ()))
    in_use = graph_in_use(graph, Schedule((), (0,)))
    used = replace(plan, schedule=Schedule(expand(in_use, {}).steps, (0,)))
    shown = explain(used, "relu0")
    assert shown.splitlines()[0].endswith("runs as the variant fused.")
    assert "without the variant" in shown


def test_sizes_are_predicted_where_a_trial_gave_the_plan_others(plan):
    assert "predicted" not in explain(plan, "conv0")
    tried = plan.changed(planned=replace(
        plan.planned, predicted_pool_bytes=plan.pool_bytes - 8))
    assert "(predicted: " in explain(tried, "conv0")


def test_what_inductor_computes_again_anyway_is_told(plan):
    again = next(name for name, decision in plan.decisions.items() if decision == "recompute")
    words = "it is recomputed without a plan, too"
    assert words not in explain(plan, again)
    told = plan.changed(options={**plan.options, "again_anyway": [again, "conv0"]})
    assert words in explain(told, again) and words not in explain(told, "conv0")


def test_all_ops_are_listed(plan, golden):
    lines = op_table(plan)
    assert [line.split()[0] for line in lines.splitlines()[1:]] == list(plan.decisions)
    golden("op_table.txt", lines + "\n")


def test_unknown_names_bring_close_ones(plan):
    with pytest.raises(UnknownOpError, match="did you mean bn0"):
        explain(plan, "bn00")
    with pytest.raises(UnknownOpError, match="stage1_unit2_plus"):
        explain(plan, "unit2_plus")
    with pytest.raises(UnknownOpError, match="the network has 51 ops, the first is conv0"):
        explain(plan, "qqq")


def test_backward_ops_are_told_apart(plan):
    with pytest.raises(UnknownOpError, match="is an op of backward"):
        explain(plan, "conv0_backward")


def test_the_cheapest_op_is_first(plan):
    facts = Facts(plan)
    able = [f for f in facts.ops if plan.graph.ops[f.op].recomputable and f.size_bytes]
    first = min(able, key=lambda f: f.time_s / f.size_bytes)
    assert rank_words(facts, first).startswith("cheapest per MiB of the")
    last = max(able, key=lambda f: f.time_s / f.size_bytes)
    assert rank_words(facts, last).startswith("%dth cheapest" % len(able))


@pytest.mark.parametrize("op, attributes, asked, words", [
    ("LeakyReLU", {"act_type": "rrelu"}, "exact", "no variant fits: the activation is rrelu"),
    ("LeakyReLU", {"slope": "-1"}, "exact",
     "no variant fits: a negative slope makes the output's sign useless"),
    ("Pooling", {"pool_type": "lp"}, "all", "no variant fits: lp pooling needs no maxima; the "
     "gradient of lp pooling reads its input"),
    ("LayerNorm", {}, "exact", "with variants all it could run as layer_norm"),
    ("LayerNorm", {"output_mean_var": "True"}, "exact",
     "no variant fits: mean and variance are outputs of this op"),
    ("LayerNorm", {}, "none", None), ("exp", {}, "exact", None),
    # It fits, and was left out for what is to be kept or recomputed.
    ("Activation", {"act_type": "relu"}, "exact", None)])
def test_why_no_variant_stands_in_an_ops_place(plan, op, attributes, asked, words):
    nodes = [{"op": "null", "name": "data", "inputs": []},
             {"op": op, "name": "relu0", "attrs": attributes, "inputs": [[0, 0, 0]]}]
    symbol = {"nodes": nodes, "arg_nodes": [0], "heads": [[1, 0, 0]]}
    record = SymbolRecord(original_json=json.dumps(symbol))
    other = plan.changed(record=record, options={"variants": asked})
    last = other.explain("relu0").splitlines()[-1].strip()
    if words is None:
        assert "variant" not in last
    else:
        assert last == words


def test_variants_that_were_offered_are_named(plan):
    index = plan.graph.op_index["relu0"]
    offered = [Offer(name, index, ((index, Implementation((), ())),))
               for name in ("mask_relu", "batch_norm_relu")]
    other = plan.changed(graph=offering(plan.graph, offered), options={"variants": "exact"})
    assert other.explain("relu0").splitlines()[-1].strip() == \
        "could run as the variant mask_relu or batch_norm_relu"
