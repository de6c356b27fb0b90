"""Columns and rows for the time of a step with several streams: :mod:`memonger.graph.clock`.

With one stream the objective is the time of reruns and of what variants add, and there is nothing
of this. With several, ``length[j]`` is how long compute takes for window ``j``, waits included,
beyond what it takes in the unplanned step; behind the last constrained op a window ends with the
last stream. All lengths together are the extra time, so they are what is minimised:

* a window is at least as long as what compute runs in it;
* a run of another stream that is issued in window ``a`` starts when window ``a`` has begun, and
  where an op of compute in window ``b`` waits for it in every plan, it has ended when window ``b``
  ends. The windows of each such span are together as long as all runs of a stream that are issued
  and waited for in it.

Both hold for every schedule, so a bound stays one. They say nothing of where in a window a run is
issued and waited for: with few windows copies seem to hide more easily than they do.
"""
from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Dict, List, Sequence, Tuple

import numpy as np

from ...graph.clock import COMPUTE, Times
from ...graph.streams import Waits, unplanned_times
from ...graph.types import Graph
from .choices import Reruns, Variants
from .columns import Family, Rows
from .frame import Frame, Placed, base_positions
from .problem import Reduced

#: Units of time in the unplanned step, or in its longest op: rows are compared to 1e-7 of one.
_UNITS = 1024.0
#: Units that HiGHS takes for zero, with a warning.
_SMALL = 1e-8


def waiting_s(graph: Graph) -> float:
    """How long compute waits for other streams in the unplanned step, up to the end of the last."""
    if not graph.has_streams:
        return 0.0
    return graph.time_s - sum(op.time_s for op in graph.ops if op.stream == COMPUTE)


