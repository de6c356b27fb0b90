"""A graph reduced to lifetime groups, repeats, and the bytes that no decision changes.

The relaxation (:mod:`memonger.solve.mip.formulation`) and the exact program are written over
*lifetime groups* and *repeats*:

* a **lifetime group** is a tensor whose lifetime is a decision, with all tensors that only rename
  it (identity in-place options), because they can share memory for their whole life;
* a **repeat** is one implementation of an op that may run again;
* everything else is a **profile**: bytes alive at each op whatever is decided (gradients, values
  that may not run again, outputs of the network).

Each step of the reduction only removes constraints or replaces a schedule by one that is no worse
at the constrained ops, so a lower bound for the reduced problem holds for the graph.
"""
from __future__ import annotations

from dataclasses import dataclass
from typing import Dict, List, Optional, Sequence, Set, Tuple

import numpy as np

from ...graph.types import Graph
from .implementations import Implementations, allowed_variants, implementations_in
from .inplace_reuse import InplaceReuse, inplace_reuses, savings
from .memory_sharing import added_at_once, alike, planned


@dataclass(frozen=True)
class _Groups:
    """Groups by the tensor that stands for them, before it is known which are decisions."""

    #: Bytes of the smallest member.
    size_bytes: Dict[int, int]
    #: Of groups with an output of the step: the op from which on they are alive to the end.
    settled: Dict[int, int]
    #: Pairs of op and number of its implementation that read and that make a group.
    readers: Dict[int, List[Tuple[int, int]]]
    makers: Dict[int, List[Tuple[int, int]]]
    #: Nothing makes them again.
    frozen: Set[int]
    #: Several ops make them, or some implementations of one only.
    scattered: Set[int]
    birth: Dict[int, int]
    last_read: Dict[int, int]

    @property
    def by_birth(self) -> List[int]:
        return sorted(self.size_bytes, key=lambda root: (self.birth[root], root))


@dataclass
class Reduced:
    """A graph reduced to what planning decides. Positions are op ids of the graph."""

    graph: Graph
    #: Those of each op that may be chosen, and the variant of each, -1 for the op's own.
    implementations: Implementations
    variant_of: List[List[int]]
    #: Variants that may be chosen (indices into ``graph.variants``).
    variants: Tuple[int, ...]
    #: (tensors,) int64: group of each tensor, -1 external or always available.
    group_of: np.ndarray
    #: (groups,) float64, int64, int64: bytes (of the smallest member), first op that can make it,
    #: last op that can need it; and the group's members.
    size_bytes: np.ndarray
    birth: np.ndarray
    last_need: np.ndarray
    members: List[Tuple[int, ...]]
    #: Per group: positions of its readers in the base order with the number of the reader's
    #: implementation.
    readers: List[List[Tuple[int, int]]]
    #: Per group: pairs of op and number of its implementation that make it.
    makers: List[List[Tuple[int, int]]]
    #: (groups,) bool: nothing makes it again.
    frozen_group: np.ndarray
    #: (groups,) bool: several ops make it, or some implementations of one only. Between ``birth``
    #: and a read there may be a time at which no member exists.
    scattered_group: np.ndarray
    #: (ops,) bool: may run again.
    again: np.ndarray
    #: What no decision changes: (bytes, first op, op behind the last, sign) of each value that is
    #: alive anyway; sign -1 for what in-place options save while an op runs.
    fixed_spans: List[Tuple[int, int, int, int]]
    #: (ops,) float64: the bytes of ``fixed_spans`` alive at each op.
    profile_bytes: np.ndarray
    #: Forward ops of later phases are planned as what reads like backward ops: bounds hold.
    first_backward: int
    #: Ops whose savings in ``fixed_spans`` need a group to go (see
    #: :mod:`memonger.solve.mip.inplace_reuse`).
    inplace_reuses: List[InplaceReuse]
    #: For all values on the host at a time; infinite without a limit.
    host_budget_bytes: float = float("inf")

    @property
    def num_ops(self) -> int:
        return len(self.graph.ops)

    def first_life(self, group: int, op: int) -> int:
        """The op from which on a value that forward op ``op`` reads is alive in any case."""
        if not self.scattered_group[group]:
            return int(self.birth[group])
        return max([maker for maker, _ in self.makers[group] if maker < op], default=op)

    @property
    def fixed_between(self) -> np.ndarray:
        """(ops,) float64: ``profile_bytes`` at any step right before each op."""
        return _alive_bytes([(size, start + 1, stop, sign)
                             for size, start, stop, sign in self.fixed_spans
                             if sign > 0 and start + 1 < stop], self.num_ops)


