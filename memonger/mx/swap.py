"""Variants on MXNet symbols: :mod:`memonger.variants` with symbols in and out."""
from __future__ import annotations

from typing import Any, Dict, List, Mapping

from .. import native, variants
from ..errors import PluginMissing
from .environment import mxnet


def candidates(symbol: Any, exact_only: bool = False) -> Dict[str, List[str]]:
    """For each op of the symbol the variants that fit; see :func:`memonger.variants.candidates`.

    Without the plugin only the swaps that stock MXNet can make are offered.
    """
    found = variants.candidates(symbol.tojson(), exact_only)
    if native.available():
        return found
    stock = {op: [name for name in names if not variants.kind(name).needs_plugin]
             for op, names in found.items()}
    return {op: names for op, names in stock.items() if names}


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
        If a variant needs the plugin and it cannot be loaded.
    InputError
        If a variant does not fit.
    """
    if any(variants.kind(name).needs_plugin for name in choice.values()):
        if not native.available():
            raise PluginMissing("these variants need the plugin, which is %s" % native.status())
    return mxnet().sym.load_json(variants.swap_json(symbol.tojson(), choice))


def unswap(symbol: Any) -> Any:
    """The symbol before :func:`swap`, its JSON byte for byte."""
    return mxnet().sym.load_json(variants.unswap_json(symbol.tojson()))
