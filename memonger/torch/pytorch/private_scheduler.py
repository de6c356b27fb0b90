"""Every call into what is not public of Inductor's scheduler: code that holds what its plan says.

Left to itself, Inductor orders kernels by an estimate of its own, makes one kernel of steps that
lie far apart, and on a CPU one function of all loops between two operators of libraries. What these
read and write is then in memory at once.
"""
from __future__ import annotations

import contextlib
import copy
from collections import defaultdict
from dataclasses import dataclass
from typing import (
    Any,
    Callable,
    Dict,
    Iterable,
    Iterator,
    List,
    Mapping,
    Optional,
    Sequence,
    Set,
    Tuple,
)
from weakref import WeakKeyDictionary

import torch.fx as fx

from .private_kernels import is_fusible

try:
    from torch._inductor.custom_graph_pass import CustomSchedulerPass
except ImportError:  # before PyTorch 2.13: Inductor then leaves its caches alone
    CustomSchedulerPass = object

#: Says in a node's meta which step of a schedule it is.
_STEP = "memonger_step"
#: What Inductor's configuration calls the pass that runs when kernels are fused.
_PASS = "_post_fusion_custom_pass"


def mark_step(node: fx.Node, step: int) -> None:
    """Say for :class:`PlannedOrder` which step of a schedule a node is."""
    node.meta[_STEP] = step


@dataclass(frozen=True)
class Held:
    """What a schedule holds."""

    #: At each of its steps.
    live_bytes: Sequence[int]
    #: Of each value the step that makes it, the last that reads it or writes over it, and bytes.
    values: Sequence[Tuple[int, int, int]]
    #: Names the schedule in compile caches.
    key: str


def in_order(held: Held) -> Dict[str, Any]:
    """Inductor's configuration for code that holds what a schedule holds; see :func:`fusing`."""
    return {_PASS: PlannedOrder(held), "reorder_for_peak_memory": False}


@contextlib.contextmanager
def fusing(configuration: Mapping[str, Any]) -> Iterator[None]:
    """In the block Inductor makes one kernel only of what the schedule of a configuration lets it.
    """
    from torch._inductor.virtualized import V
    order = configuration.get(_PASS)
    if order is None:
        yield
        return
    choices = copy.copy(V.choices)
    usual = choices.can_fuse
    choices.can_fuse = lambda scheduler, one, other, *args: \
        usual(scheduler, one, other, *args) and order.may_be_one(one, other)
    with V.set_choices_handler(choices):
        yield


