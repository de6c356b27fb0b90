"""The planning problem as a linear program over a few constrained ops.

``tests/reference/relaxation.py`` says the same with expressions, row by row: read that first.

Formulation (after Checkmate, Jain et al., MLSys 2020, and MONeT, Shah et al., ICLR 2021, with
their stages replaced by windows between *constrained ops*): the ops are cut into windows, each
ending at a constrained op. For group ``t`` and window ``j``

* ``live[t, j]``: the value is in memory at the constrained op that ends window ``j``;
* ``rerun[r, j]``: repeat ``r``, as one implementation of an op, happens inside window ``j``;
* ``variant[m]``: ops run as variant ``m`` has them;
* ``taken[t, j]``: the constrained op that ends window ``j`` works in the value's memory, and the
  value is gone (only for ops that save memory in no other way).

A value is *at hand* in a window if it was live at the window's start, is made in the window, or
is rerun in it. Reads, reruns and lives all need values at hand; the live bytes at each constrained
op stay within the budget; the time of reruns and variants is minimised, or with several streams
that of windows (:mod:`memonger.solve.mip.streams`).

Every schedule that fits the budget gives a feasible 0/1 point that costs no more, whatever the
windows are: so any lower bound of this program is a lower bound for all schedules. Few windows
are not only faster: they often give better bounds, because within a window a fractional rerun
cannot be spread over many steps.
"""
from __future__ import annotations

from typing import Dict, List, Sequence, Tuple

import numpy as np

from .at_hand import add_at_hand_rows
from .columns import Ranges, Rows, Spots
from .inplace_reuse import InplaceReuse
from .problem import Reduced
from .program import Program
from .spans import add_span_rows, span_pairs
from .streams import Lengths
from .targets import ALWAYS, Targets


