"""``python -m benchmarks ready_plans``: makes the ready plans that :mod:`memonger.zoo` ships."""
from __future__ import annotations

import argparse
import json
import os
from typing import Any, Dict, List, Mapping, Optional, Sequence

from memonger.graph.decisions import decisions_of
from memonger.mx.calls.plan import plan as make_plan
from memonger.plans.plan import Plan
from memonger.report.formatting import format_extra, markdown
from memonger.util.errors import InfeasibleBudget, PlanMismatch
from memonger.util.files import write_whole
from memonger.util.units import parse_budget
from memonger.zoo import nets
from memonger.zoo import ready_plans as shipped
from memonger.zoo.ready_plans import COSTS, FORMAT, SHARES, names, read_file, read_network, rebuild


def make(network: str, shares: Sequence[float] = SHARES, time_limit: float = 10.0,
         ) -> Dict[str, Any]:
    """Search the ready plans of a network; the content of its file.

    Raises
    ------
    InfeasibleBudget
        If no share is possible; as for the first of them.
    """
    net = nets.build(network)
    plans: List[Dict[str, Any]] = []
    found: Optional[Plan] = None
    refused: Optional[InfeasibleBudget] = None
    for share in shares:
        try:
            found = make_plan(net.symbol, budget=share, costs=COSTS, time_limit=time_limit,
                              shapes=net.shapes)
        except InfeasibleBudget as error:
            refused = refused or error
            continue
        graph = found.graph
        recompute = decisions_of(graph, found.schedule)
        plans.append({
            "share": share, "status": found.status.value, "method": found.method,
            "pool_bytes": found.pool_bytes, "total_bytes": found.total_bytes,
            "overhead": round(found.overhead, 6), "bound": round(found.bound, 6),
            "recompute": [[op, [[*reader, clone] for reader, clone in sorted(served.items())]]
                          if served else op for op, served in sorted(recompute.items())],
            "variants": sorted([graph.ops[v.op].name, v.name] for v in
                               (graph.variants[i] for i in found.schedule.variants))})
    if found is None:
        assert refused is not None
        raise refused
    return {"format": FORMAT, "network": network, "batch": net.batch, "costs": COSTS,
            "fingerprint": found.graph.fingerprint, "plans": undominated(plans)}


def keep_better(content: Mapping[str, Any]) -> Dict[str, Any]:
    """What :func:`make` found, with the plans of the shipped file where those cost less.

    Plans of the file that are for another graph or other costs are left out, and those that no
    longer fit; what the others take and cost is worked out again.
    """
    network = content["network"]
    if network not in names():
        return dict(content)
    older = read_file(network)
    if any(older[key] != content[key] for key in ("fingerprint", "costs")):
        return dict(content)
    opened = read_network(nets.build(network), older)
    unplanned_bytes = opened.unplanned.pool_bytes + sum(opened.outside_bytes.values())
    plans = {item["share"]: item for item in content["plans"]}
    for item in older["plans"]:
        try:
            plan, pool_bytes = rebuild(opened, item, item["total_bytes"], older)
        except PlanMismatch:
            continue
        total_bytes = item["total_bytes"] + pool_bytes - item["pool_bytes"]
        rival = plans.get(item["share"])
        if total_bytes <= parse_budget(item["share"], unplanned_bytes) and (
                rival is None or plan.overhead < rival["overhead"]):
            plans[item["share"]] = {**item, "pool_bytes": pool_bytes, "total_bytes": total_bytes,
                                    "overhead": round(plan.overhead, 6)}
    return {**content, "plans": undominated([plans[share] for share in sorted(plans)[::-1]])}


def table() -> str:
    """Markdown: the overhead of every ready plan, and where there is none."""
    rows = []
    for network in names():
        data = read_file(network)
        found = {item["share"]: format_extra(item["overhead"]) for item in data["plans"]}
        rows.append(("%s (%d)" % (network, data["batch"]),
                     *(found.get(share, "-") for share in SHARES)))
    return markdown(("network (batch)", *("%g %%" % (100 * share) for share in SHARES)),
                    "<" + ">" * len(SHARES), rows)


def undominated(plans: Sequence[Mapping[str, Any]]) -> List[Dict[str, Any]]:
    """The plans, largest share first, each replaced by a smaller one that costs no more."""
    result: List[Dict[str, Any]] = []
    for item in reversed(plans):
        if result and (result[-1]["overhead"] <= item["overhead"]
                       or result[-1]["total_bytes"] > item["total_bytes"]):
            better = min(result[-1], dict(item), key=lambda one: one["overhead"])
            item = {**better, "share": item["share"]}
        result.append(dict(item))
    return result[::-1]


def write(network: str, content: Mapping[str, Any]) -> str:
    """Write the file of a network, whole or not at all; returns its path."""
    os.makedirs(shipped.FOLDER, exist_ok=True)
    path = os.path.join(shipped.FOLDER, network + ".json")
    plans = ",\n  ".join(json.dumps(item, sort_keys=True, separators=(",", ":"))
                         for item in content["plans"])
    head = {key: value for key, value in content.items() if key != "plans"}
    lines = ["%s: %s" % (json.dumps(key), json.dumps(head[key])) for key in sorted(head)]
    write_whole(path, "{\n%s,\n\"plans\": [\n  %s]\n}\n" % (",\n".join(lines), plans))
    return path


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Search the ready plans again."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks ready_plans", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("networks", nargs="*", help="default: %s" % ", ".join(names()))
    parser.add_argument("--time-limit", type=float, default=10.0, help="seconds for each plan")
    parser.add_argument("--table", action="store_true", help="print what there is and stop")
    args = parser.parse_args(argv)
    if args.table:
        print(table())
        return 0
    for network in args.networks or names():
        try:
            content = keep_better(make(network, time_limit=args.time_limit))
        except InfeasibleBudget as error:
            print("%s: %s" % (network, error), flush=True)
            continue
        path = write(network, content)
        print("%s: %s" % (os.path.relpath(path), ", ".join(
            "%g %% %+.1f %%" % (100 * item["share"], 100 * item["overhead"])
            for item in content["plans"])), flush=True)
    return 0

