"""Reading graphs that are not MXNet's."""
from __future__ import annotations

import json
import os

import pytest

from memonger.graph.imported import parse_graph, parse_imported_budget, read_graph
from memonger.graph.types import Graph, Op, Tensor
from memonger.solve.imported import plan_graph
from memonger.util.errors import InfeasibleBudget, InputError

TEXT = "3 2\n10 1 1\n20 2 1\n5 3 0\n0 1\n1 2\n"
PEERS = os.environ.get("MEMONGER_PEERS") or os.path.join(
    os.path.dirname(__file__), "..", "..", "..", "shared", "peers")


def node_link(nodes, links, ends=("source", "target")):
    return json.dumps({"directed": True, "nodes": nodes,
                       "links": [dict(zip(ends, link)) for link in links]})


def test_a_refusal_says_what_was_rounded():
    graph = parse_graph("4 4\n10 1 1\n4 2 1\n3 3 0\n2 1 0\n0 1\n1 2\n0 3\n2 3\n")
    with pytest.raises(InfeasibleBudget, match="the budget 0.8, 13.6 units, counts as 14$"):
        plan_graph(graph, 0.8, "chen")
    with pytest.raises(InfeasibleBudget, match="counts as 12$"):
        plan_graph(graph, 12.8, "chen")
    with pytest.raises(InfeasibleBudget, match="that much$"):
        plan_graph(graph, 12, "chen")


@pytest.mark.parametrize("text", ["2 1\n1 1 1\n1 1 0\n1 2\n", "2 1\n1 1 1\n1 1 0\n1 1\n",
                                  "2 1\n1 1 1\n1 x 0\n0 1\n"])
def test_errors_say_that_nodes_count_from_0(text):
    with pytest.raises(InputError, match="count(ed)? from 0"):
        parse_graph(text)


def test_text_form():
    graph = parse_graph(TEXT, "chain")
    assert graph.name == "chain" and graph.pools == "units"
    assert Graph.from_dict({**graph.to_dict(), "pools": "live"}) == graph  # as older files say
    assert [t.size_bytes for t in graph.tensors] == [10, 20, 5]
    assert [op.time_s for op in graph.ops] == [1, 2, 3]
    assert [op.inputs for op in graph.ops] == [(), (0,), (1,)]
    assert [op.recomputable for op in graph.ops] == [True, True, False]


def test_node_link_runs_in_id_order():
    nodes = [{"id": 1, "name": "b", "cost_ram": 7, "cost_cpu": 2, "backward": True},
             {"id": 0, "name": "a", "cost_ram": 5, "cost_cpu": 1, "backward": False}]
    graph = parse_graph(node_link(nodes, [(0, 1)]))
    assert [op.name for op in graph.ops] == ["a", "b"]
    assert [op.is_backward for op in graph.ops] == [False, True]


def test_node_link_with_ids_out_of_order_runs_by_generations():
    nodes = [{"name": i, "out_cost": i, "duration": 1, "backward": i == 2} for i in range(4)]
    graph = parse_graph(node_link(nodes, [(3, 1), (0, 2), (1, 2)], ("0", "1")))
    assert [op.name for op in graph.ops] == ["0", "3", "1", "2"]
    assert [op.recomputable for op in graph.ops] == [True, True, True, False]


def test_own_json_round_trip():
    graph = Graph((Tensor("x", 4, -1, "input", "outside"), Tensor("y", 8, 0)),
                  (Op.of("f", "relu", (0,), (1,), time_s=1.0),), (1,), name="own")
    assert parse_graph(json.dumps(graph.to_dict())) == graph