def reduce_graph(graph: Graph, variants: str = "none", keep: Sequence[int] = (),
                 host_budget_bytes: Optional[int] = None) -> Reduced:
    """Reduce a graph.

    Parameters
    ----------
    graph : Graph
    variants : str
        "none", "exact" or "all", as in ``Options``.
    keep : sequence of int
        Ops that must not run again, besides those with a ``not_recomputable_because``.
    host_budget_bytes : int, optional
        For values on the host; by default there is no limit.

    Returns
    -------
    Reduced
        O(number of edges) time.
    """
    chosen = allowed_variants(graph, variants)
    implementations, variant_of = implementations_in(graph, chosen)
    root_of = alike(graph, implementations)
    pinned = set(keep)
    count = len(graph.ops)
    again = np.array([op.recomputable and not op.is_backward and i not in pinned
                      for i, op in enumerate(graph.ops)], dtype=bool)

    sizes: Dict[int, int] = {}
    weightless = added_at_once(graph, implementations)
    for tensor in range(len(graph.tensors)):
        if planned(graph, tensor):
            root = int(root_of[tensor])
            size = 0 if tensor in weightless else graph.tensors[tensor].size_bytes
            sizes[root] = min(sizes.get(root, size), size)
    lasting = {int(root_of[t]) for t in graph.outputs if int(root_of[t]) in sizes}
    settled = _settled(graph, implementations, root_of, lasting, again)
    groups = _groups(graph, implementations, root_of, again, sizes, settled)
    last_need = _last_needs(groups, again)

    fixed_spans: List[Tuple[int, int, int, int]] = []
    decided: List[int] = []
    #: Groups that no decision changes, by the op up to which they are alive.
    ends: Dict[int, int] = dict.fromkeys(settled, count)
    for root in groups.by_birth:
        modal = any(len(implementations[op]) > 1
                    for op, _ in groups.makers[root] + groups.readers[root])
        if root in settled:
            # What members take before is left out.
            fixed_spans.append((sizes[root], settled[root], count, 1))
        elif not sizes[root]:
            continue
        elif root in groups.frozen and not modal and root not in groups.scattered \
                and last_need[root] <= groups.last_read[root]:
            ends[root] = groups.last_read[root]
            fixed_spans.append((sizes[root], groups.birth[root], ends[root] + 1, 1))
        else:
            decided.append(root)
    saved = [savings(graph, op, of_op, root_of, sizes, ends)
             for op, of_op in enumerate(implementations)]
    for index, saving in enumerate(saved):
        fixed_spans.extend((size, index, index + 1, -1) for size in saving.places)
    index_of = {root: i for i, root in enumerate(decided)}
    group_of = np.array([index_of.get(int(root), -1) for root in root_of], dtype=np.int64)
    members: List[List[int]] = [[] for _ in decided]
    for tensor in np.flatnonzero(group_of >= 0).tolist():
        members[group_of[tensor]].append(tensor)
    return Reduced(
        graph, implementations, variant_of, chosen, group_of,
        np.array([sizes[r] for r in decided], dtype=np.float64),
        np.array([groups.birth[r] for r in decided], dtype=np.int64),
        np.array([last_need[r] for r in decided], dtype=np.int64),
        [tuple(m) for m in members], [groups.readers[r] for r in decided],
        [groups.makers[r] for r in decided],
        np.array([r in groups.frozen for r in decided], dtype=bool),
        np.array([r in groups.scattered for r in decided], dtype=bool), again,
        fixed_spans, _alive_bytes(fixed_spans, count), graph.first_backward,
        inplace_reuses(saved, index_of, last_need),
        float("inf") if host_budget_bytes is None else host_budget_bytes)


