"""The relaxation of :mod:`memonger.solve.mip.formulation`, written to be read.

It says with expressions what the package says with arrays, so it is the page to read first, and the
oracle of ``tests/solve/test_relaxation.py``. Ops run in the graph's order and are cut into windows,
each of which ends with a *constrained* op, at which memory is counted. A *value* is a lifetime
group of :mod:`memonger.solve.mip.problem`: what shares memory for life. Which ops make and read it
depends on how they run: op ``o`` as implementation ``n``, 0 being the framework's own.

Variables, each of which is 0 or 1 in a plan and anything between in the relaxation:

* ``live[v, j]``: value ``v`` is in memory when window ``j`` ends;
* ``rerun[o, n, j]``: forward op ``o`` runs again in window ``j``, as implementation ``n``;
* ``variant[m]``: the ops of variant ``m`` run as it says;
* ``taken[v, j]``: the op that ends window ``j`` works in the memory of ``v``, which is gone then;
* ``again[o, n, s]``: op ``o`` runs again somewhere in span ``s`` of windows;
* ``length[k]``, any number: how long compute takes for piece ``k`` of a window, waits included;
* ``workspace``, any number: bytes of the workspace beyond the least that variants can give.
"""
from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from typing import Any, Dict, Iterable, Iterator, List, Sequence, Tuple

from memonger.graph.clock import STREAMS
from memonger.graph.streams import OtherRun, Waits
from memonger.solve.mip.highs_runs import import_highspy, quiet
from memonger.solve.mip.problem import Reduced
from memonger.solve.mip.streams import ends_of_pieces