@pytest.mark.parametrize("text, message", [
    ("", "numbers of nodes"),
    ("2 1\n1 1 1\n", "ends before"),
    ("1 0\n1 x 1\n", "line 2"),
    ("1 0\n1 1 1\n0 0\n", "more lines"),
    ("2 1\n1 1 1\n1 1 1\n1 0\n", "execution order"),
    ("2 1\n1 1 1\n1 1 1\n0 7\n", "does not exist"),
    ("1 0\n-1 1 1\n", "negative"),
    ("{", "damaged"),
    ("{}", "neither"),
    ('{"nodes": [], "links": [{"source": 0, "target": 1}]}', "does not exist"),
    ('{"nodes": [{"id": 0, "cost_ram": "4", "cost_cpu": 1}], "links": []}',
     "cost_ram is '4', not a whole number"),
    ('{"nodes": [{"id": 0, "cost_ram": 4}], "links": []}', "cost_cpu"),
    ('{"nodes": [{"id": [0], "cost_ram": 4, "cost_cpu": 1}], "links": []}', "damaged"),
    ('{"nodes": [{"id": 0, "cost_ram": NaN, "cost_cpu": 1}], "links": []}', "NaN is no number"),
    ('{"nodes": [{"id": 0, "cost_ram": 4, "cost_cpu": 1e999}], "links": []}', "cannot be inf"),
    ('{"nodes": [{"id": 0, "cost_ram": 9223372036854775808, "cost_cpu": 1}], "links": []}',
     "cannot be 9223372036854775808"),
    ('{"nodes": [{"id": 0, "name": "\\ud800", "cost_ram": 4, "cost_cpu": 1}], "links": []}',
     "surrogates not allowed"),
    ('{"nodes": %s%s, "links": []}' % ("[" * 990, "]" * 990), "deeper than 64"),
    ("nan 0\n", "line 1"), ("inf 0\n", "line 1"), ("-1 0\n", "line 1"), ("2.5 1.5\n", "line 1"),
    ("1 0\nnan 1 1\n", "line 2"), ("1 0\n1 nan 1\n", "cost"), ("1 0\n1 inf 1\n", "inf"),
    ("1 0\n1.5 1 1\n", "line 2"), ("1 0\n1e30 1 1\n", "size_bytes cannot be 10"),
    ("2 0\n1e18 1 1\n1e18 1 1\n", "together"),
    ('{"nodes": [{"id": 0}, {"id": 0}], "links": []}', "same id"),
    ("2 1\n1 1 1\n1 1 1\n0 1\n", "no node is backward: memonger plans training steps"),
    ("3 0\n1 1 1\n1 1 0\n1 1 1\n", "forward node node2 runs after backward node node1"),
    ('{"nodes": 3, "links": []}', "damaged"),
    ('{"tensors": [], "ops": []}', "outputs"),
    ('{"tensors": [{"name": "x", "size_bytes": 1, "producer": 0}], "outputs": [0], "ops": '
     '[{"name": "f", "kind": "f", "inputs": [0], "outputs": [0]}]}', "before it is made"),
    ('{"tensors": [{"name": "x", "size_bytes": 1, "producer": 0}], "outputs": [0], "ops": '
     '[{"name": "f", "kind": "f", "inputs": [], "outputs": [0], "inplace": '
     '[{"input": 1000000000000, "output": 0}]}]}', "'f' names an input or output that it does not"),
    ('{"tensors": [{"name": "x", "size_bytes": 1e30, "producer": 0}], "outputs": [0], "ops": '
     '[{"name": "f", "kind": "f", "inputs": [], "outputs": [0]}]}', "size_bytes cannot be 1e.30"),
])
def test_damaged_files_say_what_is_wrong(text, message):
    with pytest.raises(InputError, match=message):
        parse_graph(text)


def test_cycles_are_named():
    nodes = [{"id": i, "cost_ram": 1, "cost_cpu": 1} for i in range(3)]
    with pytest.raises(InputError, match="cycle through node 1"):
        parse_graph(node_link(nodes, [(0, 1), (1, 2), (2, 1)]))


@pytest.mark.parametrize("budget, units", [
    (0.8, 8), ("0.8", 8), ("80%", 8), (0.75, 8), (0.7, 7), (1.0, 10), (1, 1), (25, 25),
    ("1e3", 1000)])
def test_budgets(budget, units):
    assert parse_imported_budget(budget, 10) == units


@pytest.mark.parametrize("budget", ["much", "", -1, 0, "0%", "nan", "inf", "1e30", 2 ** 60])
def test_bad_budgets(budget):
    with pytest.raises(InputError):
        parse_imported_budget(budget, 10)


@pytest.mark.skipif(not os.path.isdir(PEERS), reason="the rivals' graphs are not here")
def test_published_graphs():
    for file, ops, cost in (("ResNet50.json", 353, 405670), ("ckm_r50_184.txt", 405, 101898)):
        graph = read_graph(os.path.join(PEERS, "graphs", file))
        graph.check()
        assert (file, len(graph.ops), graph.time_s) == (file, ops, cost)
    with pytest.raises(InputError, match="no node is backward"):
        read_graph(os.path.join(PEERS, "graphs", "random_layered_n100.json"))


def test_a_file_is_planned_in_its_own_units(tmp_path):
    # Two long-lived values of 10 units; either can be made again for 1.
    path = tmp_path / "graph.txt"
    path.write_text("6 7\n10 1 1\n10 1 1\n10 1 1\n1 2 0\n1 2 0\n1 2 0\n"
                    "0 1\n1 2\n2 3\n3 4\n1 4\n4 5\n0 5\n")
    plan = plan_graph(read_graph(str(path)), "70%")
    assert plan.baseline_pool_bytes == 31 and plan.pool_bytes <= 22
    assert plan.schedule.time_s(plan.graph) == plan.graph.time_s + 1
    assert plan.bound <= plan.overhead
    smallest = plan_graph(read_graph(str(path)))
    assert smallest.pool_bytes <= plan.pool_bytes
