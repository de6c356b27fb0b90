"""Plan files of MXNet networks, and the checks of their symbols."""
from __future__ import annotations

from ...plan import plan_file
from ...plan.plan import Plan
from ..symbol.symbol_check import checked_symbol

#: Ops that MXNet puts between those of the symbol when it binds.
_OF_MXNET = ("_CrossDeviceCopy",)


class _Symbols:
    """MXNet's side of reading a plan file."""

    def check(self, plan: Plan) -> None:
        """Raise ValueError unless the symbol has the ops of the graph and takes its decisions."""
        if plan.original_json is None:
            return
        nodes = {(node["name"], node["op"])
                 for node in checked_symbol(plan.original_json)["nodes"]}
        for op in plan.graph.ops:
            if not op.is_backward and op.kind not in _OF_MXNET and \
                    (op.name.partition("~")[0], op.kind) not in nodes \
                    and (op.name, op.kind) not in nodes:
                raise ValueError("the symbol has no op %r (%s)" % (op.name, op.kind))
        checked_symbol(plan.symbol_json or "")


def load_plan(path: str) -> Plan:
    """Read a plan file; nothing of MXNet is needed.

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
    return plan_file.load_plan(path, _Symbols())


def loads(text: str) -> Plan:
    """The plan in the text of a file; raises as :func:`load_plan`."""
    return plan_file.loads(text, _Symbols())
