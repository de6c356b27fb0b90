"""The C++ planner (``plugins/core``): a graph as flat numbers, and the calls.

The library simulates tens of thousands of decisions a second; :class:`NativeSearch` owns one
problem in it. Everything that leaves here is in the terms of :mod:`memonger.graph.schedule`.
"""
from __future__ import annotations

import ctypes
import itertools
from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

from ...graph.in_use import graph_in_use
from ...graph.schedule import Schedule, Step
from ...graph.types import DTYPES, Graph, Implementation
from ...memory.liveness import dtype_number, number_of_elements, own_buffer_tensors
from ...memory.storage import STORAGES
from ...util import signals as interrupts
from ...util.errors import SolverError
from ...util.native_libraries import array, core
from ..mip.implementations import allowed_variants
from ..options import Options

_POLL = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_double, ctypes.c_int64)
#: What the search can leave out: the bits of ``Part`` in ``plugins/core/search/options.h``.
PARTS = {"starts by thresholds": 1, "groups of like values": 2, "iterated repair": 4,
         "annealing": 8, "moves of stretches": 16, "moves of checkpoints": 32,
         "moves of like values": 64}
#: How a search ended, by the library's number.
FINISHED, TIME_LIMIT, INTERRUPTED = 0, 1, 2

#: Called with cost and bytes of the best plan so far (None without one).
Poll = Callable[[Optional[float], Optional[int]], None]


@dataclass(frozen=True)
class Decisions:
    """What the search decides: see ``plugins/core/simulator.h``."""

    #: For each gap: 0 keep, 1 drop and keep again once recomputed, 2 drop after every op.
    choices: Tuple[int, ...]
    #: For each gap -1, or the op from which on a value dropped after every op stays once it is
    #: recomputed.
    advance: Tuple[int, ...]
    #: For each variant whether it is in use.
    variants: Tuple[bool, ...]


@dataclass(frozen=True)
class Found:
    """The steps of some decisions, and what they cost."""

    schedule: Schedule
    decisions: Decisions
    cost_s: float
    #: Live bytes at the worst step and those outside the pool, as the simulator counts them.
    peak_bytes: int
    #: Pool under the storage model.
    pool_bytes: int
    #: Workspace and objects.
    outside_pool_bytes: int
    feasible: bool
    #: FINISHED, TIME_LIMIT or INTERRUPTED.
    stop: int = FINISHED