def build(reduced: Reduced, constrained: Sequence[int], budget_bytes: float,
          max_reruns: int = 0, forget: Sequence[int] = (),
          spans: Sequence[Tuple[int, int]] = ()) -> Program:
    """Write the program for some constrained ops.

    Parameters
    ----------
    reduced : Reduced
    constrained : sequence of int
        Op ids, increasing. The last forward op is always added.
    budget_bytes : float
        Upper limit of the live bytes. ``inf``: the budget becomes a variable, column 0, and is
        what is minimised.
    max_reruns : int
        Largest number of reruns of an op; 0 is no limit.
    forget : sequence of int
        Ops whose values must not stay from forward to backward.

    Returns
    -------
    Program
        O(groups x windows) size and time.
    """
    graph = reduced.graph
    ends = {int(k) for k in constrained}
    if 0 < reduced.first_backward < reduced.num_ops:
        ends.add(reduced.first_backward - 1)
    ends_at = np.array(sorted(ends), dtype=np.int64)
    window_of = np.searchsorted(ends_at, np.arange(reduced.num_ops))
    minimise_peak = not np.isfinite(budget_bytes)
    unit = max(float(reduced.size_bytes.max()) if len(reduced.size_bytes) else 1.0, 1.0) / 64
    if not minimise_peak:
        unit = max(budget_bytes / 1024, 1e-9)

    # ---- columns
    next_column = 1 if minimise_peak else 0
    first = window_of[reduced.birth] if len(reduced.birth) else np.zeros(0, dtype=np.int64)
    last = np.searchsorted(ends_at, reduced.last_need, side="right") - 1
    live = Ranges.make(first, last, next_column)
    next_column += live.total
    repeats = [(op, number) for op in range(reduced.num_ops) if reduced.again[op]
               for number, implementation in enumerate(reduced.implementations[op])
               if implementation.runs]
    number_of = {repeat: i for i, repeat in enumerate(repeats)}
    wanted = np.full(len(repeats), -1, dtype=np.int64)
    for group, makers in enumerate(reduced.makers):
        if not reduced.frozen_group[group]:
            for maker in makers:
                repeat = number_of.get(maker, -1)
                if repeat >= 0:
                    wanted[repeat] = max(wanted[repeat], reduced.last_need[group])
    repeat_op = np.array([op for op, _ in repeats], dtype=np.int64)
    rerun_first = window_of[repeat_op] + 1 if len(repeats) else np.zeros(0, dtype=np.int64)
    if reduced.first_backward < reduced.num_ops:
        rerun_first = np.maximum(rerun_first, window_of[reduced.first_backward])
    rerun_last = np.where(wanted >= 0, window_of[np.maximum(wanted, 0)], -1)
    rerun = Ranges.make(rerun_first, rerun_last, next_column)
    next_column += rerun.total
    variant_column = np.full(len(graph.variants), -1, dtype=np.int64)
    variant_column[list(reduced.variants)] = next_column + np.arange(len(reduced.variants))
    next_column += len(reduced.variants)
    spot_at = {int(k): j for j, k in enumerate(ends_at)}
    reuses = [(spot_at[reuse.op], reuse) for reuse in reduced.inplace_reuses if reuse.op in spot_at]
    taken = Spots.make([(group, window) for window, reuse in reuses for group, _ in reuse.sources],
                       next_column)
    again = Spots.make(span_pairs(rerun, spans), next_column + len(taken.owner))
    lengths = Lengths(reduced, ends_at, again.base + len(again.owner),
                      graph.has_streams and not minimise_peak)
    columns = lengths.base + lengths.count

    # ---- costs
    cost = np.zeros(columns)
    times = np.array([reduced.implementations[op][number].time_s for op, number in repeats],
                     dtype=float)
    owner, _ = rerun.pairs()
    if lengths.used:
        cost[lengths.slice] = lengths.unit_s
    elif not minimise_peak:
        cost[rerun.slice] = times[owner]
        for number in reduced.variants:
            for op, implementation in graph.implementations_of(number):
                cost[variant_column[number]] += implementation.time_s - graph.ops[op].time_s
    else:
        cost[0] = 1.0
    lower, upper = np.zeros(columns), np.ones(columns)
    if minimise_peak:
        upper[0] = float(
            reduced.size_bytes.sum() + reduced.profile_bytes.max(initial=0.0)) / unit
    if lengths.used:
        lower[lengths.slice] = -lengths.unplanned_s / lengths.unit_s
        upper[lengths.slice] = lengths.most
    rows = Rows()
    target = Targets(reduced, variant_column)
    add_at_hand_rows(reduced, rows, live, rerun, taken, repeats, number_of, target,
                     variant_column, window_of)
    _forced_lives(reduced, rows, live, lower, upper, target, ends_at, forget)
    memory = _memory_rows(reduced, rows, live, ends_at, budget_bytes, unit)
    _inplace_rows(rows, live, taken, reuses, memory, unit)
    _choice_rows(reduced, rows, rerun, repeats, variant_column, max_reruns)
    if spans:
        add_span_rows(reduced, rows, live, rerun, again, spans, number_of, ends_at, window_of,
                      target)
    lengths.add_rows(rows, rerun, repeats, variant_column)
    start, index, value = rows.matrix(columns)
    return Program(cost, lower, upper, np.concatenate(rows.lower), np.concatenate(rows.upper),
                   start, index, value, unit, live, rerun, taken, repeats,
                   variant_column, ends_at, spans, again, lengths)


def _forced_lives(reduced: Reduced, rows: Rows, live: Ranges, lower: np.ndarray,
                  upper: np.ndarray, target: Targets, ends_at: np.ndarray,
                  forget: Sequence[int]) -> None:
    """Lives that are no decision: operands of constrained ops, first lives in forward."""
    spot_at = {int(k): j for j, k in enumerate(ends_at)}
    forgotten = set(forget)
    for group in range(len(reduced.size_bytes)):
        must: Dict[Tuple[int, int], List[int]] = {}
        for op, number in reduced.readers[group] + reduced.makers[group]:
            if op in spot_at:
                must.setdefault((spot_at[op], op), []).append(number)
        for op, number in reduced.readers[group]:
            if op < reduced.first_backward:
                begin = int(np.searchsorted(ends_at, reduced.first_life(group, op), side="left"))
                end = int(np.searchsorted(ends_at, op, side="left"))
                for window in range(begin, end):
                    must.setdefault((window, op), []).append(number)
        for (window, op), numbers in must.items():
            column = _column(live, group, window)
            if column < 0:
                continue
            wanted = target.of_implementations(op, sorted(set(numbers)))
            if wanted == ALWAYS:
                lower[column] = 1.0
            else:
                rows.add(target.open(rows, np.array([wanted])), np.array([column]), 1.0)
        if forgotten and any(op in forgotten for op, _ in reduced.makers[group]):
            boundary = int(np.searchsorted(ends_at, reduced.first_backward - 1))
            column = _column(live, group, boundary)
            if column >= 0 and lower[column] == 0.0:
                upper[column] = 0.0


