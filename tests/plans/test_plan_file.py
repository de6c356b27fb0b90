"""Plan files: exact round trips, small files, and clear refusals."""
from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest
from footprints import pair, plan_with, planned_as
from hypothesis import given, settings
from hypothesis import strategies as st
from mutations import json_text, mutated
from report.graphs import lstm, resnet, tiny

from memonger.cli.record import plan_record
from memonger.graph.decisions import decisions_of
from memonger.graph.imported import read_graph
from memonger.graph.offers import Offer, offering
from memonger.graph.schedule import Schedule, Step, expand, expand_in_part
from memonger.graph.types import Graph, Implementation, Inplace, Op
from memonger.memory.storage import plan_storage
from memonger.mx.calls.symbol_record import SymbolRecord
from memonger.plans import columnar_json as columns
from memonger.plans import plan_file as planfile
from memonger.plans.plan import Plan, Status
from memonger.plans.plan_file import load_plan, loads
from memonger.plans.validate import structure
from memonger.report import html
from memonger.util.errors import InputError, MemongerError, PlanError, PlanMismatch, PlanSchemaError


def make(graph, recompute=None, **fields) -> Plan:
    schedule = fields.pop("schedule", None) or expand_in_part(graph, recompute or {})
    parameters = sum(t.size_bytes for t in graph.tensors if t.category == "parameter")
    return plan_with(pair(
        plan_storage(graph, schedule, fields.get("storage", "best")).pool_bytes,
        plan_storage(graph, expand(graph, {}), "stock").pool_bytes,
        {"parameters": parameters}), graph, schedule, **fields)


GRAPHS = (tiny(), resnet((1, 2), 2, 32, 4), lstm(3, 1, 2, 8))


@st.composite
def plans(draw):
    graph = draw(st.sampled_from(GRAPHS))
    backward = [(i, 0) for i, op in enumerate(graph.ops) if op.is_backward]
    chosen = draw(st.sets(st.integers(0, graph.num_forward - 1)))
    recompute = {op: draw(st.dictionaries(st.sampled_from(backward + [(o, 1) for o in chosen]),
                                          st.integers(0, 3), max_size=4)) for op in chosen}
    words = st.text(max_size=20)
    return make(
        graph, recompute, status=draw(st.sampled_from(list(Status))),
        budget_bytes=draw(st.one_of(st.none(), st.integers(0, 2 ** 60))),
        bound=draw(st.floats(-1, 0)), notes=tuple(draw(st.lists(words, max_size=3))),
        minimum_total_bytes=draw(st.one_of(st.none(), st.integers(0, 99))),
        options={"budget": draw(words), "shapes": {"data": (32, 3)}, "keep": ()},
        measured=draw(st.one_of(st.none(), st.fixed_dictionaries(
            {"pool_bytes": st.integers(), "steps_s": st.tuples(st.floats(0, 1))}))))


@given(plans())
def test_round_trip_is_exact(plan):
    again = loads(planfile.dumps(plan))
    assert again == plan
    assert again.graph.fingerprint == plan.graph.fingerprint
    assert planfile.dumps(again) == planfile.dumps(plan)


@given(plans())
def test_decisions_are_the_inverse_of_expand(plan):
    recompute = decisions_of(plan.graph, plan.schedule)
    assert expand(plan.graph, recompute) == plan.schedule


def with_two_steps_swapped(schedule: Schedule, first: int) -> Schedule:
    """The schedule with a step and the next one in the other order."""
    place = {first: first + 1, first + 1: first}
    steps = list(schedule.steps)
    steps[first:first + 2] = steps[first + 1], steps[first]
    return Schedule(tuple(Step(step.op, tuple(place.get(source, source) for source in step.sources))
                          for step in steps))


def test_a_schedule_that_expand_cannot_make_is_stored_by_step():
    graph = lstm(3, 1, 2, 8)
    usual = expand(graph, {op: {} for op in range(graph.num_forward)})
    swapped = (with_two_steps_swapped(usual, first) for first in range(len(usual.steps) - 1))
    schedule = next(other for other in swapped if not structure(graph, other))
    assert expand(graph, decisions_of(graph, schedule)) != schedule
    plan = make(graph, schedule=schedule)
    text = planfile.dumps(plan)
    assert "steps" in json.loads(text)["schedule"]
    assert loads(text) == plan


