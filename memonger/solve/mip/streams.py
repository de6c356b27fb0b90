"""Columns and rows for the time of a step with several streams: :mod:`memonger.graph.clock`.

With one stream the objective is the time of reruns and of what variants add, and there is nothing
of this. With several, windows are cut further into *pieces*, and ``length[k]`` is how long compute
takes for piece ``k``, waits included, beyond what it takes in the unplanned step; the last piece
ends with the last stream. All lengths together are the extra time, so they are what is minimised:

* a piece is at least as long as the first runs of compute in it, a window's pieces together as long
  as all that compute runs in the window;
* a run of another stream that is issued in piece ``a`` starts when piece ``a`` has begun, and
  where an op of compute in piece ``b`` waits for it in every plan, it has ended when piece ``b``
  ends. The pieces of each such span are together as long as all runs of a stream that are issued
  and waited for in it.

All hold for every schedule, so a bound stays one. They say nothing of where in a piece a run is
issued and waited for: with few pieces copies seem to hide more easily than they do.
"""
from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Dict, List, Sequence, Tuple

import numpy as np

from ...graph.clock import COMPUTE, Times
from ...graph.streams import OtherRun, Waits, unplanned_times
from ...graph.types import Graph
from .choices import Reruns, Variants
from .columns import Family, Rows
from .frame import Frame, Placed, base_positions
from .problem import Reduced

#: Units of time in the unplanned step, or in its longest op: rows are compared to 1e-7 of one.
_UNITS = 1024.0
#: Units that HiGHS takes for zero, with a warning.
_SMALL = 1e-8
#: Equal shares of the unplanned time at which pieces end, beside the ends of windows: with a slow
#: link they raise the bound of ResNet-50 at half of its pool from 0.01 to 0.12 %.
_PIECES = 24

#: First and last piece of what a stream runs, its column (-1: always), and its time in units.
_Run = Tuple[int, int, int, float]


def waiting_s(graph: Graph) -> float:
    """How long compute waits for other streams in the unplanned step, up to the end of the last."""
    if not graph.has_streams:
        return 0.0
    return graph.time_s - sum(op.time_s for op in graph.ops if op.stream == COMPUTE)


def ends_of_pieces(graph: Graph, ends_at: Sequence[int]) -> List[int]:
    """The op that ends each piece but the last, given those that end windows; increasing."""
    so_far_s = np.cumsum([op.time_s if op.stream == COMPUTE else 0.0 for op in graph.ops])
    shares_s = so_far_s[-1] * np.arange(1, _PIECES) / _PIECES
    return sorted({*map(int, ends_at), *np.searchsorted(so_far_s, shares_s).tolist()}
                  & set(range(len(graph.ops))))


