"""All forward ops of a plan as a table."""
from __future__ import annotations

from typing import Any, Dict, List

from ..plans.plan import Plan
from .facts import Facts, OpFacts
from .formatting import Units, table


def op_table(plan: Plan) -> str:
    """What becomes of each forward op, in the order in which they run.

    A row has what the op makes, what of that waits in memory for backward, its time and why it
    got its decision.
    """
    units = Units.of(plan)
    rows: List[List[str]] = [["op", "decision", "makes", "held for backward", "time", ""]]
    rows += [[fact.name, _decision(fact), units.size(fact.size_bytes),
              units.size(fact.held_bytes) if fact.held_bytes else "",
              units.time(fact.time_s) if fact.time_s else "", fact.why]
             for fact in Facts(plan).ops]
    return table(rows, "<<>>><")


def _decision(fact: OpFacts) -> str:
    """Its decision, or what else became of an op that nothing had to be decided for."""
    if fact.group == "absorbed":
        return "absorbed"
    return fact.decision if fact.again or fact.held_bytes or fact.decision != "keep" else ""


def op_rows(plan: Plan) -> List[Dict[str, Any]]:
    """The same as records: bytes and seconds."""
    return [{"op": fact.name, "decision": fact.decision, "size_bytes": fact.size_bytes,
             "held_bytes": fact.held_bytes, "time_s": fact.time_s, "why": fact.why}
            for fact in Facts(plan).ops]
