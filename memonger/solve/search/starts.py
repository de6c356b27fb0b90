"""Plans of the simpler methods, to start from where the local search finds none that fits.

Single moves seldom lead to whole segments between cut points, and where a budget is tight those are
often the only plans that fit. Each schedule here is a complete plan of another method (Chen et al.
2016 by thresholds and by sqrt(n); Feng and Huang 2021). The caller evaluates it and lets the local
search improve on it.
"""
from __future__ import annotations

from dataclasses import replace
from typing import Iterator, Sequence, Tuple

from ...graph.in_use import graph_in_use
from ...graph.schedule import Schedule, expand
from ...graph.types import Graph
from ..options import Options

#: How many of the best thresholds of Chen et al. searches start from.
_THRESHOLDS = 3
#: Above so many ops fewer thresholds are tried, and no ogc.
_COARSE_OPS = 2500


def baseline_schedules(graph: Graph, options: Options,
                       variants: Sequence[Tuple[int, ...]] = ((),)) -> Iterator[Schedule]:
    """Schedules of the other methods.

    Parameters
    ----------
    graph : Graph
    options : Options
        Pins are respected. Thresholds have half of the time limit, ogc the other half.
    variants : sequence of tuples of int
        Sets of variants to combine with recomputation.
    """
    from ..baselines import chen, ogc, sublinear
    pinned = set(options.keep)
    half_s = options.time_limit_s / (2 * len(variants))
    for chosen in variants:
        in_use = graph_in_use(graph, Schedule((), chosen))
        small = len(graph.ops) <= _COARSE_OPS
        plain = replace(options, variants="none", progress=None, bound=False,
                        ntrial=options.ntrial if small else 2,
                        time_limit_s=half_s)
        trials = sorted(trial for trial, _ in sublinear.search(in_use, plain))
        for trial in trials[:_THRESHOLDS]:
            yield Schedule(expand(in_use, {op: {} for op in trial.recomputed}).steps, chosen)
        paid = small and ogc.counted_s(graph) <= half_s
        for method in (chen, ogc) if paid else (chen,):
            schedule = method.solve(in_use, None, plain).schedule
            if not pinned & set(schedule.recomputed()):
                yield Schedule(schedule.steps, chosen)
