"""What :mod:`memonger.graph.clock` asks of a graph with several streams, and its unplanned times.

Plans choose variants and run ops again; the check looks at whatever they may choose, so that no
plan has a step without a guard.
"""
from __future__ import annotations

from typing import Dict, Iterable, Iterator, List, NamedTuple, Sequence, Set

from .clock import COMPUTE, STREAMS, Run, Times, times_of
from .records import Implementation, Op, Tensor, Variant


class OtherRun(NamedTuple):
    """A way in which a plan may run an op of a stream other than compute."""

    op: int
    how: Implementation
    #: The variant that chooses it; -1: none.
    variant: int


def check_streams(ops: Sequence[Op], tensors: Sequence[Tensor], variants: Sequence[Variant],
                  outputs: Sequence[int]) -> None:
    """Check that no plan leaves a step of a stream other than compute without a guard.

    O(ops + the steps of other streams x readers of what they touch) time.

    Raises
    ------
    ValueError
        With what to change in the graph.
    """
    for op in ops:
        if op.stream not in STREAMS:
            raise ValueError("op %r runs on the unknown stream %r; one of %s"
                             % (op.name, op.stream, ", ".join(STREAMS)))
    if all(op.stream == COMPUTE for op in ops):
        return
    _check_order(ops)
    waits = Waits(ops, tensors, variants)
    for run in waits.other_runs():
        _check_run(waits, tensors, outputs, run)


def unplanned_times(ops: Iterable[Op]) -> Times:
    """When these ops of the unplanned step run, if the values of other ops are there."""
    step_of: Dict[int, int] = {}
    runs: List[Run] = []
    for op in ops:
        if op.runs:
            own = op.implementations[0]
            runs.append(Run(op.stream, op.time_s, [step_of[t] for t in own.reads if t in step_of]))
            step_of.update(dict.fromkeys(op.outputs, len(runs) - 1))
    return times_of(runs)


class Waits:
    """Which ops wait for those of other streams, whatever a plan chooses.

    Parameters
    ----------
    ops, tensors, variants : sequences
        Of a graph with several streams.
    """

    def __init__(self, ops: Sequence[Op], tensors: Sequence[Tensor], variants: Sequence[Variant]):
        self.ops, self.variants = ops, variants
        #: By tensor, the ops that read it and that make it in some implementation.
        self.readers: List[List[int]] = [[] for _ in tensors]
        self.makers: List[List[int]] = [[] for _ in tensors]
        for index, op in enumerate(ops):
            for tensor in {t for other in op.implementations for t in other.reads}:
                self.readers[tensor].append(index)
            for tensor in {t for other in op.implementations for t in other.outputs}:
                self.makers[tensor].append(index)
        #: By op, the variants that name it.
        self.named_by: List[Set[int]] = [set() for _ in ops]
        for number, variant in enumerate(variants):
            for index, _ in variant.choices:
                self.named_by[index].add(number)

    def other_runs(self) -> Iterator[OtherRun]:
        """All ways in which ops of streams other than compute may run."""
        for index, op in enumerate(self.ops):
            if op.stream == COMPUTE:
                continue
            if op.implementations[0].runs:
                yield OtherRun(index, op.implementations[0], -1)
            for variant in sorted(self.named_by[index]):
                for number in (n for other, n in self.variants[variant].choices if other == index):
                    if op.implementations[number].runs:
                        yield OtherRun(index, op.implementations[number], variant)

    def guards(self, run: OtherRun, tensor: int) -> Iterator[int]:
        """Ops of compute that guard a tensor of a run in every plan, in order.

        They read it from the same run of its maker as the op of the other stream, and wait for it.
        """
        for reader in self.readers[tensor]:
            if reader > run.op and self.ops[reader].stream == COMPUTE \
                    and self._same_run(tensor, run.op, reader) \
                    and all(other.runs and tensor in other.reads
                            and not set(run.how.outputs).isdisjoint(other.reads)
                            for other in self._beside(reader, run)):
                yield reader

    def first_wait(self, run: OtherRun) -> int:
        """The first op of compute that waits for a run in every plan, else the number of ops."""
        return min((next(self.guards(run, tensor), len(self.ops)) for tensor in run.how.outputs),
                   default=len(self.ops))

    def _same_run(self, tensor: int, op: int, reader: int) -> bool:
        """Whether two ops read a tensor from the same run of its maker, as in forward all do."""
        backward = self.ops[op].is_backward or self.ops[reader].is_backward
        return not backward or not any(
            self.ops[maker].recomputable and not self.ops[maker].is_backward
            for maker in self.makers[tensor])

    def _beside(self, reader: int, run: OtherRun) -> Iterator[Implementation]:
        """All ways in which a reader may run in plans that have this run."""
        if run.variant >= 0 and run.variant in self.named_by[reader]:
            taken = {run.variant}
        else:
            changed = {run.op} if run.variant < 0 else {
                other for other, _ in self.variants[run.variant].choices}
            taken = {number for number in self.named_by[reader] if changed.isdisjoint(
                other for other, _ in self.variants[number].choices)}
            yield self.ops[reader].implementations[0]
        for number in sorted(taken):
            yield from (self.ops[reader].implementations[chosen]
                        for other, chosen in self.variants[number].choices if other == reader)


def _check_order(ops: Sequence[Op]) -> None:
    """Refuse what must wait for another stream without reading a value of it."""
    for op in ops:
        needed = [*op.control_deps, *([op.forward_op] if op.uses_state else [])]
        for other in (ops[number] for number in needed):
            if other.stream not in (COMPUTE, op.stream):
                raise ValueError("op %r must run behind %r of stream %r: let it read what that "
                                 "makes" % (op.name, other.name, other.stream))


def _check_run(waits: Waits, tensors: Sequence[Tensor], outputs: Sequence[int],
               run: OtherRun) -> None:
    op = waits.ops[run.op]
    if run.how.workspace_bytes:
        raise ValueError("op %r of stream %r cannot have a workspace: give it an output of as many "
                         "bytes" % (op.name, op.stream))
    reads = [t for t in run.how.reads if tensors[t].pooled]
    makes = [t for t in run.how.outputs if tensors[t].pooled]
    if op.recomputable and not op.is_backward:
        readers = {reader for t in run.how.outputs for reader in waits.readers[t]}
        if reads or len(run.how.outputs) != 1 \
                or any(waits.ops[reader].stream != COMPUTE for reader in readers):
            raise ValueError("op %r of stream %r may run again: it must read nothing in the pool, "
                             "and make one value that compute reads" % (op.name, op.stream))
    for tensor, how in [*((t, "reads") for t in reads), *((t, "makes") for t in makes)]:
        lasts = tensor in outputs and not any(
            waits.ops[maker].recomputable and not waits.ops[maker].is_backward
            for maker in waits.makers[tensor])
        if not lasts and next(waits.guards(run, tensor), -1) < 0:
            raise ValueError(
                "op %r of stream %r %s %r, and no later op of compute reads that and what the op "
                "makes in every plan: add one that waits for it"
                % (op.name, op.stream, how, tensors[tensor].name))
