"""Plan -> symbol, and back: :mod:`memonger.mx.symbol.planned_symbol` on MXNet symbols."""
from __future__ import annotations

import json
from typing import Any

from ...plans.plan import Plan
from ...util.gc_pause import paused
from ..plugin.environment import mirrors_by_itself, mxnet
from ..symbol.common_subexpressions import symbol_text, to_json
from ..symbol.planned_symbol import (
    RECOMPUTE,
    STORAGE,
    is_forced,
    mark_storage,
    overrule,
    planned_json,
    strip_json,
)
from .load import is_numpy, of_kind, symbol_from_json


def unforced(symbol: Any) -> Any:
    """The network that plans start from: without clones, the user's marks kept as hints.

    For the plugin's recomputation only.
    """
    text = to_json(symbol)
    if is_forced_somewhere(symbol):
        document = json.loads(text)
        overrule(document)
        return from_json(symbol_text(document), symbol)
    if mirrors_by_itself():  # not where anything says that there is a plan
        return from_json(mark_storage(text, "best"), symbol)
    return symbol


def is_forced_somewhere(symbol: Any) -> bool:
    """Whether the user marked an op with ``force_mirroring``."""
    return any(map(is_forced, json.loads(to_json(symbol))["nodes"]))


def asks_for_arena(symbol: Any) -> bool:
    """Whether executors of the symbol will have an arena, where the plugin is on."""
    return any(node.get("attrs", {}).get(STORAGE) == "arena"
               for node in json.loads(to_json(symbol))["nodes"])


def is_planned(symbol: Any) -> bool:
    """Whether anything of memonger's, or a ``force_mirroring``, is on the symbol."""
    return any(node["op"].startswith("memonger_") or is_forced(node)
               or not {RECOMPUTE, STORAGE}.isdisjoint(node.get("attrs", ()))
               for node in json.loads(to_json(symbol))["nodes"])


def from_json(text: str, like: Any = None) -> Any:
    """A symbol from JSON that memonger wrote; :mod:`memonger.mx.rewrite.load` reads files of users.

    ``like``: a symbol whose kind of arrays, MXNet's or NumPy's, the new one has.
    """
    return of_kind(mxnet().sym.load_json(text), is_numpy(like))


@paused()
def strip_symbol(symbol: Any) -> Any:
    """The symbol as it was before planning."""
    return symbol_from_json(strip_json(to_json(symbol)), is_numpy(symbol))


def without_plan(symbol: Any) -> Any:
    """The symbol itself, or where anything of memonger's is on it, as it was before planning."""
    return strip_symbol(symbol) if "memonger_" in to_json(symbol) else symbol


@paused()
def apply_plan_to(symbol: Any, plan: Plan) -> Any:
    """A copy of ``symbol`` that carries the plan's decisions and variants."""
    return from_json(planned_json(to_json(symbol), plan), symbol)