class NativeSearch:
    """One problem in the C++ library.

    Parameters
    ----------
    graph : Graph
    options : Options
        ``storage``, ``keep``, ``recompute``, ``variants``, ``max_clones`` and ``without`` are read.
    """

    def __init__(self, graph: Graph, options: Options):
        self.graph = graph
        self.allowed_variants = allowed_variants(graph, options.variants)
        self._library = _load()
        self._without = sum(bit for name, bit in PARTS.items() if name in options.without)
        integers, times = _flatten(graph, options, self.allowed_variants)
        # Without in-place options the simulator's own peak is exact.
        own = options.storage == "live" and graph.pools == "live"
        self._handle = self._library.memonger_search_create(
            (ctypes.c_int64 * len(integers))(*integers), len(integers),
            (ctypes.c_double * len(times))(*times), len(times),
            -1 if own else STORAGES.index(options.storage))
        if not self._handle:
            raise SolverError("the graph %r contradicts itself; Graph.check() says where"
                              % graph.name)

    def __del__(self) -> None:
        handle, self._handle = getattr(self, "_handle", None), None
        if handle:
            self._library.memonger_search_free(handle)

    # ------------------------------------------------------------------ decisions
    def gaps(self) -> List[Tuple[int, int, int, int, bool]]:
        """What can be decided: (op, number of the gap, begin, end, behind the last use)."""
        count = self._library.memonger_search_gaps(self._handle, None)
        flat = (ctypes.c_int64 * (5 * count))()
        self._library.memonger_search_gaps(self._handle, flat)
        return [(flat[5 * i], flat[5 * i + 1], flat[5 * i + 2], flat[5 * i + 3],
                 bool(flat[5 * i + 4])) for i in range(count)]

    def unplanned(self) -> Decisions:
        """Keep everything."""
        gaps = self.gaps()
        return Decisions(tuple(2 if trailing else 0 for *_, trailing in gaps),
                         (-1,) * len(gaps), (False,) * len(self.allowed_variants))

    def decisions_of(self, schedule: Schedule) -> Decisions:
        """The decisions that come closest to a schedule.

        A value is kept through a gap if whoever ends the gap reads the run that was at hand where
        the gap begins. The run that the end of the gap reads is the one that stays.
        O(size of the schedule) time.
        """
        steps = schedule.steps
        used = graph_in_use(self.graph, schedule)
        runs: List[List[int]] = [[] for _ in used.ops]
        last_read = list(range(len(steps)))
        read_run: Dict[Tuple[int, int], int] = {}
        kept = {tensor for op in used.ops for slot, tensor in enumerate(op.outputs)
                if slot in op.kept_outputs}
        for index, step in enumerate(steps):
            runs[step.op].append(index)
            op = used.ops[step.op]
            read = {source for position, source in enumerate(step.sources)
                    if source >= 0 and position not in op.ignored_inputs
                    and op.inputs[position] not in kept}
            if op.uses_state:
                read.add(runs[op.forward_op][-1])
            for source in sorted(read):
                last_read[source] = index
                read_run[index, steps[source].op] = source
        # What another op of a variant does happens right after the op before it.
        first = [0] * (len(used.ops) + 1)
        for number, own in enumerate(runs):
            first[number] = own[0] if own else first[number - 1]
        first[-1] = len(steps)
        choices: List[int] = []
        advance: List[int] = []
        for maker, _, begin, end, trailing in self.gaps():
            at_hand = bisect_right(runs[maker], first[begin])
            again = bisect_right(runs[maker], first[end]) - at_hand
            run = runs[maker][at_hand - 1] if at_hand else -1
            read_until = last_read[run] if at_hand else -1
            if trailing:
                stays = read_until > first[begin]
            elif (first[end], maker) in read_run:
                stays = read_run[first[end], maker] == run
            else:
                stays = read_until >= first[end]
            if stays:
                choices.append(0)
            else:
                choices.append(1 if again == 1 or not trailing and not again else 2)
            early = -1
            if not stays and not trailing:
                # The op that runs next after the run which the end of the gap reads.
                source = read_run.get((first[end], maker), -1)
                stage = bisect_left(first, source)
                if begin < stage < end and again > 1:
                    early = stage
            advance.append(early)
        return Decisions(tuple(choices), tuple(advance),
                         tuple(i in schedule.variants for i in self.allowed_variants))

    def adopt(self, other: "NativeSearch", decisions: Decisions) -> Decisions:
        """Decisions of a search that may use fewer variants, as decisions here.

        Unlike :meth:`decisions_of` it loses nothing. A gap there may be several here, where an op
        in between reads the value as a variant only: the first part decides as the whole did, and
        what was made again in it stays. O(gaps log gaps) time.
        """
        there: Dict[int, List[Tuple[int, int, int]]] = {}
        for number, (op, _, begin, end, _) in enumerate(other.gaps()):
            there.setdefault(op, []).append((begin, end, number))
        choices: List[int] = []
        advance: List[int] = []
        seen = set()
        for op, _, begin, end, trailing in self.gaps():
            spans = there.get(op, [])
            span = bisect_right(spans, (begin, len(self.graph.ops) + 1, 0)) - 1
            if span < 0 or spans[span][1] < end:
                choices.append(2 if trailing else 0)
                advance.append(-1)
                continue
            number = spans[span][2]
            first = number not in seen
            seen.add(number)
            choice = decisions.choices[number]
            choices.append(choice if first or choice != 1 else 0)
            advance.append(decisions.advance[number])
        used = {index for index, on in zip(other.allowed_variants, decisions.variants) if on}
        return Decisions(tuple(choices), tuple(advance),
                         tuple(index in used for index in self.allowed_variants))

    def evaluate(self, decisions: Decisions) -> Optional[Found]:
        """The schedule of given decisions; None when they need what must not run again."""
        valid = self._library.memonger_search_evaluate(
            self._handle, array(ctypes.c_int8, decisions.choices),
            array(ctypes.c_int32, decisions.advance),
            array(ctypes.c_int8, decisions.variants))
        return self._result(True, FINISHED) if valid else None

    # ------------------------------------------------------------------ search
    def search(self, budget_bytes: int, work: int, time_limit_s: float, seed: int = 1,
               warm: Optional[Decisions] = None, poll: Optional[Poll] = None,
               stop: Optional[ctypes.c_int32] = None, crossover: bool = False,
               heat: float = 0.0, smallest: bool = False) -> Found:
        """The cheapest schedule found whose pool, workspace and objects fit ``budget_bytes``.

        Parameters
        ----------
        budget_bytes : int
        work : int
            Steps to simulate; the result depends on it, not on the clock.
        time_limit_s : float
            Guard on the clock.
        seed : int
        warm : Decisions, optional
            Where to start.
        poll : callable, optional
            Called about every millisecond. An exception in it, KeyboardInterrupt included, ends
            the search; it is raised again unless it is KeyboardInterrupt.
        stop : ctypes.c_int32, optional
            Not 0 ends the search. With it there is no poll, and so no waiting for Python's lock:
            for searches in other threads.
        crossover : bool
            Cross a population of plans, in place of annealing one.
        heat : float
            Where annealing starts, in mean costs of one recomputation; 0: as the graph asks for.
        smallest : bool
            Look for the smallest schedule from ``warm`` on, at any cost.

        Returns
        -------
        Found
            Infeasible, with the least overflow, when nothing fits.
        """
        raised: List[BaseException] = []

        def call(cost: float, size: int) -> int:
            try:
                if poll is not None and not raised:
                    poll(None if cost < 0 else cost, None if size < 0 else size)
            except BaseException as error:  # noqa: B036 - ctypes cannot pass it through
                raised.append(error)
            return 1 if raised else 0

        warm = warm or self.unplanned()
        feasible = ctypes.c_int32()
        integers = (budget_bytes, seed, work, crossover, self._without, round(1000 * heat),
                    smallest)
        with interrupts.collected(raised):
            ended = self._library.memonger_search_run(
                self._handle, array(ctypes.c_int64, integers), ctypes.c_double(time_limit_s),
                array(ctypes.c_int8, warm.choices), array(ctypes.c_int32, warm.advance),
                array(ctypes.c_int8, warm.variants),
                _POLL(call) if stop is None else _POLL(),
                None if stop is None else ctypes.byref(stop),
                ctypes.byref(feasible))
        if raised and not isinstance(raised[0], KeyboardInterrupt):
            raise raised[0]
        if ended < 0:
            raise SolverError("the planner ran out of memory")
        return self._result(bool(feasible.value), ended)

    def _result(self, feasible: bool, stop: int) -> Found:
        sizes, cost = (ctypes.c_int64 * 5)(), ctypes.c_double()
        self._library.memonger_search_sizes(self._handle, sizes, ctypes.byref(cost))
        steps, num_sources, peak, pool, outside_pool = sizes
        num_gaps = self._library.memonger_search_gaps(self._handle, None)
        ops, sources = _empty(ctypes.c_int32, steps), _empty(ctypes.c_int32, num_sources)
        begin = _empty(ctypes.c_int32, steps + 1)
        choices, advance = _empty(ctypes.c_int8, num_gaps), _empty(ctypes.c_int32, num_gaps)
        variants = _empty(ctypes.c_int8, len(self.allowed_variants))
        self._library.memonger_search_result(self._handle, ops, begin, sources, choices, advance,
                                             variants)
        used = tuple(index for index, on in zip(self.allowed_variants, variants) if on)
        flat = sources[:num_sources]
        schedule = Schedule(tuple(Step(ops[i], tuple(flat[begin[i]:begin[i + 1]]))
                                  for i in range(steps)), used)
        decisions = Decisions(tuple(choices[:num_gaps]), tuple(advance[:num_gaps]),
                              tuple(bool(v) for v in variants[:len(self.allowed_variants)]))
        return Found(schedule, decisions, cost.value, peak,
                     pool if pool >= 0 else peak - outside_pool, outside_pool, feasible, stop)


