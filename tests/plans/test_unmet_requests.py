"""``recompute=`` is obeyed by every method; where it has no effect the plan says so."""
from __future__ import annotations

import random

import mxnet as mx
import pytest
from mx.random_symbols import random_symbol
from mxnet.gluon import nn

import memonger
from memonger.graph.in_use import effective_ops
from memonger.plans.unmet_requests import run_once
from memonger.util.errors import InfeasibleBudget


def test_the_last_value_of_a_block_is_not_worth_running_again():
    block = nn.HybridSequential(prefix="net_")
    with block.name_scope():
        for _ in range(2):
            block.add(nn.Dense(8), nn.Activation("tanh"))
    block.initialize()
    block.hybridize()
    plan = memonger.gluon.plan(block, (4, 6), recompute=["*tanh*"], variants="none",
                                time_limit=0.1)
    assert (plan.decisions["net_tanh0_fwd"], plan.decisions["net_tanh1_fwd"]) == \
        ("recompute", "keep")
    reason = "backward reads it right after its last use, so nothing would be freed"
    assert "recompute has no effect on net_tanh1_fwd (%s)" % reason in plan.notes
    assert "asked for: recompute=('*tanh*',) says to recompute it, without effect: " + reason \
        in plan.explain("net_tanh1_fwd")
    assert "no effect" in str(plan) and "no effect" not in plan.explain("net_tanh0_fwd")


def test_each_reason_is_told():
    with mx.name.NameManager():
        x = mx.sym.FullyConnected(mx.sym.var("data"), num_hidden=8, name="linear")
        x = mx.sym.Dropout(mx.sym.Activation(x, act_type="relu", name="relu"), name="drop")
        x = mx.sym.LayerNorm(mx.sym.FullyConnected(x, num_hidden=8, name="second"), name="norm")
        net = mx.sym.SoftmaxOutput(mx.sym.FullyConnected(x, num_hidden=3, name="fc"), name="loss")
    asked = ["linear", "drop", "fc"]
    plan = memonger.plan(net, recompute=asked, keep=["relu", "second", "norm"],
                         variants="none", data=(4, 6))
    reasons = run_once(plan.graph, plan.schedule,
                       [plan.graph.op_index[name] for name in (*asked, "relu")])
    index = plan.graph.op_index
    assert reasons[index["linear"]] == reasons[index["fc"]] == "backward does not read it"
    assert reasons[index["drop"]].startswith("it must not be recomputed: it draws random numbers")
    [note] = [note for note in plan.notes if "no effect" in note]
    assert note.startswith("recompute has no effect on linear (backward does not read it), drop (")
    assert "kept: 1 op that must not be recomputed: drop (it draws random numbers)" in plan.notes


def gaps(graph, schedule, op):
    """Steps between the last use of what the op made in forward and the first in backward."""
    ops = effective_ops(graph, schedule.variants)
    place = {number: k for k, number in enumerate(
        number for number, one in enumerate(ops) if one.outputs and one.runs)}
    for slot, tensor in enumerate(graph.ops[op].outputs):
        if slot in graph.ops[op].kept_outputs:
            continue
        uses = [op] + [number for number, one in enumerate(ops) if number in place and any(
            read == tensor and k not in one.ignored_inputs for k, read in enumerate(one.inputs))]
        early = [number for number in uses if not ops[number].is_backward]
        late = [number for number in uses if ops[number].is_backward]
        if late:
            yield place[late[0]] - place[early[-1]] - 1


@pytest.mark.parametrize("method", ["auto", "local", "milp", "chen", "ogc", "sublinear"])
def test_whatever_can_run_again_does_when_it_was_asked_for(method):
    """The 0/1 programs kept a tenth of it: what the last op of forward reads, for one."""
    checked = 0
    for seed in range(12):
        draw = random.Random(seed)
        symbol, shapes = random_symbol(seed, draw.choice((4, 8)), chains=draw.random() < 0.5)
        try:
            plan = memonger.plan(symbol, draw.choice((None, "95%")), method=method, time_limit=0.05,
                                 variants=draw.choice(("none", "all")), recompute=["*"],
                                 shapes=shapes)
        except InfeasibleBudget:
            continue
        forward = [i for i, op in enumerate(plan.graph.ops) if not op.is_backward]
        for op, reason in run_once(plan.graph, plan.schedule, forward).items():
            if "right after" in reason:
                assert not any(gaps(plan.graph, plan.schedule, op)), (seed, op)
        checked += bool(plan.schedule.recomputed())
    assert checked >= 4