@dataclass
class Lengths(Family):
    """The columns ``length[j]`` of a program; none with one stream."""

    @classmethod
    def of(cls, frame: Frame, base: int) -> "Lengths":
        used = frame.reduced.graph.has_streams and not frame.minimises_peak
        return cls(frame, base, base + (len(frame.ends_at) + 1 if used else 0))

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
        """(windows + 1,) float64: how long each takes in the unplanned step."""
        ops = self.reduced.graph.ops
        steps = np.cumsum([op.runs for op in ops]) - 1
        return _lengths(unplanned_times(ops), steps[self.frame.ends_at])

    def window_of(self, op: int) -> int:
        return int(np.searchsorted(self.frame.ends_at, op))

    def fill(self, values: np.ndarray, placed: Placed) -> None:
        if not len(self.columns):
            return
        # Where an op has no step, its window ends with the step before.
        steps = np.maximum.accumulate(np.array(base_positions(placed.schedule), dtype=np.int64))
        found = _lengths(placed.schedule.times(self.reduced.graph), steps[self.frame.ends_at])
        values[self.columns] = np.minimum((found - self.unplanned_s) / self.unit_s, self.most)

    @cached_property
    def most(self) -> np.ndarray:
        """(columns,) float64: no window need be longer, as other streams are idle by then."""
        reduced, unit_s = self.reduced, self.unit_s
        own, others = np.zeros(len(self.columns)), 0.0
        for op, ways in enumerate(reduced.implementations):
            most_s = max(way.time_s for way in ways)
            if reduced.graph.ops[op].stream == COMPUTE:
                own[self.window_of(op)] += most_s
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
        reruns = self._reruns(rerun)
        self._add_compute_rows(rows, reruns.get(COMPUTE, []), variant.column_of)
        self._add_span_rows(rows, reruns, variant.column_of)

    def _reruns(self, rerun: Reruns) -> Dict[str, List[Tuple[int, int, float]]]:
        """By stream the window, column and time in units of each rerun."""
        found: Dict[str, List[Tuple[int, int, float]]] = {}
        for column, repeat, spot in zip(rerun.columns.tolist(), *map(
                np.ndarray.tolist, rerun.pairs())):
            op, way = rerun.repeats[repeat]
            found.setdefault(self.reduced.graph.ops[op].stream, []).append(
                (spot, column, self.reduced.implementations[op][way].time_s / self.unit_s))
        return found

    def _add_compute_rows(self, rows: Rows, reruns: Sequence[Tuple[int, int, float]],
                          variant_column: np.ndarray) -> None:
        graph, unit_s = self.reduced.graph, self.unit_s
        least = -self.unplanned_s / unit_s
        entries = list(reruns)
        for index, op in enumerate(graph.ops):
            if op.stream == COMPUTE:
                least[self.window_of(index)] += op.time_s / unit_s
        for variant in self.reduced.variants:
            for index, way in graph.implementations_of(variant):
                op = graph.ops[index]
                if op.stream == COMPUTE:
                    entries.append((self.window_of(index), int(variant_column[variant]),
                                    (way.time_s - op.time_s) / unit_s))
        for window in range(len(self.columns)):
            self._add_row(rows, window, window, least[window], [
                (column, time) for spot, column, time in entries if spot == window])

    def _add_span_rows(self, rows: Rows, reruns: Dict[str, List[Tuple[int, int, float]]],
                       variant_column: np.ndarray) -> None:
        graph, unit_s = self.reduced.graph, self.unit_s
        waits = Waits(graph.ops, graph.tensors, graph.variants)
        #: By stream the first and last window of each run, its column (-1: always), and its time.
        runs: Dict[str, List[Tuple[int, int, int, float]]] = {}
        for run in waits.other_runs():
            if run.variant >= 0 and run.variant not in self.reduced.variants:
                continue
            first, last = self.window_of(run.op), self.window_of(waits.first_wait(run))
            time, of_stream = run.how.time_s / unit_s, runs.setdefault(
                graph.ops[run.op].stream, [])
            if run.variant >= 0:
                of_stream.append((first, last, int(variant_column[run.variant]), time))
            else:  # unless one of its variants is chosen
                of_stream.append((first, last, -1, time))
                of_stream += [(first, last, int(variant_column[variant]), -time)
                              for variant in self.reduced.variant_of[run.op][1:]]
        for stream in {*runs, *reruns} - {COMPUTE}:
            # What a rerun makes is read right behind it.
            runs.setdefault(stream, []).extend(
                (spot, spot, column, time) for spot, column, time in reruns.get(stream, ()))
        for stream in sorted(runs):
            for begin in sorted({run[0] for run in runs[stream]}):
                for end in sorted({run[1] for run in runs[stream] if run[1] >= begin}):
                    inside = [(column, time) for first, last, column, time in runs[stream]
                              if begin <= first and last <= end]
                    always = sum(time for column, time in inside if column < 0)
                    self._add_row(rows, begin, end,
                                  always - self.unplanned_s[begin:end + 1].sum() / self.unit_s,
                                  inside)

    def _add_row(self, rows: Rows, begin: int, end: int, least: float,
                 inside: Sequence[Tuple[int, float]]) -> None:
        """The windows of a span are together longer than ``least`` by the times of these columns.

        What is left where times cancel is too small for HiGHS, and lowers the limit instead.
        """
        times: Dict[int, float] = {}
        for column, time in inside:
            if column >= 0:
                times[column] = times.get(column, 0.0) + time
        small = [column for column, time in times.items() if abs(time) < _SMALL]
        least += sum(min(0.0, times.pop(column)) for column in small)
        number = rows.open(np.array([least]), np.array([np.inf]))
        windows = self.base + np.arange(begin, end + 1)
        rows.add(np.repeat(number, len(windows)), windows, 1.0)
        rows.add(np.repeat(number, len(times)), np.array(list(times), dtype=np.int64),
                 -np.array(list(times.values())))


def _lengths(times: Times, steps: np.ndarray) -> np.ndarray:
    """(windows + 1,) float64: windows that end with these steps (-1: none), and the last."""
    ends = [0.0, *(times.compute_s[step] if step >= 0 else 0.0 for step in steps.tolist()),
            times.total_s]
    return np.diff(ends)
