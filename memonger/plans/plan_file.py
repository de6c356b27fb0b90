"""Plans as JSON files.

One JSON object, keys sorted, one top-level key a line, the same bytes for the same plan::

    {"checksum": ..., "fingerprint": ..., "format": "memonger plan", "graph": {...},
     "memonger": "0.1.0", "schedule": {"recompute": ..., "variants": ...}, "schema": 3, ...}

Large lists are stored by column (:mod:`memonger.plans.columnar_json`). The schedule is stored as
the decisions it came from where :func:`memonger.graph.schedule.expand` reproduces it from them,
else step by step. Files of earlier versions hold the planned symbol, too; it follows from the rest.
"""
from __future__ import annotations

import hashlib
import json
from typing import Any, Dict, List, Mapping

from ..graph.decisions import decisions_of
from ..graph.imported import looks_like_graph
from ..graph.in_use import graph_in_use
from ..graph.schedule import Schedule, Step, expand, expand_in_part
from ..graph.types import Graph
from ..memory.storage import STORAGES
from ..util.errors import InputError, MemongerError, PlanError, PlanMismatch, PlanSchemaError
from ..util.files import write_whole
from ..util.gc_pause import paused
from ..util.json_files import parse_json, plain, read_text
from ..util.type_checks import check_types
from . import columnar_json as columns
from .above import record_in
from .consistency import contradictions
from .footprint import Footprint, Footprints
from .parts import Outcome, Status, Terms
from .plan import Plan

SCHEMA = 3
#: That of files that are read, too: graphs have another form (:mod:`..graph.older_files`).
OLDEST_SCHEMA = 2
FORMAT = "memonger plan"
_AGAIN = "make the plan again with memonger plan"
_OF_ANOTHER = "it is %s; memonger plan -o writes plan files"
#: Fields that are written as they are.
_PLAIN = ("method", "budget_bytes", "bound", "minimum_total_bytes", "costs", "storage")


def save_plan(plan: Plan, path: str) -> None:
    """Write a plan, whole or not at all.

    Raises PlanError if the file cannot be written, or an option of the plan has no form in JSON.
    """
    text = dumps(plan)
    try:
        write_whole(path, text)
    except MemongerError as error:
        raise PlanError("the plan was not saved: %s" % error) from error


@paused()
def load_plan(path: str) -> Plan:
    """Read a plan file; no framework is needed.

    Parameters
    ----------
    path : str

    Returns
    -------
    Plan

    Raises
    ------
    InputError
        If the file cannot be opened.
    PlanSchemaError
        If it is damaged, was changed, is no plan, or is from a newer memonger; or if its numbers
        are not those of its graph and decisions.
    PlanMismatch
        If its decisions belong to another graph than the one it holds.
    """
    text = read_text(path)
    try:
        return loads(text)
    except PlanMismatch as error:
        raise PlanMismatch("%s: %s" % (path, error), error.expected, error.found) from error
    except PlanSchemaError as error:
        raise PlanSchemaError("%s: %s" % (path, error)) from error


def dumps(plan: Plan) -> str:
    """The text of the plan file; the same plan gives the same bytes."""
    from ..util.version import __version__
    content: Dict[str, Any] = {
        "format": FORMAT, "schema": SCHEMA, "memonger": __version__,
        "fingerprint": plan.graph.fingerprint, "status": plan.status.value,
        "graph": columns.pack_graph(plan.graph), "schedule": _pack_schedule(plan),
        **_pack_footprints(plan), "options": dict(plan.options),
        "notes": list(plan.notes), **plan.record.in_file(),
        "measured": None if plan.measured is None else dict(plan.measured),
        **{key: getattr(plan, key) for key in _PLAIN}}
    content["checksum"] = checksum(content)
    lines = ["%s: %s" % (json.dumps(key), _json(content[key])) for key in sorted(content)]
    return "{\n" + ",\n".join(lines) + "\n}\n"


