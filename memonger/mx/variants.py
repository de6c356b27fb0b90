"""Variants on MXNet symbols: :mod:`memonger.variants.rewrite` with symbols in and out."""
from __future__ import annotations

from typing import Any, Dict, List, Mapping

from ..util.errors import PluginMissing
from ..variants import rewrite as variants
from ..variants.common_subexpressions import to_json
from . import plugin as native
from .environment import mxnet


def candidates(symbol: Any, exact_only: bool = False) -> Dict[str, List[str]]:
    """The variants that fit each op; see :func:`memonger.variants.rewrite.candidates`.

    Without the plugin nothing is offered.
    """
    return variants.candidates(to_json(symbol), exact_only) if native.available() else {}


def swap(symbol: Any, choice: Mapping[str, str]) -> Any:
    """The symbol with the chosen variants: same arguments, auxiliary states and output names.

    Parameters
    ----------
    symbol : mx.sym.Symbol
    choice : mapping
        Op name to variant name, as :func:`candidates` offers them.

    Raises
    ------
    PluginMissing
        If the plugin cannot be loaded.
    InputError
        If a variant does not fit.
    """
    if choice and not native.available():
        raise PluginMissing("variants need the plugin, which is %s" % native.status())
    return mxnet().sym.load_json(variants.swap_json(to_json(symbol), choice))