def test_variants_round_trip():
    graph = tiny()
    relu = graph.op_index["relu0"]
    back = next(i for i, op in enumerate(graph.ops) if op.forward_op == relu and op.is_backward)
    parts = tuple((i, Implementation(graph.ops[i].inputs, graph.ops[i].outputs, (),
                                     (Inplace(0, 0, True),), 1e-5, 3)) for i in (relu, back))
    graph = offering(graph, [Offer("mask", relu, parts, exact=False)])
    plan = make(graph, schedule=Schedule(expand(graph, {}).steps, (0,)))
    again = loads(planfile.dumps(plan))
    assert again == plan
    assert again.decisions["relu0"] == "mask"


def test_numpy_values_among_the_options_are_saved():
    import numpy
    plan = make(tiny(), options={"type_dict": {"data": numpy.float16}, "n": numpy.int64(3)})
    assert loads(planfile.dumps(plan)).options == {"type_dict": {"data": "float16"},
                                                            "n": 3}


def symbol_of(graph) -> str:
    """A symbol with the forward ops of a graph, in a row."""
    nodes = [{"op": "null", "name": "x", "inputs": []}]
    for op in graph.ops[:graph.num_forward]:
        nodes.append({"op": op.kind, "name": op.name, "attrs": {"a": "1"},
                      "inputs": [[len(nodes) - 1, 0, 0]]})
    return json.dumps({"nodes": nodes, "arg_nodes": [0], "heads": [[len(nodes) - 1, 0, 0]],
                       "attrs": {"mxnet_version": ["int", 10901]}}, indent=2)


def with_symbols(plan: Plan) -> Plan:
    return replace(plan, record=SymbolRecord(original_json=symbol_of(plan.graph)))


def test_large_plans_stay_small():
    graph = lstm(60, 1)
    assert len(graph.ops) > 1200
    plan = with_symbols(make(graph, {i: {} for i in range(0, graph.num_forward, 2)}))
    text = planfile.dumps(plan)
    assert len(text) - len(plan.record.original_json) < 200 * len(graph.ops)
    assert loads(text) == plan


def test_an_original_without_the_ops_of_the_graph_is_refused():
    plan = make(tiny(), {1: {}})
    kind = plan.graph.ops[1].kind
    original = symbol_of(plan.graph).replace('"%s"' % kind, '"tanh"')
    forged = replace(plan, record=SymbolRecord(original_json=original))
    with pytest.raises(PlanSchemaError, match="the symbol has no op"):
        loads(planfile.dumps(forged))


def test_what_only_the_file_vouches_for_is_marked():
    plan = make(tiny(), {2: {}}, minimum_total_bytes=1, measured={"allocated_bytes": 5,
                                                                  "step_s": 1.0})
    assert plan.unchecked == ()
    assert "taken from its file" not in str(plan)
    again = loads(planfile.dumps(plan))
    assert again.unchecked == ("op times", "status", "minimum", "measurements")
    assert "taken from its file, not checked again: op times, status, minimum, measurements" \
        in str(again) and "taken from its file" in html.page(again)
    assert plan_record(again)["as_the_file_says"] == list(again.unchecked)


def test_a_plan_that_cannot_run_is_refused():
    graph = tiny()
    twice = Schedule((*expand(graph, {}).steps, expand(graph, {}).steps[0]))
    with pytest.raises(PlanSchemaError, match="no op reads what a clone makes"):
        loads(planfile.dumps(make(graph, schedule=twice)))


# ---------------------------------------------------------------------- files
GOLDEN = Path(__file__).parents[1] / "golden"


def test_files_of_schema_2_give_the_same_bytes():
    """Written by the last version with that schema; these numbers are its own."""
    plan = load_plan(str(GOLDEN / "plan_of_schema_2.json"))
    assert (plan.graph.fingerprint, plan.pool_bytes) == ("1c79dfca68e2962e", 8740)
    assert plan_storage(plan.graph, plan.schedule, plan.storage).pool_bytes == 8740
    assert plan_storage(plan.graph, expand(plan.graph, {}), "stock").pool_bytes == 8808
    assert plan.graph == read_graph(str(GOLDEN / "graph_of_schema_2.json"))
    placeholders = [op for op in plan.graph.ops if not op.runs]
    assert [op.name for op in placeholders] == ["_backward_op3_weight", "_backward_op1_weight"]
    assert sum(map(len, (op.implementations for op in plan.graph.ops))) == 30
    assert loads(planfile.dumps(plan)) == plan.changed(from_file=True)


def test_save_and_load(tmp_path):
    path = str(tmp_path / "plan.json")
    plan = make(tiny(), {2: {}})
    plan.save(path)
    first = Path(path).read_bytes()
    plan.save(path)
    assert Path(path).read_bytes() == first
    assert load_plan(path) == plan
    assert os.listdir(tmp_path) == ["plan.json"]