def _groups(graph: Graph, implementations: Implementations, root_of: np.ndarray,
            again: np.ndarray, sizes: Dict[int, int], settled: Dict[int, int]) -> _Groups:
    """Who makes and who reads each group."""
    readers: Dict[int, List[Tuple[int, int]]] = {root: [] for root in sizes}
    makers: Dict[int, List[Tuple[int, int]]] = {root: [] for root in sizes}
    remade: Set[int] = set()
    for index, of_op in enumerate(implementations):
        op = graph.ops[index]
        for number, implementation in enumerate(of_op):
            read_roots = {int(root_of[t]) for t in implementation.reads} & sizes.keys()
            for root in sorted(read_roots):
                readers[root].append((index, number))
            for position, tensor in enumerate(implementation.outputs):
                root = int(root_of[tensor])
                if root in sizes and root not in read_roots:
                    if (index, number) not in makers[root]:
                        makers[root].append((index, number))
                    # Variants have no outputs that stay with the first run.
                    if again[index] and (number or position not in op.kept_outputs):
                        remade.add(root)
    scattered = {root for root, pairs in makers.items() if len({op for op, _ in pairs}) > 1
                 or any(len(implementations[op]) > len(pairs) for op, _ in pairs)}
    birth = {root: min((op for op, _ in makers[root]), default=graph.tensors[root].producer)
             for root in sizes}
    last_read = {root: max((op for op, _ in readers[root]), default=birth[root])
                 for root in sizes}
    return _Groups(sizes, settled, readers, makers, sizes.keys() - remade, scattered, birth,
                   last_read)


def _last_needs(groups: _Groups, again: np.ndarray) -> Dict[int, int]:
    """The last op that can need each group: its own readers, or a later repeat of one."""
    last_need: Dict[int, int] = {}
    latest_rerun = np.full(len(again), -1, dtype=np.int64)
    changed = True
    # One pass settles what only one op makes; else a value may be born before what it is made of.
    while changed:
        changed = False
        for root in reversed(groups.by_birth):
            need = max([groups.last_read[root]] + [
                int(latest_rerun[op]) for op, _ in groups.readers[root] if again[op]])
            changed |= last_need.get(root, -1) != need and bool(groups.scattered)
            last_need[root] = need
            if root not in groups.frozen:
                for op, _ in groups.makers[root]:
                    latest_rerun[op] = max(latest_rerun[op], need)
    return last_need


def _alive_bytes(spans: Sequence[Tuple[int, int, int, int]], count: int) -> np.ndarray:
    """(ops,) float64: the bytes of the spans alive at each op."""
    change = np.zeros(count + 1)
    for size, start, stop, sign in spans:
        change[start] += sign * size
        change[stop] -= sign * size
    return np.cumsum(change)[:count]


def _settled(graph: Graph, implementations: Implementations, root_of: np.ndarray,
             lasting: Set[int], again: np.ndarray) -> Dict[int, int]:
    """For each group with an output of the step, the op from which on it is alive to the end.

    An output exists from the last op that may make it. It takes the memory of a member made
    before only if that one was never away in between: when one op begins the group, and either
    nothing repeats that op or the output is made before anything is repeated.
    """
    begins: Dict[int, Set[int]] = {root: set() for root in lasting}
    made: Dict[int, int] = {}
    for index, of_op in enumerate(implementations):
        for implementation in of_op:
            read = {int(root_of[t]) for t in implementation.reads}
            for tensor in implementation.outputs:
                made[tensor] = max(made.get(tensor, index), index)
                if int(root_of[tensor]) in lasting and int(root_of[tensor]) not in read:
                    begins[int(root_of[tensor])].add(index)
    settled: Dict[int, int] = {}
    for tensor in graph.outputs:
        root = int(root_of[tensor])
        if root not in lasting:
            continue
        start = made.get(tensor, graph.tensors[tensor].producer)
        if len(begins[root]) == 1:
            first, = begins[root]
            if len(implementations[first]) == 1 and (
                    not again[first] or not graph.ops[start].is_backward):
                start = first
        settled[root] = min(settled.get(root, start), start)
    return settled
