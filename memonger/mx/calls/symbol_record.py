"""What plans of MXNet networks keep: the symbol; :mod:`memonger.plans.above` finds it."""
from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Dict, List

from ...plans.plan import Plan
from ...plans.record import Record
from ..rewrite.load import is_numpy, symbol_from_json
from ..symbol.common_subexpressions import to_json
from ..symbol.planned_symbol import planned_json
from ..symbol.refused_variants import reasons
from ..symbol.symbol_check import checked_symbol

#: Ops that MXNet puts between those of the symbol when it binds.
_OF_MXNET = ("_CrossDeviceCopy",)


@dataclass(frozen=True)
class SymbolRecord(Record):
    """The network as a symbol."""

    #: The symbol as it was before planning.
    original_json: str = field(default="", repr=False)
    #: The arrays of the symbol are ``mx.np.ndarray`` (``npx.set_np()``).
    numpy_arrays: bool = False

    @classmethod
    def of(cls, symbol: Any) -> "SymbolRecord":
        """That of a plan for ``symbol``."""
        return cls(original_json=to_json(symbol), numpy_arrays=is_numpy(symbol))

    def in_file(self) -> Dict[str, Any]:
        """The symbol, and what is not as usual."""
        others = {"numpy_arrays": self.numpy_arrays, "by_device": self.by_device}
        return {"original_json": self.original_json,
                **{name: value for name, value in others.items() if value}}

    def check(self, plan: Plan) -> None:
        """Raise ValueError unless the symbol has the ops of the graph and takes its decisions."""
        nodes = {(node["name"], node["op"]) for node in checked_symbol(self.original_json)["nodes"]}
        for op in plan.graph.ops:
            if not op.is_backward and op.kind not in _OF_MXNET and \
                    (op.name.partition("~")[0], op.kind) not in nodes \
                    and (op.name, op.kind) not in nodes:
                raise ValueError("the symbol has no op %r (%s)" % (op.name, op.kind))
        checked_symbol(plan.symbol_json or "")

    def symbol_json(self, plan: Plan) -> str:
        return planned_json(self.original_json, plan)

    def symbol(self, plan: Plan) -> Any:
        return symbol_from_json(plan.symbol_json or "", self.numpy_arrays)

    def refused_variants(self, plan: Plan, op: str, variants: str) -> List[str]:
        return reasons(self.original_json, op, variants)