def loads(text: str) -> Plan:
    """Inverse of :func:`dumps`; lists among the options come back as tuples.

    Raises as :func:`load_plan`.
    """
    try:
        data = parse_json(text)
    except InputError as error:
        if looks_like_graph(text) and not text.lstrip().startswith("{"):
            raise PlanSchemaError("the file is no memonger plan; " + _OF_ANOTHER % "a graph") \
                from error
        raise PlanSchemaError("the file is damaged or no plan: %s; %s" % (error, _AGAIN)) from error
    _check_header(data)
    try:
        graph = columns.unpack_graph(data["graph"])
        graph.check()
        if graph.fingerprint != data["fingerprint"]:
            raise PlanMismatch(
                "the plan was made for graph %s, and the file holds graph %s; %s"
                % (data["fingerprint"], graph.fingerprint, _AGAIN),
                str(data["fingerprint"]), graph.fingerprint)
        plan = Plan(
            Terms(data["budget_bytes"], _tuples(data["options"]), data["costs"], data["storage"]),
            graph, _unpack_schedule(graph, data["schedule"]), _unpack_footprints(data),
            Outcome(Status(data["status"]), data["method"], data["bound"],
                    data["minimum_total_bytes"], tuple(data["notes"]), _tuples(data["measured"]),
                    from_file=True),
            record_in(data))
        check_types([plan, plan.terms, plan.planned, plan.unplanned, plan.outcome, plan.record])
        _check_options(plan.options)
        outside = [(name, size) for fixed in (plan.fixed_bytes, plan.baseline_fixed_bytes)
                   for name, size in fixed.items()]
        if min(plan.pool_bytes, plan.baseline_pool_bytes,
               *(size for name, size in outside if name != "never_written")) < 0:
            raise ValueError("sizes cannot be negative")
        if plan.storage not in STORAGES or data.get("backend", "plugin") != "plugin":
            raise ValueError("storage %r, or what runs the plan, is not known" % plan.storage)
        if plan.bound > max(0.0, plan.overhead) + 1e-9 or \
                (plan.minimum_total_bytes or 0) > plan.total_bytes:
            raise ValueError("it is better than its bounds allow")
        plan.record.check(plan)
        wrong = contradictions(plan)
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
        raise PlanSchemaError("the plan contradicts itself (%s: %s); %s"
                              % (type(error).__name__, error, _AGAIN)) from error
    if wrong:
        raise PlanSchemaError(
            "the plan's numbers are not those of its graph and decisions (%s): the file was "
            "changed, or memonger %s, which wrote it, plans otherwise than this one; %s"
            % ("; ".join(wrong), data.get("memonger"), _AGAIN))
    return plan


def _check_options(options: Mapping[str, Any]) -> None:
    """Those that reports read: shapes, names of ops, the optimizer."""
    shapes = options.get("shapes") or {}
    names = [*(options.get("keep") or ()), *(options.get("recompute") or ())]
    whole = [size for shape in shapes.values() for size in shape]
    state = (options.get("optimizer_params") or {}).items()
    whole.append(options.get("host_budget_bytes") or 0)
    if not all(type(size) is int for size in whole) or not all(
            isinstance(name, str) for name in names + [options.get("optimizer") or ""]) or not all(
            isinstance(value, (int, float, str)) for _, value in state):
        raise TypeError("the options of the plan are damaged")


def _check_header(data: Any) -> None:
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        keys = data if isinstance(data, dict) else ()
        kind = "an MXNet symbol" if "arg_nodes" in keys else \
            "a graph" if "tensors" in keys or "links" in keys else ""
        raise PlanSchemaError("the file is no memonger plan; %s" % (_OF_ANOTHER % kind if kind
                                                                   else _AGAIN))
    schema = data.get("schema")
    if type(schema) is not int or not OLDEST_SCHEMA <= schema <= SCHEMA:
        if type(schema) is int and schema > 0:
            raise PlanSchemaError(
                "the plan has schema %d, written by memonger %s; this memonger reads schemas "
                "%d to %d: %s%s" % (schema, data.get("memonger"), OLDEST_SCHEMA, SCHEMA,
                          "upgrade memonger or " if schema > SCHEMA else "", _AGAIN))
        raise PlanSchemaError("the plan has no valid schema number (%r); %s" % (schema, _AGAIN))
    if data.get("checksum") != checksum(data):
        raise PlanSchemaError("the plan was changed after memonger wrote it (its checksum does "
                              "not match); restore the file or %s" % _AGAIN)