def _flatten(graph: Graph, options: Options,
             variants: Sequence[int]) -> Tuple[List[int], List[float]]:
    # The format that Problem::Parse in plugins/core/problem.cc reads.
    integers: List[int] = [graph.pools == "cached_op", options.max_clones,
                           graph.objects_bytes_per_op,
                           len(graph.tensors), len(graph.ops), len(variants)]
    times: List[float] = []
    outputs = {*graph.outputs, *graph.held_for_gradients}
    kept = {op.outputs[position] for op in graph.ops for position in op.kept_outputs}
    # An op's own implementation and those that the variants choose, numbered anew.
    implementations = [[op.implementations[0]] for op in graph.ops]
    choices: List[List[Tuple[int, int]]] = []
    for index in variants:
        choices.append([])
        for changed, other in graph.implementations_of(index):
            choices[-1].append((changed, len(implementations[changed])))
            implementations[changed].append(other)
    everything = list(itertools.chain.from_iterable(implementations))
    # Whichever run of its op made the value: a little more than :func:`build_program` counts.
    own_buffers = {t for other in everything for t in own_buffer_tensors(other)}
    made = {t for other in everything for t in other.outputs}
    for number in range(len(graph.tensors)):
        tensor = graph.tensors[graph.owner(number)]
        item_bytes = DTYPES[tensor.dtype]
        integers += [tensor.size_bytes,
                     number_of_elements(tensor.size_bytes, tensor.shape, item_bytes),
                     dtype_number(tensor.dtype), item_bytes, not tensor.pooled,
                     graph.owner(number) != number, number in outputs, number in kept,
                     number in own_buffers, number in made]
    pins = {**dict.fromkeys(options.keep, 1), **dict.fromkeys(options.recompute, 2)}
    for number, op in enumerate(graph.ops):
        rerun = op.recomputable and not op.is_backward
        state_of = op.forward_op if op.uses_state else -1
        integers += [op.is_backward, rerun, state_of, op.device, pins.get(number, 0),
                     len(implementations[number])]
        for other in implementations[number]:
            _flatten_implementation(other, op.uses_state, integers)
            times.append(other.time_s if other.runs else 0.0)
    for chosen in choices:
        integers.append(len(chosen))
        for pair in chosen:
            integers += pair
    return [int(number) for number in integers], times


