"""Variants on MXNet symbols: :mod:`memonger.variants` with symbols in and out."""
from __future__ import annotations

from typing import Any, Dict, List, Mapping

from .. import native, variants
from ..errors import PluginMissing
from ..merging import to_json
from .environment import mxnet


def candidates(symbol: Any, exact_only: bool = False) -> Dict[str, List[str]]:
    """For each op of the symbol the variants that fit; see :func:`memonger.variants.candidates`.

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