class PlannedOrder(CustomSchedulerPass):
    """Kernels in the order of a schedule's steps; one kernel where that holds no more.

    A pass of Inductor's scheduler, which it runs when kernels are fused.
    """

    def __init__(self, held: Held):
        self.held = held
        self._starts: Dict[int, List[Tuple[int, int, int]]] = defaultdict(list)
        self._ends: Dict[int, List[Tuple[int, int, int]]] = defaultdict(list)
        for value in held.values:
            self._starts[value[0]].append(value)
            self._ends[value[1]].append(value)
        self._steps: Any = WeakKeyDictionary()

    def uuid(self) -> Any:
        return self.held.key

    def __reduce__(self) -> Any:
        return PlannedOrder, (self.held,)  # Inductor's caches make their keys so

    def __deepcopy__(self, memo: Any) -> "PlannedOrder":
        return self  # Inductor copies its configuration

    def __call__(self, nodes: List[Any]) -> List[Any]:
        made_by = {name: node for node in nodes for name in node.get_buffer_names()}
        behind = {node: {made_by[d.name]: None for d in node.unmet_dependencies
                         if made_by.get(d.name, node) is not node} for node in nodes}
        read = {source for sources in behind.values() for source in sources}
        last = {node: max(self._of(node), default=-1) for node in nodes}
        if max(last.values(), default=-1) < 0:  # by no schedule
            return nodes
        for node in nodes:
            if last[node] < 0 and (node not in read or _writes_into_another(node)):
                # As soon as may be.
                last[node] = max((last[source] for source in behind[node]), default=-1)
        ordered: Dict[Any, None] = {}
        # Others come when they are read.
        roots = [node for node in nodes if last[node] >= 0 or node not in read]
        for root in sorted(roots, key=last.__getitem__):
            waiting = [root]
            while waiting:
                needed = [n for n in behind[waiting[-1]] if n not in ordered]
                if needed:
                    waiting.append(min(needed, key=last.__getitem__))
                else:
                    ordered[waiting.pop()] = None
        self._flush(list(ordered))
        return list(ordered)

    def _flush(self, nodes: Sequence[Any]) -> None:
        """End functions of C++ where what they are done with makes the schedule's peak higher."""
        from torch._inductor.virtualized import V
        scheduler, most_bytes = nodes[0].scheduler, max(self.held.live_bytes)
        next_bytes: Dict[Any, int] = {}
        for node, after in zip(nodes, nodes[1:]):
            steps = self._of(after) or self._of(node) or {0}
            next_bytes[node] = max(self.held.live_bytes[min(steps):max(steps) + 1])

        def is_too_much() -> bool:
            buffers = V.graph.name_to_buffer
            free = [name for name in scheduler.buffer_names_to_free - V.graph.removed_buffers
                    if name not in buffers or buffers[name].has_tensor_output()]
            bytes_ = sum(V.graph.sizevars.optimization_hint(V.graph.get_numel(name), fallback=0)
                         * V.graph.get_dtype(name).itemsize for name in free)
            return bool(bytes_ + next_bytes.get(scheduler.current_node, 0) > most_bytes)

        for device in {node.get_device() for node in nodes} - {None}:
            if device.type == "cpu":
                backend = scheduler.get_backend(device)
                backend.ready_to_flush = _either(backend.ready_to_flush, is_too_much)

    def may_be_one(self, one: Any, other: Any) -> bool:
        """Whether one kernel instead of two holds no more than the schedule does meanwhile.

        It holds what it reads and writes, and not what only it reads of what it writes. A value
        that the schedule has in registers is made where it is read, and for no other step.
        """
        mine, others = self._of(one), self._of(other)
        if bool(mine) != bool(others):
            read = {dependency.name for dependency in other.unmet_dependencies}
            return not read.isdisjoint(one.get_buffer_names())
        if not mine and self._read_at(one).isdisjoint(self._read_at(other)):
            return False
        if not self._comes_between(one, other):
            return False
        steps = mine | others
        if len(steps) < 2:
            return True
        first, last = min(steps), max(steps)
        more = [0] * (last - first + 1)

        def add(start: int, end: int, bytes_: int) -> None:
            for step in range(start, end + 1):
                more[step - first] += bytes_

        for step in steps:
            for start, end, bytes_ in self._starts[step]:
                if end in steps:
                    add(start, end, -bytes_)
                else:
                    add(first, step - 1, bytes_)
            for start, _, bytes_ in self._ends[step]:
                if start not in steps:
                    add(step + 1, last, bytes_)
        now = self.held.live_bytes[first:last + 1]
        return max(map(sum, zip(now, more))) <= max(now)

    def _comes_between(self, one: Any, other: Any) -> bool:
        """Whether one kernel can be where all it reads is made, and all that reads it yet to come.

        Otherwise others leave their places for it.
        """
        scheduler, parts = one.scheduler, {*one.get_nodes(), *other.get_nodes()}

        def places(kernels: Iterable[Any]) -> List[int]:
            now = {scheduler.name_to_fused_node[part.get_name()] for part in kernels
                   if part not in parts and part.get_name() in scheduler.name_to_fused_node}
            return [max(steps) for steps in map(self._of, now) if steps]

        made = places(scheduler.name_to_buf[dependency.name].defining_op for part in parts
                      for dependency in part.unmet_dependencies)
        read = places(user.node for part in parts for buffer in part.get_outputs()
                      for user in buffer.users)
        return max(made, default=-1) <= min(read, default=len(self.held.live_bytes))

    def _of(self, node: Any) -> Set[int]:
        """The steps whose values a kernel writes."""
        return {step for step in map(self._step_of, node.get_nodes()) if step is not None}

    def _read_at(self, node: Any) -> Set[int]:
        """The steps that read what a kernel without a step writes, itself or in others like it."""
        found: Set[int] = set()
        parts, seen = list(node.get_nodes()), set(node.get_nodes())
        while parts:
            for user in (user.node for buffer in parts.pop().get_outputs()
                         for user in buffer.users):
                step = self._step_of(user)
                if step is not None:
                    found.add(step)
                elif user not in seen and hasattr(user, "get_outputs"):  # no result of the graph
                    seen.add(user)
                    parts.append(user)
        return found

    def _step_of(self, part: Any) -> Optional[int]:
        if part not in self._steps:
            self._steps[part] = _step_of(part)
        return self._steps[part]


def _writes_into_another(node: Any) -> bool:
    """Whether a kernel changes what others made, as a scatter does."""
    return any(buffer.get_mutations() for buffer in node.get_outputs())


def _step_of(part: Any) -> Optional[int]:
    """The step of a node of Inductor's scheduler that is not fused."""
    made = getattr(part, "node", None)
    if made is None:
        return None
    origin = made.get_origin_node()
    if origin is not None and _STEP in origin.meta:
        return int(origin.meta[_STEP])
    # What a library's operator reads may be written on its behalf.
    return max((int(o.meta[_STEP]) for o in made.get_origins() if _STEP in o.meta
                and (part.is_extern() or is_fusible(o))), default=None)


def _either(one: Callable[[], bool], other: Callable[[], bool]) -> Callable[[], bool]:
    return lambda: one() or other()