@dataclass
class Lengths(Family):
    """The columns ``length[k]`` of a program; none with one stream."""

    #: (pieces - 1,) int64: the op that ends each piece but the last.
    cuts: np.ndarray

    @classmethod
    def of(cls, frame: Frame, base: int) -> "Lengths":
        if frame.minimises_peak or not frame.reduced.graph.has_streams:
            return cls(frame, base, base, np.zeros(0, dtype=np.int64))
        cuts = np.array(ends_of_pieces(frame.reduced.graph, frame.ends_at.tolist()), dtype=np.int64)
        return cls(frame, base, base + len(cuts) + 1, cuts)

    @property
    def reduced(self) -> Reduced:
        return self.frame.reduced

    @cached_property
    def unit_s(self) -> float:
        """Seconds of one unit of the columns."""
        longest_s = max((way.time_s for ways in self.reduced.implementations for way in ways),
                        default=0.0)
        return max(self.reduced.graph.time_s, longest_s) / _UNITS or 1.0

    @cached_property
    def unplanned_s(self) -> np.ndarray:
        """(pieces,) float64: how long each takes in the unplanned step."""
        steps = np.cumsum([op.runs for op in self.reduced.graph.ops]) - 1
        return _lengths(unplanned_times(self.reduced.graph.ops), steps[self.cuts])

    def piece_of(self, op: int) -> int:
        return int(np.searchsorted(self.cuts, op))

    def pieces_of(self, window: int) -> Tuple[int, int]:
        """First and last piece of a window."""
        ends_at = self.frame.ends_at
        first = self.piece_of(int(ends_at[window - 1])) + 1 if window else 0
        last = self.piece_of(int(ends_at[window])) if window < len(ends_at) else len(self.cuts)
        return first, last

    def fill(self, values: np.ndarray, placed: Placed) -> None:
        if not len(self.columns):
            return
        # Where an op has no step, its piece ends with the step before.
        first = np.array(base_positions(placed.schedule), dtype=np.int64)
        steps = np.full(self.reduced.num_ops, len(placed.schedule.steps) - 1, dtype=np.int64)
        steps[:len(first)] = np.maximum.accumulate(first)
        found = _lengths(placed.schedule.times(self.reduced.graph), steps[self.cuts])
        values[self.columns] = np.minimum((found - self.unplanned_s) / self.unit_s, self.most)

    @cached_property
    def most(self) -> np.ndarray:
        """(columns,) float64: no piece need be longer, as other streams are idle by then."""
        reduced, unit_s = self.reduced, self.unit_s
        own, others = np.zeros(len(self.columns)), 0.0
        for op, ways in enumerate(reduced.implementations):
            most_s = max(way.time_s for way in ways)
            if reduced.graph.ops[op].stream == COMPUTE:
                own[self.piece_of(op)] += most_s
                own += most_s * bool(reduced.again[op])
            else:
                others += most_s * (1 + len(own) * bool(reduced.again[op]))
        return (own + others - self.unplanned_s) / unit_s

    def add_rows(self, rows: Rows, rerun: Reruns, variant: Variants) -> None:
        """The rows above; the lengths are what is minimised."""
        if not len(self.columns):
            return
        rows.cost[self.columns] = self.unit_s
        rows.least[self.columns] = -self.unplanned_s / self.unit_s
        rows.most[self.columns] = self.most
        runs, reruns = self._first_runs(variant.column_of), self._reruns(rerun)
        self._add_compute_rows(rows, runs.pop(COMPUTE, []), reruns.pop(COMPUTE, []))
        for stream in sorted({*runs, *reruns}):
            self._add_span_rows(rows, runs.get(stream, []) + reruns.get(stream, []))

    def _first_runs(self, variant_column: np.ndarray) -> Dict[str, List[_Run]]:
        """By stream what the first runs of ops take, as they are and as variants have them."""
        graph, unit_s = self.reduced.graph, self.unit_s
        waits = Waits(graph.ops, graph.tensors, graph.variants)
        found: Dict[str, List[_Run]] = {}
        for op, ways in enumerate(self.reduced.implementations):
            first = self.piece_of(op)
            for way, variant in zip(ways, self.reduced.variant_of[op]):
                last = first if graph.ops[op].stream == COMPUTE else \
                    self.piece_of(waits.first_wait(OtherRun(op, way, variant)))
                of_stream = found.setdefault(graph.ops[op].stream, [])
                if variant >= 0:
                    of_stream.append((first, last, int(variant_column[variant]),
                                      way.time_s / unit_s))
                    continue
                of_stream.append((first, last, -1, way.time_s / unit_s))
                of_stream += [(first, last, int(variant_column[other]), -way.time_s / unit_s)
                              for other in self.reduced.variant_of[op][1:]]
        return found

    def _reruns(self, rerun: Reruns) -> Dict[str, List[_Run]]:
        """By stream the reruns; what they make is read right behind them, in the same window."""
        found: Dict[str, List[_Run]] = {}
        for column, repeat, spot in zip(rerun.columns.tolist(), *map(
                np.ndarray.tolist, rerun.pairs())):
            op, way = rerun.repeats[repeat]
            found.setdefault(self.reduced.graph.ops[op].stream, []).append(
                (*self.pieces_of(spot), column,
                 self.reduced.implementations[op][way].time_s / self.unit_s))
        return found

    def _add_compute_rows(self, rows: Rows, runs: Sequence[_Run], reruns: Sequence[_Run]) -> None:
        windows = [self.pieces_of(window) for window in range(len(self.frame.ends_at) + 1)]
        for begin, end in windows:
            self._add_row(rows, begin, end, [
                run for run in (*runs, *reruns) if begin <= run[0] and run[1] <= end])
            for piece in range(begin, end + 1) if begin < end else ():
                self._add_row(rows, piece, piece, [run for run in runs if run[0] == piece])

    def _add_span_rows(self, rows: Rows, runs: Sequence[_Run]) -> None:
        compute = self._least_compute
        for begin in sorted({run[0] for run in runs}):
            for end in sorted({run[1] for run in runs if run[1] >= begin}):
                inside = [run for run in runs if begin <= run[0] and run[1] <= end]
                # Else what compute runs takes as long in any case.
                if sum(max(run[3], 0.0) for run in inside) > compute[begin:end + 1].sum():
                    self._add_row(rows, begin, end, inside)

    @cached_property
    def _least_compute(self) -> np.ndarray:
        """(pieces,) float64: units of the first runs of compute as the fastest variants."""
        least = np.zeros(len(self.columns))
        for op, ways in enumerate(self.reduced.implementations):
            if self.reduced.graph.ops[op].stream == COMPUTE:
                least[self.piece_of(op)] += min(way.time_s for way in ways) / self.unit_s
        return least

    def _add_row(self, rows: Rows, begin: int, end: int, inside: Sequence[_Run]) -> None:
        """The pieces of a span are together as long as these runs.

        What is left where times cancel is too small for HiGHS, and lowers the limit instead.
        """
        times: Dict[int, float] = {-1: 0.0}
        for _, _, column, time in inside:
            times[column] = times.get(column, 0.0) + time
        least = times.pop(-1) - self.unplanned_s[begin:end + 1].sum() / self.unit_s
        small = [column for column, time in times.items() if abs(time) < _SMALL]
        least += sum(min(0.0, times.pop(column)) for column in small)
        number = rows.open([least], [np.inf])
        pieces = self.base + np.arange(begin, end + 1)
        rows.add(np.repeat(number, len(pieces)), pieces, 1.0)
        rows.add(np.repeat(number, len(times)), np.array(list(times), dtype=np.int64),
                 -np.array(list(times.values())))


def _lengths(times: Times, steps: np.ndarray) -> np.ndarray:
    """(pieces,) float64: pieces that end with these steps (-1: none), and the last."""
    ends = [0.0, *(times.compute_s[step] if step >= 0 else 0.0 for step in steps.tolist()),
            times.total_s]
    return np.diff(ends)
