"""Every constant of the search, with what it is worth.

Shares are of the step time unless they say otherwise. "Small" means up to ``small_ops`` ops.
"""
from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Iterator, NamedTuple, Tuple


class Turn(NamedTuple):
    """One turn: a 0/1 program or a native search, and another native search in the background."""

    #: Work of each native search, as a multiple of :func:`memonger.solve.search.local.work_for`.
    work: float
    #: The background search goes on from the best plan; else it starts from nothing.
    from_best: bool
    #: The turn is left out where the best plan is nearer to the bound than this share.
    near: float


@dataclass(frozen=True)
class Strategy:
    """How a search spends its work."""

    # ---- counted work, in seconds of an idle core
    #: Steps that the native search simulates in a second.
    steps_per_s: float = 40e6
    #: Seconds that a linear program takes for each entry of its matrix.
    linear_s_per_entry: float = 15e-6
    #: Seconds between two checks of HiGHS in a 0/1 program: a fixed part, and one for each entry.
    check_s: float = 0.008
    check_s_per_entry: float = 2.6e-6
    #: The clock ends a search only after this many times its counted seconds, so a machine with
    #: four other busy processes gives the same plan as an idle one.
    clock_factor: float = 20.0

    # ---- the native search
    #: Steps of one search for 700 ops; they grow with n, from 3000 ops with n log n. Four times as
    #: many steps win 0.1 % at deep cuts (ResNet-152 and DenseNet-121 at a fifth of their pools).
    steps_700_ops: float = 12e6
    #: Smaller graphs get the work of this many ops; the second number is for graphs of other
    #: planners, whose plans are compared with proven optima.
    least_ops: int = 350
    least_ops_imported: int = 2800
    #: Share of that work for the search that runs beside the first bound: enough for easy budgets.
    first_work: float = 0.4

    #: Parts that the native search leaves out: bits of ``Part`` in ``plugins/core/search.h``.
    without: int = 0

    # ---- plans of chains
    #: Boundaries that a chain has at least. ResNet-50 without variants costs 28 % of a step at
    #: 20 % of its total with plans of chains and 37 % without, ResNet-152 at 25 % 24 and 28 %.
    least_boundaries: int = 4
    #: Chains are left out where the best plan is this near the bound: programs prove more there.
    chain_near: float = 0.01
    #: Steps simulated for the ways of all segments; graphs below ``least_ops`` ops get their share.
    chain_steps: float = 60e6
    #: Budgets tried until a chain's plan fits.
    chain_tries: int = 4
    #: Where annealing of a chain's plan starts, and its work as a multiple of a native search.
    #: Hotter loses the plan, colder goes nowhere.
    chain_heat: float = 0.7
    chain_search: float = 3.0
    #: Work of the search from nothing that runs beside the chain's.
    chain_beside: float = 3.0

    # ---- turns
    #: Worth most at deep cuts, where only long native searches find cheap plans.
    turns: Tuple[Turn, ...] = (
        Turn(3, False, 0.001), Turn(6, True, 0.003), Turn(10, False, 0.005), Turn(15, True, 0.01))
    #: Turns left out where a chain's plan was there to start from.
    turns_without: int = 1
    #: A plan whose gap is at most this ends the search, in small and in larger graphs; tiny graphs
    #: are searched until a plan is proven optimal.
    target_gap: float = 0.001
    target_gap_large: float = 0.0025
    tiny_ops: int = 250
    small_ops: int = 500
    large_ops: int = 1500
    #: Share of their work that turns get in graphs above ``small_ops`` and above ``large_ops``, so
    #: that the usual time limit holds.
    turn_work_middle: float = 0.4
    turn_work_large: float = 0.125
    # ---- rounds that a longer limit buys
    #: The first round simulates at least this many steps, because populations need them; each
    #: further round this many times as many, because bounds need programs that run for minutes.
    least_round_steps: float = 100e6
    round_growth: float = 1.5
    #: The first program constrains live bytes at this many peaks of the best plan, and each further
    #: one at this many more.
    first_peaks: int = 5
    more_peaks: int = 1

    # ---- 0/1 programs
    #: Up to this many values 0/1 programs are solved; above, one linear program is rounded.
    integer_groups: int = 6000
    #: Programs in all, and HiGHS's checks in each: small graphs, others, whole buffers.
    programs: Tuple[int, int, int] = (12, 4, 2)
    checks: Tuple[int, int, int] = (400, 60, 15)
    #: In tiny graphs this many programs in a row may change bound and plan by less than ``worth``
    #: before there are no more; in others one.
    patience: int = 3
    worth: float = 0.0003
    #: In tiny graphs the first program constrains an op in each of so many pieces of backward: GAN
    #: at 35 % without variants comes from 13.1 to 12.6 %, which is optimal. In larger graphs that
    #: program takes too long.
    pieces: int = 6
    #: Share of the remaining work that one program may take, in small graphs and in others.
    share_small: float = 0.5
    share: float = 0.3
    #: Where turns of a tiny graph end this far from the bound, programs get so many counted seconds
    #: more, then a search that crosses plans so many steps: a GAN at 35 % without variants comes
    #: from 13.6 to 12.6 %, which is optimal, U-Net at 25 % from 17.9 to 17.0 % (bound 16.3 %).
    last_near: float = 0.01
    proof_s: float = 20.0
    last_steps: float = 200e6
    #: How far a program's answer may be from its optimum in small graphs: the end of a proof costs
    #: most.
    small_gap: float = 0.0004
    #: A decoded plan above this share of the budget shows that programs are no guide.
    far_miss: float = 1.3
    #: Native searches mend decoded plans with this share of the usual work; those below
    #: ``near_miss`` of the budget with ``mend_near`` times as much.
    near_miss: float = 1.06
    mend_work: float = 0.03
    mend_near: int = 16
    #: Where the best plan is this near the bound, no program plans again for less memory.
    far: float = 0.005

    # ---- bounds
    #: Linear programs for the first bound up to 500 values, up to 1500, and beyond.
    bound_rounds: Tuple[int, int, int] = (7, 3, 1)
    #: Up to so many values backward has so many pieces in the program with spans, which raises the
    #: bound of ResNet-50 at 20 % from 16.9 to 20.6 % in a second.
    span_pieces: Tuple[Tuple[int, int], ...] = ((400, 8), (900, 5), (2000, 3))
    #: Sizes of whole buffers that programs distinguish, and up to how many values they do: finer is
    #: slower, not better.
    layers: int = 10
    layer_groups: int = 2500
    #: The bound of plans in whole buffers that caps an arena's: linear programs, pieces of backward
    #: with a constrained op each in the 0/1 program, sizes, checks, values.
    whole_rounds: int = 9
    whole_pieces: int = 9
    whole_layers: int = 6
    whole_checks: int = 200
    whole_groups: int = 1500
    #: The bound on the smallest peak: ops whose operands are brought together, and states for each.
    operand_ops: int = 16
    operand_states: int = 500
    #: The 0/1 program for it: ops in it, checks, counted seconds, and values up to which it
    #: is tried.
    peak_ops: int = 16
    peak_checks: int = 25
    peak_s: float = 4.0
    peak_groups: int = 1500

    # ---- least memory
    #: Work, as a multiple of a search for one budget: it tries several.
    least_work: float = 4.0
    #: Counted seconds for the smallest plan that a search falls back on before it refuses.
    least_s: float = 4.0
    #: Budgets tried within an overhead.
    probes: int = 14
    #: At any cost: what the next plan may take of the one before while searches for a budget go
    #: down, then descents and the work of each (below ``least_ops`` ops their share of it).
    step_down: float = 0.75
    descents: int = 8
    descent_work: float = 2.5

    # ---- starts from simpler methods
    #: How many of the best thresholds of Chen et al. searches start from. Above ``coarse_ops`` ops
    #: fewer thresholds are tried, and no ogc.
    thresholds: int = 3
    coarse_ops: int = 2500


STRATEGY = Strategy()


@contextmanager
def changed(**values: Any) -> Iterator[None]:
    """Search with other constants inside the block, to measure what each is worth."""
    before = {name: getattr(STRATEGY, name) for name in values}
    try:
        for name, value in values.items():
            object.__setattr__(STRATEGY, name, value)  # nobody else may: it is frozen
        yield
    finally:
        for name, value in before.items():
            object.__setattr__(STRATEGY, name, value)
