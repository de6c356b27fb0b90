"""Which ops of a symbol stand for which ops of the graph that MXNet binds."""
from __future__ import annotations

from memonger.mx.symbol.common_subexpressions import merged_into


def node(op, name, *inputs, **attributes):
    return {"op": op, "name": name, "attrs": attributes,
            "inputs": [[source, 0, 0] for source in inputs]}


def test_what_is_missing_was_merged_into_the_op_that_does_the_same():
    nodes = [node("null", "x"), node("tanh", "a", 0), node("tanh", "b", 0), node("exp", "c", 1),
             node("exp", "d", 2), node("exp", "e", 2, scale="2")]
    assert merged_into(nodes, {"a", "c", "e"}) == [None, "a", "a", "c", "c", "e"]


def test_the_op_that_stays_may_come_last():
    nodes = [node("null", "x"), node("tanh", "a", 0), node("tanh", "b", 0)]
    assert merged_into(nodes, {"b"}) == [None, "b", "b"]


def test_ops_that_both_stay_keep_what_is_behind_them_apart():
    nodes = [node("null", "x"), node("Dropout", "p", 0), node("Dropout", "q", 0),
             node("tanh", "a", 1), node("tanh", "b", 2), node("tanh", "c", 2)]
    assert merged_into(nodes, {"p", "q", "a", "b"}) == [None, "p", "q", "a", "b", "b"]


def test_ops_of_one_name_are_taken_for_one():
    nodes = [node("null", "x"), node("tanh", "a", 0), node("tanh", "a", 0), node("exp", "a", 0)]
    assert merged_into(nodes, {"a"}) == [None, "a", "a", "a"]


def test_what_is_nowhere_in_the_graph_stands_for_nothing():
    nodes = [node("null", "x"), node("tanh", "a", 0)]
    assert merged_into(nodes, frozenset()) == [None, None]