def checksum(content: Mapping[str, Any]) -> str:
    text = _json({key: value for key, value in content.items() if key != "checksum"})
    return hashlib.sha256(text.encode("utf-8")).hexdigest()[:16]


def _json(value: Any) -> str:
    try:
        return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False,
                          default=plain)
    except (TypeError, ValueError) as error:
        raise PlanError("the plan cannot be saved: %s" % error) from error


def _tuples(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(map(_tuples, value))
    if isinstance(value, dict):
        return {key: _tuples(item) for key, item in value.items()}
    return value


# ---------------------------------------------------------------------- footprints
def _pack_footprints(plan: Plan) -> Dict[str, Any]:
    """Fields of the unplanned step are left out where they say nothing new."""
    planned, unplanned = plan.planned, plan.unplanned
    fields = {"pool_bytes": planned.pool_bytes, "baseline_pool_bytes": unplanned.pool_bytes,
              "fixed_bytes": dict(planned.outside_bytes)}
    if unplanned.outside_bytes != planned.outside_bytes:
        fields["baseline_fixed_bytes"] = dict(unplanned.outside_bytes)
    if planned.predicted_pool_bytes is not None:
        fields["predicted_pool_bytes"] = planned.predicted_pool_bytes
    if unplanned.predicted_pool_bytes is not None:
        fields["predicted_baseline_pool_bytes"] = unplanned.predicted_pool_bytes
    return fields


def _unpack_footprints(data: Mapping[str, Any]) -> Footprints:
    outside = dict(data["fixed_bytes"])
    return Footprints(
        Footprint(data["pool_bytes"], outside, data.get("predicted_pool_bytes")),
        Footprint(data["baseline_pool_bytes"], dict(data.get("baseline_fixed_bytes") or outside),
                  data.get("predicted_baseline_pool_bytes")))


# ---------------------------------------------------------------------- schedules
def _pack_schedule(plan: Plan) -> Dict[str, Any]:
    variants = list(plan.schedule.variants)
    recompute = decisions_of(plan.graph, plan.schedule)
    in_use = graph_in_use(plan.graph, plan.schedule)
    if expand_in_part(in_use, recompute).steps == plan.schedule.steps:
        rows = [[op, [[*consumer, clone] for consumer, clone in sorted(served.items())]]
                for op, served in sorted(recompute.items())]
        return {"recompute": rows, "variants": variants}
    return {"steps": columns.pack([{"op": step.op, "sources": list(step.sources)}
                                   for step in plan.schedule.steps]), "variants": variants}


def _unpack_schedule(graph: Graph, data: Mapping[str, Any]) -> Schedule:
    variants = tuple(data["variants"])
    for index in variants:
        graph.variants[index]
    in_use = graph_in_use(graph, Schedule((), variants))
    if variants:
        in_use.check()  # expand would not end where two variants make each other's inputs
    if "recompute" in data:
        recompute = {op: {(reader, number): clone for reader, number, clone in served}
                     for op, served in data["recompute"]}
        for op in recompute:
            graph.ops[op]
        schedule = Schedule(expand(in_use, recompute).steps, variants)
        found = decisions_of(graph, schedule)
        wrong = [op for op in recompute if found.get(op) != recompute[op]]
        if wrong:
            raise ValueError("the decision on op %r names a run or a reader that there is not"
                             % graph.ops[wrong[0]].name)
        return schedule
    steps: List[Step] = []
    for row in columns.unpack(data["steps"]):
        step = Step(row["op"], tuple(row["sources"]))
        _check_step(in_use, steps, step)
        steps.append(step)
    return Schedule(tuple(steps), variants)


def _check_step(graph: Graph, earlier: List[Step], step: Step) -> None:
    op = graph.ops[step.op]
    if step.op < 0 or len(step.sources) != len(op.inputs):
        raise ValueError("step %d does not fit op %r" % (len(earlier), op.name))
    for tensor, source in zip(op.inputs, step.sources):
        producer = graph.tensors[tensor].producer
        if source >= len(earlier) or (earlier[source].op if source >= 0 else -1) != producer:
            raise ValueError("step %d (%s) reads %r from step %d, which does not make it"
                             % (len(earlier), op.name, graph.tensors[tensor].name, source))
