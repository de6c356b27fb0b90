"""The training graph of one step, free of any framework.

A graph lists every op of one training step, forward and backward, in the order in which the
executor runs them without a plan, and every tensor they read or write. It is the only
representation that planners, simulators and reports work on. The frontends make it,
:mod:`memonger.graph.imported` reads it from JSON or text.

Ids are indices into the tuples. Order is execution order: ``ops[i]`` runs before ``ops[i + 1]``.
"""
from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any, Dict, FrozenSet, Hashable, List, Mapping, Sequence, Tuple

from ..util.type_checks import check_types
from ..util.units import format_bytes, format_plain
from .checks import MAX_SIZE_BYTES, MAX_TIME_S, check_op, check_tensor, check_variant
from .clock import COMPUTE
from .older_files import SCHEMA, upgraded
from .phases import Phase, phases_of
from .records import DTYPES, Implementation, Inplace, Op, Tensor, Variant
from .streams import check_streams, unplanned_times

__all__ = ["DTYPES", "MAX_SIZE_BYTES", "MAX_TIME_S", "Graph", "Implementation", "Inplace", "Op",
           "Tensor", "Variant"]


@dataclass(frozen=True, repr=False)
class Graph:
    """One training step: tensors with their bytes and ops with their times, in execution order.

    A frozen record without a framework; memonger makes one from a symbol (``plan.graph``), solvers
    and reports read it. Ids of tensors and ops are indices into ``tensors`` and ``ops``.
    """

    tensors: Tuple[Tensor, ...]
    ops: Tuple[Op, ...]
    #: Tensors that must exist when the step is over (network outputs, gradients).
    outputs: Tuple[int, ...]
    variants: Tuple[Variant, ...] = ()
    name: str = ""
    #: Who hands out memory. "allocator": each value has its own while it is alive, as with
    #: PyTorch's allocator; what counts is the peak of live bytes. "units": the same in units of
    #: other planners. MXNet's values share buffers: "executor" has one pool for the step,
    #: "cached_op" one for forward and one for backward.
    pools: str = "allocator"
    #: Forward tensors that a CachedOp keeps to the end of forward for gradients that it could
    #: take although the user did not ask for them (of the data, say), besides what ``ops`` read.
    held_for_gradients: Tuple[int, ...] = ()
    #: What each op that runs takes beside its arrays: the executor's objects on the host.
    objects_bytes_per_op: int = 0

    def __repr__(self) -> str:
        return "<Graph%s: %d ops, %d tensors, %d variants>" % (
            " " + self.name if self.name else "", len(self.ops), len(self.tensors),
            len(self.variants))

    # ------------------------------------------------------------------ derived facts
    @cached_property
    def phases(self) -> Tuple[Phase, ...]:
        """Forward and backward passes, in the order of their execution."""
        return phases_of(self.ops)

    @property
    def first_backward(self) -> int:
        """The first backward op; the number of ops where there is none."""
        return next((p.first_op for p in self.phases if p.is_backward), len(self.ops))

    @cached_property
    def num_forward(self) -> int:
        """Number of forward ops, in all phases, without those that variants alone run."""
        return sum(not op.is_backward and op.runs for op in self.ops)

    @cached_property
    def consumers(self) -> Tuple[Tuple[int, ...], ...]:
        """For each tensor the ops that read it, in execution order, each once."""
        readers: List[List[int]] = [[] for _ in self.tensors]
        for index, op in enumerate(self.ops):
            ignored = set(op.ignored_inputs)
            for tensor in {t for i, t in enumerate(op.inputs) if i not in ignored}:
                readers[tensor].append(index)
        return tuple(map(tuple, readers))

    @cached_property
    def handed_on(self) -> Mapping[int, int]:
        """The op that hands a tensor's value on (:attr:`Op.hands_on`), by that tensor."""
        return {op.hands_on: i for i, op in enumerate(self.ops) if op.hands_on >= 0}

    def read_as(self, tensor: int, op: int) -> int:
        """What an input is of what an op made: the tensor itself, or what hands its value on.

        Parameters
        ----------
        tensor, op : int

        Returns
        -------
        int
        """
        made_by = self.ops[op]
        return made_by.outputs[0] if made_by.hands_on == tensor else tensor

    @property
    def shares_buffers(self) -> bool:
        """Whether values share buffers of a pool; else each has its own memory while alive."""
        return self.pools in ("executor", "cached_op")

    @property
    def own_units(self) -> bool:
        """Whether sizes and times are in units of the graph's file, not in bytes and seconds."""
        return self.pools == "units"

    def format_size(self, size_bytes: float) -> str:
        """A size of this graph for people.

        Parameters
        ----------
        size_bytes : float
            Bytes, or units of the graph's own.

        Returns
        -------
        str
            ``"412 MiB"``, or ``"12,345"`` where the graph has units of its own.
        """
        return format_plain(size_bytes) if self.own_units else format_bytes(size_bytes)

    @cached_property
    def derived(self) -> Dict[Hashable, Any]:
        """What each :class:`memonger.graph.cache.Cache` keeps of this graph."""
        return {}

    @cached_property
    def output_set(self) -> FrozenSet[int]:
        """``outputs``, for questions about single tensors: there may be thousands."""
        return frozenset(self.outputs)

    @cached_property
    def host_tensors(self) -> FrozenSet[int]:
        """Tensors in memory of the host."""
        return frozenset(i for i, t in enumerate(self.tensors) if t.space == "host")

    @cached_property
    def op_index(self) -> Mapping[str, int]:
        """Forward op id by name."""
        return {op.name: i for i, op in enumerate(self.ops) if not op.is_backward}

    @cached_property
    def has_streams(self) -> bool:
        """Whether some op runs beside those of compute; else times are sums."""
        return any(op.stream != COMPUTE for op in self.ops)

    @cached_property
    def forward_time_s(self) -> float:
        """Time of all forward ops of the unplanned step, seconds."""
        if self.has_streams:
            return unplanned_times(op for op in self.ops if not op.is_backward).total_s
        return sum(op.time_s for op in self.ops if not op.is_backward)

    @cached_property
    def time_s(self) -> float:
        """Time of the whole unplanned step, seconds."""
        if self.has_streams:
            return unplanned_times(self.ops).total_s
        return sum(op.time_s for op in self.ops)

    def owner(self, tensor: int) -> int:
        """The tensor whose memory a tensor lies in: itself, unless it is a view.

        Parameters
        ----------
        tensor : int

        Returns
        -------
        int
        """
        owner = self.tensors[tensor].storage_of
        return owner if owner >= 0 else tensor

    def implementations_of(self, variant: int) -> Tuple[Tuple[int, Implementation], ...]:
        """Pairs of op and implementation that a variant chooses.

        Parameters
        ----------
        variant : int

        Returns
        -------
        tuple of (int, Implementation)
        """
        return tuple((op, self.ops[op].implementations[number])
                     for op, number in self.variants[variant].choices)

    def with_times(self, times_s: Sequence[float],
                   workspaces_bytes: Sequence[int] = ()) -> "Graph":
        """The same graph with other op times and workspaces.

        Parameters
        ----------
        times_s : sequence of float
            Seconds, one for each op.
        workspaces_bytes : sequence of int
            Bytes, one for each op; by default as they are.

        Returns
        -------
        Graph
        """
        spaces = workspaces_bytes or [op.workspace_bytes for op in self.ops]
        ops = tuple(op.changed(time_s=float(t), workspace_bytes=int(w))
                    for op, t, w in zip(self.ops, times_s, spaces))
        return replace(self, ops=ops)

    def check(self) -> None:
        """Check that the graph does not contradict itself.

        Raises
        ------
        ValueError, TypeError
            When an id is out of range, an op reads what is made later, a size is negative, ...
        """
        parts = [part for op in self.ops for part in op.implementations]
        for records in ([self], self.tensors, self.ops, self.variants, parts):
            check_types(records)
        if not all(op.implementations for op in self.ops):
            raise ValueError("an op has no implementation")
        check_types(option for part in parts for option in part.inplace)
        every_op, every_tensor = range(len(self.ops)), range(len(self.tensors))
        if self.pools not in ("allocator", "units", "executor", "cached_op"):
            raise ValueError("%r pools are not known" % self.pools)
        if self.pools == "cached_op" and len(self.phases) > 2:
            raise ValueError("a CachedOp has one forward and one backward pass, not %s; plan the "
                             "networks one by one" % ", ".join(p.name for p in self.phases))
        if not 0 <= self.objects_bytes_per_op < MAX_SIZE_BYTES:
            raise ValueError("an op cannot take %d bytes of objects" % self.objects_bytes_per_op)
        if not all(t in every_tensor for t in self.outputs + self.held_for_gradients):
            raise ValueError("an output is a tensor that does not exist")
        made = {tensor for op in self.ops for tensor in op.outputs}
        for index in every_op:
            check_op(self.ops, self.tensors, index, made, self.host_tensors)
        if len(self.handed_on) != sum(op.hands_on != -1 for op in self.ops):
            raise ValueError("two ops hand on the value of the same tensor")
        for variant in self.variants:
            check_variant(self.ops, variant)
        for number in every_tensor:
            check_tensor(self.ops, self.tensors, number)
        if sum(record.size_bytes for record in self.tensors) >= MAX_SIZE_BYTES:
            raise ValueError("all tensors together cannot have 2^60 bytes and more")
        check_streams(self.ops, self.tensors, self.variants, self.outputs)

    # ------------------------------------------------------------------ files
    @cached_property
    def fingerprint(self) -> str:
        """Hash of structure, sizes and names; times and offered variants do not enter it."""
        number_of = {i: n for n, i in enumerate(
            i for i, o in enumerate(self.ops) if o.runs)}
        ops = [(o.name, o.kind, o.inputs, o.outputs, o.is_backward,
                tuple(number_of[dep] for dep in o.control_deps))
               for o in self.ops if o.runs]
        touched = {t for o in self.ops for t in o.inputs + o.outputs}
        tensors = [(t.name, t.size_bytes, number_of.get(t.producer, t.producer),
                    t.pooled if t.space != "host" else t.space)
                   for i, t in enumerate(self.tensors) if i in touched]
        pools = "cached_op" if self.pools == "cached_op" else "executor"  # as in older files
        parts = [ops, tensors, self.outputs, pools]
        parts += [self.held_for_gradients] * bool(self.held_for_gradients)
        parts += [[o.stream for o in self.ops if o.runs]] * self.has_streams
        text = json.dumps(parts)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def to_dict(self) -> Dict[str, Any]:
        """Plain lists and dictionaries, fit for JSON; defaults are left out.

        Returns
        -------
        dict
        """
        def lean(item: Any) -> Dict[str, Any]:
            defaults = {k: f.default for k, f in type(item).__dataclass_fields__.items()}
            return {k: v for k, v in asdict(item).items() if v != defaults[k]}
        held = {"held_for_gradients": list(self.held_for_gradients)}
        objects = {"objects_bytes_per_op": self.objects_bytes_per_op}
        return {"schema": SCHEMA, "name": self.name, "outputs": list(self.outputs),
                "pools": self.pools,
                **(held if self.held_for_gradients else {}),
                **(objects if self.objects_bytes_per_op else {}),
                "tensors": [lean(t) for t in self.tensors], "ops": [lean(o) for o in self.ops],
                "variants": [lean(v) for v in self.variants]}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "Graph":
        """Inverse of :meth:`to_dict`.

        Parameters
        ----------
        data : mapping

        Returns
        -------
        Graph
        """
        def tuples(item: Mapping[str, Any]) -> Dict[str, Any]:
            return {k: tuple(v) if isinstance(v, list) else v for k, v in item.items()}

        def implementation(item: Mapping[str, Any]) -> Implementation:
            inplace = tuple(Inplace(**option) for option in item.get("inplace", ()))
            return Implementation(**{**tuples(item), "inplace": inplace})

        def op(item: Mapping[str, Any]) -> Op:
            return Op(**{**tuples(item),
                         "implementations": tuple(map(implementation, item["implementations"]))})

        def variant(item: Mapping[str, Any]) -> Variant:
            return Variant(**{**item, "choices": tuple(map(tuple, item["choices"]))})

        data = upgraded(data)
        return cls(
            name=data.get("name", ""), outputs=tuple(data["outputs"]),
            pools=data.get("pools", "allocator"),
            held_for_gradients=tuple(data.get("held_for_gradients", ())),
            objects_bytes_per_op=data.get("objects_bytes_per_op", 0),
            tensors=tuple(Tensor(**tuples(t)) for t in data["tensors"]),
            ops=tuple(map(op, data["ops"])),
            variants=tuple(map(variant, data.get("variants", ()))))
