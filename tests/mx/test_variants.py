"""Operator variants in the planner's graph: bytes exact, gradients as stated, off again."""
from __future__ import annotations

import random
import re

import mxnet as mx
import pytest
from training_nets import small_network as build

import memonger
from memonger.graph.in_use import graph_in_use
from memonger.graph.schedule import Schedule, expand
from memonger.mx.calls.binding import Binding
from memonger.mx.calls.opening import open_network
from memonger.mx.rewrite import variant_graph
from memonger.mx.rewrite.apply import apply_plan_to
from memonger.plans.plan import Status
from memonger.solve.options import Options
from memonger.solve.result import build_plan
from memonger.zoo import nets


def session(name):
    net = nets.build(name, 1, height=64, width=64, filters=8) if name == "unet" else build(name)
    return net, open_network(net.symbol, Binding(net.shapes), "reference")


def choose(graph, draw, share):
    """Random variants that do not overlap."""
    taken, chosen = set(), []
    for index in draw.sample(range(len(graph.variants)), len(graph.variants)):
        ops = {op for op, _ in graph.variants[index].choices}
        if not ops & taken and draw.random() < share:
            taken |= ops
            chosen.append(index)
    return tuple(sorted(chosen))


def plan_with(graph, chosen, again=(), storage="arena"):
    """The plan that runs these variants, and these ops again."""
    in_use = graph_in_use(graph, Schedule((), tuple(chosen)))
    steps = expand(in_use, {op: {} for op in again}).steps
    return build_plan(graph, Schedule(steps, tuple(chosen)), "test", Options(storage=storage), None,
                      Status.FEASIBLE)


def named(graph, name):
    """Numbers of the variants of this name."""
    return tuple(i for i, variant in enumerate(graph.variants) if variant.name == name)


def running(graph, schedule):
    """Steps that are left: ops that became part of another one have no outputs."""
    return sum(bool(graph.ops[step.op].outputs) for step in schedule.steps)


@pytest.mark.parametrize("name", ["resnet18", "squeezenet1_0", "mobilenet_v2", "dmlc_resnet50",
                                  "attention_small", "unet"])
@pytest.mark.parametrize("exact", [True, False])
def test_pool_with_random_variants_and_clones(name, exact):
    net, opened = session(name)
    check_known(net, opened, exact, random.Random(name), (0.5, 1.0))


@pytest.mark.parametrize("name, options", [
    ("googlenet_three_losses", {"image": 96}),
    ("gru_attention", {"source_steps": 6, "target_steps": 5, "vocabulary": 300})])
def test_variants_swapped_in_together_are_those_swapped_in_kind_by_kind(monkeypatch, name,
                                                                        options):
    net = nets.build(name, batch=2, **options)
    asked = []
    sets = variant_graph.swapped_together

    def by_kind(chains):
        asked.append(len(sets(chains)))
        kinds = sorted({kind for kind, _ in chains})
        asked.append(len(kinds))
        return [[swap for swap in chains if swap[0] == kind] for kind in kinds]

    def graph_with_variants():
        opened = open_network(net.symbol, Binding(net.shapes), "reference")
        return opened.offering("all").graph

    together = graph_with_variants()
    monkeypatch.setattr(variant_graph, "swapped_together", by_kind)
    alone = graph_with_variants()
    assert (together.tensors, together.ops, together.variants) == \
        (alone.tensors, alone.ops, alone.variants)
    assert 2 * asked[0] <= asked[1]


@pytest.mark.parametrize("name, seed", [("googlenet", 0), ("gan", 0),
                                        ("googlenet_three_losses", 1), ("gru_attention", 1)])
def test_pool_and_order_of_networks_that_were_once_predicted_wrong(name, seed):
    """Many ops in one variant; a weight that is made again; two ops of one name; batch_dot."""
    check_network(name, seed)


@pytest.mark.slow
@pytest.mark.parametrize("name", [
    "alexnet", "attention_small", "darts_cifar10", "densenet121", "dmlc_lstm", "dmlc_resnet50",
    "inception_v3", "lstm_lm_35", "mobilenet", "mobilenet_v2", "nasnet_cifar10", "resnet50",
    "resnet101_v2", "squeezenet1_1", "transformer", "unet", "vgg13_bn", "vgg16"])
def test_pool_and_order_of_the_zoo(name):
    for seed in range(2):
        check_network(name, seed)