def _flatten_implementation(implementation: Implementation, uses_state: bool,
                            integers: List[int]) -> None:
    runs = implementation.runs
    inputs = implementation.inputs if runs else ()
    outputs = implementation.outputs if runs else ()
    inplace = implementation.inplace if runs else ()
    integers += [runs, uses_state and runs, implementation.adds_into_first and runs,
                 implementation.workspace_bytes if runs else 0, len(inputs)]
    ignored = set(implementation.ignored_inputs)
    for position, tensor in enumerate(inputs):
        integers += [tensor, position in ignored]
    integers += [len(outputs), *outputs, len(inplace)]
    for option in inplace:
        integers += [option.input, option.output, option.identity]


def _empty(kind: Any, count: int) -> Any:
    return (kind * max(1, count))()


def _load() -> Any:
    library = core()
    library.memonger_search_create.restype = ctypes.c_void_p
    library.memonger_search_create.argtypes = [
        ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int32]
    library.memonger_search_free.argtypes = [ctypes.c_void_p]
    library.memonger_search_free.restype = None
    library.memonger_search_gaps.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
    library.memonger_search_gaps.restype = ctypes.c_int64
    library.memonger_search_evaluate.argtypes = [ctypes.c_void_p] * 4
    library.memonger_search_run.argtypes = [
        ctypes.c_void_p, ctypes.c_void_p, ctypes.c_double, ctypes.c_void_p, ctypes.c_void_p,
        ctypes.c_void_p, _POLL, ctypes.c_void_p, ctypes.c_void_p]
    library.memonger_search_sizes.argtypes = [ctypes.c_void_p] * 3
    library.memonger_search_sizes.restype = None
    library.memonger_search_result.argtypes = [ctypes.c_void_p] * 7
    library.memonger_search_result.restype = None
    library.memonger_search_tradeoffs.argtypes = [
        ctypes.c_void_p, ctypes.c_int32, ctypes.c_int64, ctypes.c_int64]
    library.memonger_search_tradeoffs_found.argtypes = [ctypes.c_void_p] * 5
    library.memonger_search_tradeoffs_found.restype = None
    return library
