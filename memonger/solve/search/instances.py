"""The native searches of one refinement: one to run, one for the background, and narrower ones.

Variants that are not exact seldom save much time. A search from nothing finds worse plans with
them for the same work, but they improve on the best plan that was found without them. So searches
that go on from the best plan have all variants, and adopt it unchanged
(:meth:`memonger.solve.search.native.NativeSearch.adopt`). Of those that start from nothing two in
three leave inexact variants out, and one has them: in some networks they matter.
"""
from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import Dict, Optional

from ...graph.types import Graph
from ...util.errors import PluginMissing
from ..options import Options
from .native import NativeSearch


class NativeSearches:
    """Native searches of a graph, made when first asked for.

    Parameters
    ----------
    graph : Graph
    options : Options
    """

    def __init__(self, graph: Graph, options: Options):
        self.graph = graph
        self.options = options
        self._exact: Dict[NativeSearch, NativeSearch] = {}

    @cached_property
    def main(self) -> Optional[NativeSearch]:
        """The native search; None where there is no library."""
        try:
            return NativeSearch(self.graph, self.options)
        except (PluginMissing, OSError):
            return None

    @cached_property
    def background(self) -> Optional[NativeSearch]:
        """A second one, for searches in the background."""
        return self.main and NativeSearch(self.graph, self.options)

    def exact(self, native: NativeSearch) -> NativeSearch:
        """The same search without variants that are not exact; itself where there are none."""
        if self.options.variants != "all" or all(one.exact for one in self.graph.variants):
            return native
        if native not in self._exact:
            self._exact[native] = NativeSearch(self.graph, replace(self.options, variants="exact"))
        return self._exact[native]

    def same_decisions(self, native: NativeSearch) -> bool:
        """Whether decisions of that search are those of the main one."""
        return native not in self._exact.values()
