"""What :mod:`memonger.graph.clock` asks of a graph with several streams, and its unplanned times.

Plans choose variants and run ops again; the check looks at whatever they may choose, so that no
plan has a step without a guard.
"""
from __future__ import annotations

from typing import Dict, Iterable, Iterator, List, Sequence, Set

from .clock import COMPUTE, STREAMS, Run, Times, times_of
from .records import Implementation, Op, Tensor, Variant


def check_streams(ops: Sequence[Op], tensors: Sequence[Tensor],
                  variants: Sequence[Variant]) -> None:
    """Look for steps of other streams than compute that plans could leave without a guard.

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
    if any(op.stream != COMPUTE for op in ops):
        _Check(ops, tensors, variants).run()


def unplanned_times(ops: Iterable[Op]) -> Times:
    """When these ops of the unplanned step run, without what others make."""
    step_of: Dict[int, int] = {}
    runs: List[Run] = []
    for op in ops:
        if op.runs:
            own = op.implementations[0]
            runs.append(Run(op.stream, op.time_s, [step_of[t] for t in own.reads if t in step_of]))
            step_of.update(dict.fromkeys(op.outputs, len(runs) - 1))
    return times_of(runs)


class _Check:
    """A graph with several streams, and who may read each tensor."""

    def __init__(self, ops: Sequence[Op], tensors: Sequence[Tensor], variants: Sequence[Variant]):
        self.ops, self.tensors, self.variants = ops, tensors, variants
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

    def run(self) -> None:
        for op in self.ops:
            self._check_order(op)
        for index, op in enumerate(self.ops):
            if op.stream == COMPUTE:
                continue
            for number, other in enumerate(op.implementations):
                if not other.runs:
                    continue
                if other.workspace_bytes:
                    raise ValueError("op %r of stream %r cannot have a workspace: give it an "
                                     "output of as many bytes" % (op.name, op.stream))
                chosen_by = [v for v in self.named_by[index]
                             if (index, number) in self.variants[v].choices]
                for variant in chosen_by if number else [-1]:
                    self._check_run(index, other, variant)

    def _check_order(self, op: Op) -> None:
        """Values alone make a step wait for another stream."""
        needed = [*op.control_deps, *([op.forward_op] if op.uses_state else [])]
        for other in (self.ops[number] for number in needed):
            if other.stream not in (COMPUTE, op.stream):
                raise ValueError("op %r must run behind %r of stream %r: let it read what that "
                                 "makes" % (op.name, other.name, other.stream))

    def _check_run(self, index: int, run: Implementation, variant: int) -> None:
        """One implementation of an op of another stream, as this variant (-1: none) chooses it."""
        op = self.ops[index]
        reads = [t for t in run.reads if self.tensors[t].pooled]
        makes = [t for t in run.outputs if self.tensors[t].pooled]
        if op.recomputable and not op.is_backward:
            readers = {reader for t in run.outputs for reader in self.readers[t]}
            if reads or len(run.outputs) != 1 \
                    or any(self.ops[reader].stream != COMPUTE for reader in readers):
                raise ValueError(
                    "op %r of stream %r may run again: it must read nothing in the pool, and make "
                    "one value that compute reads" % (op.name, op.stream))
        for tensor, how in [*((t, "reads") for t in reads), *((t, "makes") for t in makes)]:
            if not any(self._guards(reader, tensor, index, run, variant)
                       for reader in self.readers[tensor] if reader > index):
                raise ValueError(
                    "op %r of stream %r %s %r, and no later op of compute reads that and what the "
                    "op makes in every plan: add one that waits for it" % (
                        op.name, op.stream, how, self.tensors[tensor].name))

    def _guards(self, reader: int, tensor: int, op: int, run: Implementation,
                variant: int) -> bool:
        """Whether a reader is on compute and waits for the run, whatever else a plan chooses."""
        if self.ops[reader].stream != COMPUTE:
            return False
        # Both must read the tensor from one run of its maker.
        backward = self.ops[op].is_backward or self.ops[reader].is_backward
        if backward and any(self.ops[maker].recomputable and not self.ops[maker].is_backward
                            for maker in self.makers[tensor]):
            return False
        return all(other.runs and tensor in other.reads
                   and not set(run.outputs).isdisjoint(other.reads)
                   for other in self._beside(reader, op, variant))

    def _beside(self, reader: int, op: int, variant: int) -> Iterator[Implementation]:
        """How a reader may run where a variant (-1: none) chooses how the op runs."""
        if variant >= 0 and variant in self.named_by[reader]:
            taken = {variant}
        else:
            changed = {op} if variant < 0 else {other for other, _ in
                                                self.variants[variant].choices}
            taken = {number for number in self.named_by[reader] if changed.isdisjoint(
                other for other, _ in self.variants[number].choices)}
            yield self.ops[reader].implementations[0]
        for number in sorted(taken):
            yield from (self.ops[reader].implementations[chosen]
                        for other, chosen in self.variants[number].choices if other == reader)