class Relaxation:
    """The model for some constrained ops; ``budget_bytes=inf`` asks for the least memory."""

    def __init__(self, reduced: Reduced, constrained: Iterable[int], budget_bytes: float,
                 spans: Sequence[Tuple[int, int]] = (), whole: bool = False):
        self.reduced, self.graph = reduced, reduced.graph
        self.model = quiet(import_highspy())()
        self.backward = reduced.first_backward
        last_forward = {self.backward - 1} if 0 < self.backward < reduced.num_ops else set()
        self.ends = sorted({*constrained, *last_forward})
        self.values = range(len(reduced.size_bytes))
        self.new = self.model.addBinary if whole else lambda: self.model.addVariable(0, 1)
        self.add_variables()
        self.least_memory = budget_bytes == float("inf")
        self.most_bytes = self.model.addVariable(0, budget_bytes)
        self.workspace = self.model.addVariable(0, float("inf"))
        for group_of_rows in (self.one_variant_for_an_op, self.workspace_serves_every_op,
                              self.reruns_as_the_op_runs,
                              self.forward_keeps_what_it_reads, self.operands_are_live,
                              self.values_are_at_hand, self.memory_is_within_the_budget,
                              self.only_what_is_live_is_taken):
            group_of_rows()
        for span in spans:
            self.a_span_is_one_window(*span)
        if self.graph.has_streams:
            self.pieces_are_as_long_as_what_compute_runs()
            self.copies_take_place_between_issue_and_wait()

    def solve(self) -> float:
        """The least extra time, or the least bytes; ``inf`` where there is no point."""
        self.model.setOptionValue("output_flag", False)
        self.model.minimize(self.most_bytes if self.least_memory else self.time())
        optimal = self.model.modelStatusToString(self.model.getModelStatus()) == "Optimal"
        return self.model.getObjectiveValue() if optimal else float("inf")

    # ------------------------------------------------------------------ variables
    def add_variables(self) -> None:
        reduced = self.reduced
        self.live = {(v, j): self.new() for v in self.values for j in range(
            self.window(reduced.birth[v]), bisect_right(self.ends, reduced.last_need[v]))}
        self.rerun: Dict[Tuple[int, int, int], Any] = {}
        for v in self.values:
            for o, n in () if reduced.frozen_group[v] else reduced.makers[v]:
                first = max(self.window(o) + 1, self.window(self.backward))
                for j in range(first, self.window(reduced.last_need[v]) + 1):
                    if reduced.again[o] and (o, n, j) not in self.rerun:
                        self.rerun[o, n, j] = self.new()
        self.variant = {m: self.new() for m in reduced.variants}
        self.reuse_at = {self.window(reuse.op): reuse for reuse in reduced.inplace_reuses
                         if reuse.op in self.ends}
        self.cuts = ends_of_pieces(self.graph, self.ends)
        self.length = [self.model.addVariable(0, float("inf"))
                       for _ in range(len(self.cuts) + 1)]
        self.taken = {(v, j): self.new() for j, reuse in self.reuse_at.items()
                      for v, _ in reuse.sources}

    def window(self, op: int) -> int:
        """The window in which an op runs first."""
        return bisect_left(self.ends, op)

    def sum(self, terms: Iterable[Any]) -> Any:
        return sum(terms, self.model.expr())

    def runs_as(self, op: int, numbers: Iterable[int]) -> Any:
        """1 where the op runs as one of these of its implementations."""
        variants = self.reduced.variant_of[op][1:]
        return self.sum(self.variant[variants[n - 1]] if n else
                        1 - self.sum(self.variant[m] for m in variants) for n in numbers)

    def remade(self, v: int, j: int) -> Any:
        """1 or more where the value is made again in the window."""
        makers = () if self.reduced.frozen_group[v] else self.reduced.makers[v]
        return self.sum(self.rerun.get((o, n, j), 0.0) for o, n in makers)

    # ------------------------------------------------------------------ objective
    def time(self) -> Any:
        """Extra time: reruns, and what variants add. With several streams all pieces together."""
        if self.graph.has_streams:
            return self.sum(self.length) - self.graph.time_s
        ways, ops = self.reduced.implementations, self.graph.ops
        return self.sum(ways[o][n].time_s * x for (o, n, _), x in self.rerun.items()) + self.sum(
            (way.time_s - ops[o].time_s) * x for m, x in self.variant.items()
            for o, way in self.graph.implementations_of(m))

    # ------------------------------------------------------------------ rows
    def one_variant_for_an_op(self) -> None:
        """Variants that change the same op exclude each other."""
        for variants in self.reduced.variant_of:
            self.model.addConstr(self.sum(self.variant[m] for m in variants[1:]) <= 1)

    def workspace_serves_every_op(self) -> None:
        """Beyond the least of all plans it is as large as that of any op as it runs."""
        sizes = [[way.workspace_bytes for way in ways] for ways in self.reduced.implementations]
        least = max(map(min, sizes), default=0)
        for o, of_op in enumerate(sizes):
            if max(of_op) > least:
                self.model.addConstr(self.workspace >= self.sum(
                    max(0.0, size - least) * self.runs_as(o, [n]) for n, size in enumerate(of_op)))

    def reruns_as_the_op_runs(self) -> None:
        """An op has one implementation, in its first run and in all others."""
        for (o, n, _), x in self.rerun.items():
            self.model.addConstr(x <= self.runs_as(o, [n]))

    def forward_keeps_what_it_reads(self) -> None:
        """Nothing runs again in forward: there a value lives up to its last reader."""
        for v in self.values:
            for o, numbers in by_op(self.reduced.readers[v]):
                first = self.window(self.reduced.first_life(v, o))
                for j in range(first, self.window(o)) if o < self.backward else ():
                    self.model.addConstr(self.live[v, j] >= self.runs_as(o, numbers))

    def operands_are_live(self) -> None:
        """While a constrained op runs, what it reads and makes is in memory."""
        for v in self.values:
            for o, numbers in by_op(self.reduced.readers[v] + self.reduced.makers[v]):
                if o in self.ends and (v, self.window(o)) in self.live:
                    self.model.addConstr(
                        self.live[v, self.window(o)] >= self.runs_as(o, numbers))

    def values_are_at_hand(self) -> None:
        """Who reads a value in a window, or has it live at the end, finds or makes it there."""
        for v in self.values:
            for j in range(len(self.ends) + 1):
                if j <= self.window(self.reduced.birth[v]) and not self.reduced.scattered_group[v]:
                    continue  # its first run makes it
                left = self.live.get((v, j - 1), 0.0) - self.taken.get((v, j - 1), 0.0)
                made = self.sum(self.runs_as(o, [n]) for o, n in self.reduced.makers[v]
                                if self.reduced.scattered_group[v] and self.window(o) == j)
                at_hand = left + made + self.remade(v, j)
                for need in self.needs(v, j):
                    self.model.addConstr(at_hand >= need)

    def needs(self, v: int, j: int) -> List[Any]:
        """First runs and reruns in a window that read a value, and its life at the end."""
        found = [self.live[v, j]] if (v, j) in self.live else []
        for o, numbers in by_op(self.reduced.readers[v]):
            if self.window(o) == j:
                found.append(self.runs_as(o, numbers))
            found.append(self.sum(self.rerun.get((o, n, j), 0.0) for n in numbers))
        return found

    def memory_is_within_the_budget(self) -> None:
        """At each constrained op: what is live, less what the op saves in place."""
        for j, op in enumerate(self.ends):
            reuse = self.reuse_at.get(j)
            saved = self.sum(size * self.taken[v, j] for v, size in reuse.sources) \
                - sum(reuse.places) if reuse else 0.0
            used = self.sum(float(size) * self.live[v, j] for v, size in enumerate(
                self.reduced.size_bytes) if (v, j) in self.live)
            self.model.addConstr(
                used + float(self.reduced.profile_bytes[op]) - saved + self.workspace
                <= self.most_bytes)

    def only_what_is_live_is_taken(self) -> None:
        """An op takes the memory of live values, and of no more than it has outputs for."""
        for j, reuse in self.reuse_at.items():
            taken = [self.taken[v, j] for v, _ in reuse.sources]
            self.model.addConstr(self.sum(taken) <= len(reuse.places))
            for v, _ in reuse.sources:
                self.model.addConstr(self.taken[v, j] <= self.live.get((v, j), 0.0))

    def piece(self, op: int) -> int:
        """The piece of a window in which an op runs first."""
        return bisect_left(self.cuts, op)

    def pieces(self, j: int) -> Tuple[int, int]:
        """First and last piece of a window."""
        return (self.piece(self.ends[j - 1]) + 1 if j else 0,
                self.piece(self.ends[j]) if j < len(self.ends) else len(self.cuts))

    def first_runs(self, stream: str) -> Iterator[Tuple[int, int, float, Any]]:
        """What a stream may run: piece of issue and of the first wait, time, and whether."""
        waits = Waits(self.graph.ops, self.graph.tensors, self.graph.variants)
        for o, op in enumerate(self.graph.ops):
            for n, way in enumerate(self.reduced.implementations[o] if op.stream == stream else ()):
                run = OtherRun(o, way, self.reduced.variant_of[o][n])
                last = o if stream == "compute" else waits.first_wait(run)
                yield self.piece(o), self.piece(last), way.time_s, self.runs_as(o, [n])

    def reruns(self, stream: str) -> Iterator[Tuple[int, int, float, Any]]:
        """The same of reruns: somewhere in a window, read right behind."""
        for (o, n, j), x in self.rerun.items():
            if self.graph.ops[o].stream == stream:
                yield (*self.pieces(j), self.reduced.implementations[o][n].time_s, x)

    def pieces_are_as_long_as_what_compute_runs(self) -> None:
        """First runs in each piece, and with reruns in each window."""
        runs, reruns = list(self.first_runs("compute")), list(self.reruns("compute"))
        for k in range(len(self.length)):
            self.span_is_as_long_as(k, k, runs)
        for j in range(len(self.ends) + 1):
            self.span_is_as_long_as(*self.pieces(j), runs + reruns)

    def copies_take_place_between_issue_and_wait(self) -> None:
        """All runs of a stream that are issued and waited for in a span of pieces."""
        for stream in STREAMS[1:]:
            runs = [*self.first_runs(stream), *self.reruns(stream)]
            for begin in range(len(self.length) if runs else 0):
                for end in range(begin, len(self.length)):
                    self.span_is_as_long_as(begin, end, runs)

    def span_is_as_long_as(self, begin: int, end: int, runs: Sequence[Any]) -> None:
        self.add_at_least(
            self.sum(self.length[begin:end + 1]),
            self.sum(time_s * x for first, last, time_s, x in runs
                     if begin <= first and last <= end))

    def add_at_least(self, left: Any, right: Any) -> None:
        """A row without what is left where times cancel: HiGHS takes no coefficients so small."""
        row = left - right
        columns, values = row.unique_elements()
        large = abs(values) > 1e-9
        row.idxs, row.vals = columns[large].tolist(), values[large].tolist()
        self.model.addConstr(row >= 0)

    def a_span_is_one_window(self, begin: int, end: int) -> None:
        """Halves of a rerun in several windows serve no more than one in a window does."""
        windows = range(begin, end + 1)
        reruns: Dict[Tuple[int, int], List[Any]] = defaultdict(list)
        for (o, n, j), x in self.rerun.items():
            if j in windows:
                reruns[o, n].append(x)
        again = {repeat: self.new() for repeat in reruns}
        for repeat, x in again.items():
            self.model.addConstr(self.sum(reruns[repeat]) >= x)
        for v in self.values:
            if self.reduced.scattered_group[v] or self.window(self.reduced.birth[v]) >= begin:
                continue
            makers = () if self.reduced.frozen_group[v] else self.reduced.makers[v]
            at_hand = self.live.get((v, begin - 1), 0.0) + self.sum(
                again.get(maker, 0.0) for maker in makers)
            needs = [self.live[v, end]] if (v, end) in self.live else []
            for o, numbers in by_op(self.reduced.readers[v]):
                needs.append(self.sum(again.get((o, n), 0.0) for n in numbers))
                needs += [self.runs_as(o, numbers)] * (self.window(o) in windows)
            for need in needs:
                self.model.addConstr(at_hand >= need)


def by_op(pairs: Iterable[Tuple[int, int]]) -> List[Tuple[int, List[int]]]:
    """Each op among pairs of op and implementation, with its implementations."""
    numbers: Dict[int, List[int]] = {}
    for op, number in dict.fromkeys(pairs):
        numbers.setdefault(op, []).append(number)
    return list(numbers.items())