#: The example's 1000 steps are 130 000 ops: reading them once took a minute, and each check reads
#: them four times. Steps are alike: a fifth of them has every kind of op, variant and neighbour.
SHORTER = {"dmlc_lstm": {"steps": 200}, "gru_attention": {"source_steps": 9, "target_steps": 8}}


def check_network(name, seed):
    net = nets.build(name, batch=2, **SHORTER.get(name, {}))
    opened = open_network(net.symbol, Binding(net.shapes), "reference")
    draw = random.Random(seed)
    check_known(net, opened, False, draw, (draw.choice((0.3, 0.6, 1.0)),))


def same_order(graph, schedule, bound):
    """The bound executor runs the steps of the schedule, one by one."""
    in_use = graph_in_use(graph, schedule)
    part_of = {op: graph.ops[graph.variants[i].op].name for i in schedule.variants
               for op, implementation in graph.implementations_of(i)
               if implementation.runs}

    def runs(ops, index):
        """The forward op that the op runs, repeats or differentiates; how much it makes."""
        op = ops[index]
        name = ops[op.forward_op].name if op.forward_op >= 0 else op.name
        return name, len(op.outputs)

    planned = []
    for step in schedule.steps:
        name, made = runs(in_use.ops, step.op)
        if made:
            planned.append((part_of.get(step.op, name), made))
    ran = [runs(bound.ops, index) for index in range(len(bound.ops))]
    assert [(re.sub(r"_recompute\d+$", "", name), made) for name, made in ran] == planned


def random_plan(graph, draw, share, storage):
    """A share of the variants and of what can be recomputed; also the graph with them in use."""
    chosen = choose(graph, draw, share)
    in_use = graph_in_use(graph, Schedule((), chosen))
    return in_use, plan_with(graph, chosen, [
        i for i, op in enumerate(in_use.ops)
        if op.recomputable and op.outputs and draw.random() < 0.4], storage)


def check_known(net, opened, exact, draw, shares):
    """:func:`check_prediction` for a network that has variants."""
    graph = opened.offering("exact" if exact else "all").graph
    assert graph.variants and opened.storage == "arena"
    check_prediction(net.symbol, opened, graph, draw, shares)


def check_prediction(symbol, opened, graph, draw, shares):
    """The planned symbols, one for each share of the variants, once they are as predicted."""
    assert graph.fingerprint == opened.graph.fingerprint
    made = []
    for share in shares:
        in_use, plan = random_plan(graph, draw, share, opened.storage)
        planned = apply_plan_to(symbol, plan)
        bound = opened.runner.read(planned)
        same_order(graph, plan.schedule, bound.graph)
        assert bound.pool_bytes == plan.pool_bytes
        assert len(bound.graph.ops) == running(in_use, plan.schedule)
        assert memonger.strip(planned).tojson() == symbol.tojson()
        assert planned.list_arguments() == symbol.list_arguments()
        assert planned.list_outputs() == symbol.list_outputs()
        made.append(planned)
    return made


@pytest.mark.parametrize("name", ["resnet18", "squeezenet1_0", "attention_small"])
def test_exact_variants_give_the_same_gradients(name):
    net, opened = session(name)
    graph = opened.offering("exact").graph
    plan = plan_with(graph, choose(graph, random.Random(1), 1.0), storage=Options().storage)
    result = memonger.verify(apply_plan_to(net.symbol, plan), net.symbol, shapes=net.shapes)
    assert result.identical


def test_the_clip_of_an_input_whose_gradient_is_added_to():
    """MXNet's clip forgets to add; so does what takes its place."""
    symbol = mx.sym.sum(mx.sym.clip(mx.sym.var("data"), a_min=0, a_max=1, name="clip"))
    shapes = {"data": (2, 8)}
    opened = open_network(symbol, Binding(shapes, grad_req="add"), "reference")
    graph = opened.offering("exact").graph
    planned = apply_plan_to(symbol, plan_with(graph, named(graph, "mask_clip")))
    assert "mask_clip" in planned.tojson()
    assert memonger.verify(planned, symbol, shapes=shapes, grad_req="add").identical