def _column(ranges: Ranges, owner: int, window: int) -> int:
    if ranges.first[owner] <= window <= ranges.last[owner]:
        return int(ranges.offset[owner] + window - ranges.first[owner])
    return -1


def _memory_rows(reduced: Reduced, rows: Rows, live: Ranges, ends_at: np.ndarray,
                 budget_bytes: float, unit: float) -> np.ndarray:
    """What is alive at each constrained op fits: one row each."""
    owner, window = live.pairs()
    limit = budget_bytes / unit if np.isfinite(budget_bytes) else 0.0
    numbers = rows.open(np.full(len(ends_at), -np.inf),
                        limit - reduced.profile_bytes[ends_at] / unit)
    if not np.isfinite(budget_bytes):
        rows.add(numbers, np.zeros(len(ends_at), dtype=np.int64), -1.0)
    rows.add(numbers[window], live.base + np.arange(live.total),
             reduced.size_bytes[owner] / unit)
    return numbers


def _inplace_rows(rows: Rows, live: Ranges, taken: Spots,
                  reuses: Sequence[Tuple[int, InplaceReuse]], memory: np.ndarray,
                  unit: float) -> None:
    """What an op saves in place: only what it takes, from what is live, once an output."""
    for spot, reuse in reuses:
        rows.upper[-1][spot] -= sum(reuse.places) / unit
        groups = np.array([group for group, _ in reuse.sources], dtype=np.int64)
        columns = taken.column(groups, np.full(len(groups), spot))
        rows.add(np.full(len(groups), memory[spot]), columns,
                 -np.array([saved for _, saved in reuse.sources]) / unit)
    if not reuses:
        return
    numbers = rows.open(np.full(len(reuses), -np.inf),
                        np.array([float(len(reuse.places)) for _, reuse in reuses]))
    number_of = dict(zip((spot for spot, _ in reuses), numbers))
    columns = taken.base + np.arange(len(taken.owner))
    rows.add(np.array([number_of[int(spot)] for spot in taken.window]), columns, 1.0)
    numbers = rows.open(np.full(len(columns), -np.inf), np.zeros(len(columns)))
    rows.add(numbers, columns, 1.0)
    rows.add(numbers, live.column(taken.owner, taken.window), -1.0)


def _choice_rows(reduced: Reduced, rows: Rows, rerun: Ranges, repeats: List[Tuple[int, int]],
                 variant_column: np.ndarray, max_reruns: int) -> None:
    """One implementation for each op; reruns as the op runs; at most ``max_reruns`` of them."""
    seen = set()
    for variants in reduced.variant_of:
        chosen = tuple(sorted(set(variants[1:])))
        if len(chosen) > 1 and chosen not in seen:
            seen.add(chosen)
            row = rows.open(np.array([-np.inf]), np.array([1.0]))
            rows.add(np.repeat(row, len(chosen)), variant_column[list(chosen)], 1.0)
    for repeat, (op, number) in enumerate(repeats):
        span = np.arange(rerun.first[repeat], rerun.last[repeat] + 1)
        if len(reduced.implementations[op]) > 1:
            for column in rerun.offset[repeat] + span - rerun.first[repeat]:
                row = rows.open(np.array([-np.inf]), np.array([1.0 if number == 0 else 0.0]))
                rows.add(row, np.array([column]), 1.0)
                others = reduced.variant_of[op][1:] if number == 0 \
                    else [reduced.variant_of[op][number]]
                sign = 1.0 if number == 0 else -1.0
                rows.add(np.repeat(row, len(others)), variant_column[others], sign)
        if max_reruns and len(span) > max_reruns:
            row = rows.open(np.array([-np.inf]), np.array([float(max_reruns)]))
            rows.add(np.repeat(row, len(span)),
                     rerun.offset[repeat] + span - rerun.first[repeat], np.array(1.0))
