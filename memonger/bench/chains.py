"""A rival that PyPI has, on our graphs: ``memonger bench chains [NETWORK ...]``.

``checkpoint-schedules`` (pip install checkpoint-schedules) plans adjoint chains by Revolve
(Griewank and Walther 2000), optimal in the number of steps run again for chains of equal steps
and a given number of snapshots. A network becomes a chain by cutting its forward pass wherever a
single value crosses; the schedule comes back as one of ours and is judged by the same memory
model (peak of live bytes) and the same op times as our plan beside it. Without the package the
command says how to get it; nothing else needs it.
"""
from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any, Dict, Iterable, Iterator, List, Optional, Sequence, Tuple

from ..graph.schedule import Schedule, Step, expand
from ..graph.types import Graph
from ..memory.storage import plan_storage
from ..report.formatting import format_extra, format_percent, table
from ..util.errors import InputError, MemongerError
from ..util.units import format_bytes

#: Chains of the literature, and networks with branches between the cuts.
NETWORKS = ("vgg16", "resnet50", "mobilenet_v2", "densenet121")
#: Values that are kept at once.
SNAPSHOTS = (2, 4, 8)


@dataclass(frozen=True)
class ChainRow:
    """One network with one number of snapshots; bytes are peaks of live bytes."""

    network: str
    segments: int
    snapshots: int
    unplanned_bytes: int
    #: Theirs, and the budget of ours.
    chain_bytes: int
    chain_overhead: float
    #: None: no plan found.
    overhead: Optional[float]
    bound: float


def cuts(graph: Graph) -> List[int]:
    """Places in the forward pass that a single value crosses, which backward reads too.

    Others would only be kept for the sake of the cut. Place p is before op p; the first is 0, the
    last the number of forward ops.
    """
    last_reader = {t: max([r for r in graph.consumers[t] if r < graph.num_forward], default=-1)
                   for op in graph.ops[:graph.num_forward] for t in op.outputs}
    alive: Dict[int, int] = {}
    found = [0]
    for place in range(1, graph.num_forward):
        alive.update((t, last_reader[t]) for t in graph.ops[place - 1].outputs)
        alive = {t: reader for t, reader in alive.items() if reader >= place}
        if len(alive) == 1 and max(graph.consumers[next(iter(alive))]) >= graph.num_forward:
            found.append(place)
    return found + [graph.num_forward]


class _Replay:
    """Turns the actions of a chain schedule into steps of the graph."""

    def __init__(self, graph: Graph, places: Sequence[int]) -> None:
        self.graph, self.places = graph, places
        self.steps: List[Step] = []
        #: The step that made each tensor as it is now, and as it was first.
        self.made: Dict[int, int] = {}
        self.first: Dict[int, int] = {}
        self.snapshots: Dict[int, Dict[int, int]] = {}
        self.next_backward = graph.num_forward

    def forward(self, begin: int, end: int, keep: bool) -> None:
        """Run segments; ``keep`` leaves what was alive at their start for later."""
        if keep:
            self.snapshots[begin] = dict(self.made)
        for index in range(self.places[begin], self.places[end]):
            op = self.graph.ops[index]
            again = bool(op.outputs) and op.outputs[0] in self.first
            if not again or op.recomputable:
                self._run(index, again)

    def restore(self, begin: int) -> None:
        """Go on from a snapshot."""
        self.made = dict(self.snapshots[begin])

    def backward(self, begin: int) -> None:
        """Run the gradients of all segments from ``begin`` on that have not run."""
        while self.next_backward < len(self.graph.ops):
            forward_op = self.graph.ops[self.next_backward].forward_op
            if 0 <= forward_op < self.places[begin]:
                break
            self._run(self.next_backward, False)
            self.next_backward += 1

    def _run(self, index: int, again: bool) -> None:
        op = self.graph.ops[index]
        sources = tuple(self.made.get(t, self.first.get(t, -1)) for t in op.inputs)
        self.steps.append(Step(index, sources))
        for position, tensor in enumerate(op.outputs):
            if not again:
                self.first[tensor] = len(self.steps) - 1
            if not again or position not in op.kept_outputs:
                self.made[tensor] = len(self.steps) - 1

    def schedule(self) -> Schedule:
        """The steps without the clones that nobody reads."""
        needed = [False] * len(self.steps)
        seen = set()
        for number, step in enumerate(self.steps):
            needed[number] = step.op not in seen
            seen.add(step.op)
        for number in range(len(self.steps) - 1, -1, -1):
            if needed[number]:
                for source in self.steps[number].sources:
                    if source >= 0:
                        needed[source] = True
        place: Dict[int, int] = {-1: -1}
        kept: List[Step] = []
        for number, step in enumerate(self.steps):
            if needed[number]:
                place[number] = len(kept)
                kept.append(Step(step.op, tuple(place[s] for s in step.sources)))
        return Schedule(tuple(kept))