def test_whole_numbers_stay_with_mxnets_operators():
    """MXNet's clip and relu take them; a network that has both kinds was not planned at all."""
    data = mx.sym.Variable("data")
    whole = mx.sym.relu(mx.sym.clip(mx.sym.Cast(data, dtype="int32"), 0, 5, name="clip"),
                        name="whole")
    index = mx.sym.Embedding(mx.sym.max(whole, axis=1), input_dim=6, output_dim=64, name="embed")
    real = data
    for layer in range(3):
        real = mx.sym.relu(mx.sym.FullyConnected(real, num_hidden=64, name="dense%d" % layer),
                           name="relu%d" % layer)
    net = mx.sym.SoftmaxOutput(real + index, name="softmax")
    requests = {name: "null" if name in ("data", "softmax_label") else "write"
                for name in net.list_arguments()}
    plan = memonger.plan(net, grad_req=requests, time_limit=0.3, data=(64, 64))
    assert {(variant.name, plan.graph.ops[variant.op].name) for variant in plan.graph.variants} == \
        {("mask_relu", "relu%d" % layer) for layer in range(3)}
    assert memonger.verify(plan.symbol, net, grad_req=requests, data=(64, 64)).identical


def test_exact_variants_make_a_budget_cheaper():
    net, opened = session("resnet18")
    budget = sum(opened.outside_bytes.values()) + int(0.6 * opened.unplanned.pool_bytes)
    plain, plan = (memonger.plan(net.symbol, budget=budget, variants=variants, time_limit=1.0,
                                 **net.shapes) for variants in ("none", "exact"))
    assert plan.total_bytes <= plan.budget_bytes
    assert plan.overhead <= plain.overhead + 1e-9
    assert all(v.exact for v in plan.graph.variants)
    assert memonger.verify(plan.symbol, net.symbol, shapes=net.shapes).identical


def test_ops_that_mxnet_merges_are_swapped_together():
    """Three readers of one value, each behind a ReLU of its own, are one op for MXNet."""
    x = mx.sym.Convolution(mx.sym.var("data"), num_filter=4, kernel=(3, 3), name="conv")
    heads = [mx.sym.mean(mx.sym.exp(mx.sym.Activation(x, act_type="relu", name="relu%d" % i)))
             for i in range(3)]
    symbol, shapes = mx.sym.add_n(*heads), {"data": (2, 3, 9, 9)}
    opened = open_network(symbol, Binding(shapes), "reference")
    graph = opened.offering("exact").graph
    assert [op.kind for op in graph.ops].count("Activation") == 1
    chosen = named(graph, "mask_relu")
    assert len(chosen) == 1
    plan = plan_with(graph, chosen)
    planned = apply_plan_to(symbol, plan)
    bound = opened.runner.read(planned)
    assert [op.kind for op in bound.graph.ops].count("memonger_mask_relu") == 1
    assert len(bound.graph.ops) == running(graph_in_use(graph, plan.schedule), plan.schedule)
    assert bound.pool_bytes == plan.pool_bytes
    assert memonger.strip(planned).tojson() == symbol.tojson()
    assert memonger.verify(planned, symbol, shapes=shapes).identical


def test_ops_behind_two_that_mxnet_does_not_merge():
    """SliceChannel has a state: two of the same values stay two, and so do the ops behind them."""
    x = mx.sym.FullyConnected(mx.sym.Flatten(mx.sym.var("data")), num_hidden=8, name="fc")
    parts = [mx.sym.SliceChannel(x, num_outputs=2, name="slice%d" % i) for i in range(2)]
    # MXNet merges the third tanh into the second, not into the first.
    bent = [mx.sym.tanh(parts[i][0], name="tanh%d" % j) for j, i in enumerate((0, 1, 1))]
    joined = [mx.sym.Concat(bent[i], parts[i][1], name="concat%d" % i) for i in range(2)]
    symbol, shapes = mx.sym.add_n(*joined, *[mx.sym.Concat(b, b) for b in bent]), {"data": (2, 8)}
    opened = open_network(symbol, Binding(shapes), "reference")
    graph = opened.offering("exact").graph
    assert {"tanh0", "tanh1", "concat0", "concat1"} < set(graph.op_index)
    assert "tanh2" not in graph.op_index
    for chosen in [(), *((i,) for i in range(len(graph.variants)))]:
        for again in ("tanh0", "tanh1"):
            plan = plan_with(graph, chosen, [graph.op_index[again]])
            bound = opened.runner.read(apply_plan_to(symbol, plan))
            same_order(graph, plan.schedule, bound.graph)
            assert bound.pool_bytes == plan.pool_bytes