def test_a_full_disk_leaves_the_old_file(tmp_path, monkeypatch):
    path = str(tmp_path / "plan.json")
    make(tiny()).save(path)
    before = Path(path).read_bytes()

    def full(descriptor):
        raise OSError(28, "No space left on device")
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(PlanError, match="No space left on device.*nothing was changed"):
        make(tiny(), {2: {}}).save(path)
    assert Path(path).read_bytes() == before
    assert os.listdir(tmp_path) == ["plan.json"]


def test_a_link_stays_a_link(tmp_path):
    real, link = tmp_path / "real.json", tmp_path / "link.json"
    make(tiny()).save(str(real))
    link.symlink_to(real)
    make(tiny(), {2: {}}).save(str(link))
    assert link.is_symlink()
    assert load_plan(str(real)).schedule.recomputed() == (2,)


# ---------------------------------------------------------------------- refusals
def edited(plan: Plan, **changes) -> str:
    """The plan's text after an edit by somebody who repairs the checksum."""
    data = json.loads(planfile.dumps(plan))
    data.update(changes)
    data["checksum"] = planfile.checksum(data)
    return json.dumps(data)


@pytest.mark.parametrize("text, message", [
    ("", "damaged"), ("{", "damaged"), ("[]", "no memonger plan"), ("{}", "no memonger plan"),
    ('{"arg_nodes": [], "nodes": []}', "MXNet symbol")])
def test_foreign_files_are_refused(text, message):
    with pytest.raises(PlanSchemaError, match=message):
        loads(text)


def test_binary_files_are_refused(tmp_path):
    path = tmp_path / "net.params"
    path.write_bytes(b"\x12\x01\xff\xfe")
    with pytest.raises(InputError, match="net.params: it is no text file"):
        load_plan(str(path))


@pytest.mark.parametrize("symbol", ['{"nodes": [1]}', "x"])
def test_damaged_symbols_are_refused(tmp_path, symbol):
    path = tmp_path / "plan.json"
    path.write_text(edited(make(tiny()), original_json=symbol))
    with pytest.raises(PlanSchemaError, match="damaged"):
        load_plan(str(path))


def test_the_planned_symbol_of_earlier_files_is_not_needed():
    plan = with_symbols(make(tiny(), {2: {}}))
    assert "symbol_json" not in json.loads(planfile.dumps(plan))
    assert loads(edited(plan, symbol_json={"edits": []})) == plan


def test_every_cut_file_is_refused():
    text = planfile.dumps(make(tiny(), {2: {}}))
    for end in range(0, len(text) - 2, 97):
        with pytest.raises(PlanSchemaError):
            loads(text[:end])


def test_tampering_is_noticed():
    data = json.loads(planfile.dumps(make(tiny())))
    data["pool_bytes"] = 1
    with pytest.raises(PlanSchemaError, match="changed after memonger wrote it"):
        loads(json.dumps(data))


def test_another_graph_in_the_file_is_a_mismatch():
    other = json.loads(planfile.dumps(make(resnet((1,), 2, 32, 4))))["graph"]
    with pytest.raises(PlanMismatch) as caught:
        loads(edited(make(tiny()), graph=other))
    assert caught.value.expected == tiny().fingerprint
    assert caught.value.found == resnet((1,), 2, 32, 4).fingerprint


@pytest.mark.parametrize("change", [
    {"schedule": {"recompute": [[99, []]], "variants": []}},
    {"schedule": {"recompute": [[0, [[99, 1, 2]]]], "variants": []}},
    {"schedule": {"recompute": [[0, [[0, 7, 2]]]], "variants": []}},
    {"schedule": {"recompute": [], "variants": [4]}},
    {"schedule": {"steps": {"count": 1, "columns": {"op": [1], "sources": [[0]]}},
                  "variants": []}},
    {"schedule": {"steps": {"count": 2, "columns": {"op": [1], "sources": [[0]]}},
                  "variants": []}},
    {"status": "wonderful"}, {"fixed_bytes": 3}, {"graph": {}},
    {"costs": None}, {"pool_bytes": "1"}, {"pool_bytes": -1}, {"fixed_bytes": {"aux": {}}},
    {"fixed_bytes": {"aux": 1.5}}, {"bound": "x"}, {"budget_bytes": 10 ** 30}, {"measured": 3},
    {"method": 3}, {"storage": ""}, {"backend": "x"}, {"notes": [1]}, {"options": []},
    {"options": {"keep": -1}}, {"options": {"recompute": [3]}}, {"options": {"optimizer": 1.5}},
    {"options": {"shapes": "x"}}, {"options": {"shapes": {"data": 3}}}])