def revolve_schedule(graph: Graph, snapshots: int) -> Tuple[Schedule, int]:
    """Revolve's schedule for a graph, and into how many segments it was cut.

    Raises
    ------
    InputError
        If checkpoint-schedules is not installed, or the graph has no cut.
    """
    try:
        from checkpoint_schedules import Revolve
    except ImportError as error:
        raise InputError("this comparison needs a planner that is not installed: "
                         "pip install checkpoint-schedules") from error
    places = cuts(graph)
    segments = len(places) - 1
    if segments < 3:
        raise InputError("no value of the network crosses alone: it is no chain")
    return replayed(graph, places, _until_done(Revolve(segments, min(snapshots, segments - 1)))), \
        segments


def _until_done(schedule: Iterable[Any]) -> Iterator[Any]:
    for action in schedule:
        if type(action).__name__ == "EndReverse":
            return
        yield action


def replayed(graph: Graph, places: Sequence[int], actions: Iterable[Any]) -> Schedule:
    """Our form of a chain's schedule; actions are those of checkpoint-schedules."""
    replay = _Replay(graph, places)
    for action in actions:
        kind = type(action).__name__
        if kind == "Forward":
            replay.forward(action.n0, min(action.n1, len(places) - 1), action.write_ics)
        elif kind in ("Copy", "Move"):
            replay.restore(action.n)
        elif kind == "Reverse":
            replay.backward(action.n0)
    return replay.schedule()


def compare(network: str, batch: int = 0, snapshots: Sequence[int] = SNAPSHOTS,
            time_limit_s: float = 10.0) -> List[ChainRow]:
    """Revolve on a network, and our plans in the memory that it takes."""
    from ..solve import solve
    from ..solve.options import Options
    from ..zoo import nets
    from .planning import stock_estimate
    graph = stock_estimate(nets.build(network, batch or None), "reference").graph
    unplanned_bytes = plan_storage(graph, expand(graph, {}), "live").pool_bytes
    rows = []
    for count in snapshots:
        schedule, segments = revolve_schedule(graph, count)
        chain_bytes = plan_storage(graph, schedule, "live").pool_bytes
        overhead: Optional[float] = None
        bound = 0.0
        try:
            ours = solve(graph, chain_bytes, "auto",
                         Options(storage="live", time_limit_s=time_limit_s))
            overhead, bound = ours.overhead, ours.bound
        except MemongerError:
            pass
        rows.append(ChainRow(network, segments, count, unplanned_bytes, chain_bytes,
                             schedule.time_s(graph) / graph.time_s - 1.0, overhead, bound))
    return rows


def main(networks: Sequence[str], as_json: bool = False) -> int:
    """Print the table; 1 when Revolve is better anywhere."""
    rows = [row for network in networks or NETWORKS for row in compare(network)]
    print(json.dumps([asdict(row) for row in rows], indent=1) if as_json else render(rows))
    return 0 if all(row.overhead is not None and row.overhead <= row.chain_overhead
                    for row in rows) else 1


def render(rows: Sequence[ChainRow]) -> str:
    """The table as text."""
    lines = [("network", "segments", "snapshots", "unplanned", "Revolve", "cut", "overhead",
              "ours in the same memory", "bound")]
    for row in rows:
        lines.append((
            row.network, str(row.segments), str(row.snapshots), format_bytes(row.unplanned_bytes),
            format_bytes(row.chain_bytes),
            format_percent(1 - row.chain_bytes / row.unplanned_bytes),
            format_extra(row.chain_overhead),
            "none found" if row.overhead is None else format_extra(row.overhead),
            format_extra(row.bound)))
    return table(lines, "<>>>>>>>>")
