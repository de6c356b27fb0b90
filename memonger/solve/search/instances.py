"""The native searches of one refinement: one to run, one for the background, and narrower ones.

Variants that are not exact seldom save much time, and with them a search from nothing finds worse
plans with the same work; but they improve on the best plan found without. So searches on from the
best plan have them all, and take it over as it is
(:meth:`memonger.solve.search.native.Core.adopt`); of those that start
anew two in three leave them out, not each, for in some networks they matter.
"""
from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import Dict, Optional

from ...graph.types import Graph
from ...util.errors import PluginMissing
from ..options import Options
from .native import Core


class Cores:
    """Native searches of a graph, made when first asked for.

    Parameters
    ----------
    graph : Graph
    options : Options
    """

    def __init__(self, graph: Graph, options: Options):
        self.graph = graph
        self.options = options
        self._exact: Dict[Core, Core] = {}

    @cached_property
    def main(self) -> Optional[Core]:
        """The native search; None where there is no library."""
        try:
            return Core(self.graph, self.options)
        except (PluginMissing, OSError):
            return None

    @cached_property
    def background(self) -> Optional[Core]:
        """A second one, for searches in the background."""
        return self.main and Core(self.graph, self.options)

    def exact(self, core: Core) -> Core:
        """The same search without variants that are not exact; itself where there are none."""
        if self.options.variants != "all" or all(one.exact for one in self.graph.variants):
            return core
        if core not in self._exact:
            self._exact[core] = Core(self.graph, replace(self.options, variants="exact"))
        return self._exact[core]

    def same_decisions(self, core: Core) -> bool:
        """Whether decisions of the core are those of the main one."""
        return core not in self._exact.values()