def test_contradictions_and_fields_of_the_wrong_kind_are_refused(change):
    with pytest.raises(PlanSchemaError, match="contradicts itself|memonger plan"):
        loads(edited(make(tiny()), **change))


def decided(recompute):
    return {"schedule": {"recompute": recompute, "variants": []}}


@pytest.mark.parametrize("change, message", [
    ({"schema": 4, "memonger": "9.9"}, "schema 4, written by memonger 9.9.*2 to 3: upgrade"),
    ({"schema": 1, "memonger": "0.0"}, "schema 1, .*reads schemas 2 to 3: make the plan again"),
    ({"bound": 9.0}, "better than its bounds allow"),
    ({"minimum_total_bytes": 2 ** 40}, "better than its bounds allow"),
    (decided([[0, [[1, 7, 2]]]]), "the decision on op 'conv0' names run 7 of op 'bn0'"),
    (decided([[0, 3]]), "TypeError"), (decided([["a", []]]), "TypeError"),
    (decided({"0": 1}), "contradicts itself")])
def test_what_cannot_be_is_refused_with_what_is_wrong(change, message):
    with pytest.raises(PlanSchemaError, match=message):
        loads(edited(make(tiny()), **change))


@pytest.mark.parametrize("field,value", [
    ("ops", {"time_s": "1"}), ("ops", {"time_s": -1.0}), ("ops", {"control_deps": (99,)}),
    ("ops", {"device": -1}), ("ops", {"forward_op": 99}), ("ops", {"inputs": (1.5,)}),
    ("tensors", {"shape": ("x",)}), ("tensors", {"dtype": "x"}), ("tensors", {"space": 1}),
    ("tensors", {"space": "disk"})])
def test_graphs_that_would_confuse_the_native_core_are_refused(field, value):
    graph = tiny()
    records = getattr(graph, field)
    change = Op.changed if field == "ops" else replace
    wrong = replace(graph, **{field: records[:-1] + (change(records[-1], **value),)})
    with pytest.raises((TypeError, ValueError)):
        wrong.check()


def test_numbers_that_do_not_follow_from_the_decisions_are_refused(tmp_path):
    plan = make(tiny(), {2: {}})
    path = tmp_path / "plan.json"
    path.write_text(edited(plan, pool_bytes=plan.pool_bytes + 4))
    with pytest.raises(PlanSchemaError) as caught:
        load_plan(str(path))
    assert "plan.json: the plan's numbers are not those of its graph and decisions (" \
        in str(caught.value)
    assert "%d bytes stated, %d found): " % (plan.pool_bytes + 4, plan.pool_bytes) \
        in str(caught.value)
    assert "make the plan again" in str(caught.value)


def test_a_pool_that_is_the_answer_of_mxnet_comes_with_the_prediction():
    plan = make(tiny())
    bound = planned_as(plan, pool_bytes=plan.pool_bytes + 4, predicted_pool_bytes=plan.pool_bytes)
    assert loads(planfile.dumps(bound)) == bound
    for forged in (planned_as(bound, predicted_pool_bytes=plan.pool_bytes + 8),
                   planned_as(bound, predicted_pool_bytes=None)):
        with pytest.raises(PlanSchemaError, match="pool: "):
            loads(planfile.dumps(forged))


def test_graph_columns_round_trip_an_empty_graph():
    empty = Graph((), (), ())
    assert columns.unpack_graph(columns.pack_graph(empty)) == empty


# ---------------------------------------------------------------------- a fuzzer
def damaged(random) -> None:
    """Load a file with random changes, signed again; anything but a clear error is a failure."""
    plan = with_symbols(make(tiny(), {2: {}}, options={"shapes": {"data": (2, 3)}}))
    data = mutated(random, json.loads(planfile.dumps(plan)))
    try:
        data["checksum"] = planfile.checksum(data)
    except MemongerError:
        pass  # no such number can be in a file of ours
    try:
        str(loads(json_text(data)))
    except MemongerError as error:
        assert "\n" not in str(error)


@given(random=st.randoms(use_true_random=False))
def test_changed_plan_files(random):
    damaged(random)


@pytest.mark.slow
@settings(max_examples=1500)
@given(random=st.randoms(use_true_random=False))
def test_thousands_of_changed_plan_files(random):
    damaged(random)
