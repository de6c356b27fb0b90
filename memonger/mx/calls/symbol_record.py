"""What plans of MXNet networks ask of this frontend; :mod:`memonger.plans.above` finds it."""
from __future__ import annotations

from ...plans.plan import Plan
from ..rewrite.load import symbol_from_json as symbol
from ..symbol.planned_symbol import planned_json
from ..symbol.refused_variants import reasons
from ..symbol.symbol_check import checked_symbol

__all__ = ["check", "reasons", "symbol", "symbol_json"]

#: Ops that MXNet puts between those of the symbol when it binds.
_OF_MXNET = ("_CrossDeviceCopy",)


def check(plan: Plan) -> None:
    """Raise ValueError unless the symbol has the ops of the graph and takes its decisions."""
    nodes = {(node["name"], node["op"])
             for node in checked_symbol(plan.original_json or "")["nodes"]}
    for op in plan.graph.ops:
        if not op.is_backward and op.kind not in _OF_MXNET and \
                (op.name.partition("~")[0], op.kind) not in nodes \
                and (op.name, op.kind) not in nodes:
            raise ValueError("the symbol has no op %r (%s)" % (op.name, op.kind))
    checked_symbol(plan.symbol_json or "")


def symbol_json(plan: Plan) -> str:
    """The planned symbol of an MXNet plan."""
    return planned_json(plan.original_json or "", plan)
