"""What a graph consists of: tensors, ops with their implementations, variants."""
from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Tuple

#: Bytes of one item of each dtype that a tensor can have.
DTYPES = {"float32": 4, "float64": 8, "float16": 2, "bfloat16": 2, "bool": 1,
          "int8": 1, "int16": 2, "int32": 4, "int64": 8,
          "uint8": 1, "uint16": 2, "uint32": 4, "uint64": 8,
          "complex32": 4, "complex64": 8, "complex128": 16,
          "float8_e4m3fn": 1, "float8_e4m3fnuz": 1, "float8_e5m2": 1, "float8_e5m2fnuz": 1,
          "float8_e8m0fnu": 1}


#: What :attr:`Tensor.space` can be.
SPACES = ("device", "outside", "host")


@dataclass(frozen=True)
class Tensor:
    """One value: an output of an op, or something that exists before the step."""

    name: str
    size_bytes: int
    #: Op that makes it; -1 when it exists before the step (parameter, input, aux state).
    producer: int
    #: "activation", "output" (of the network); of memory that the planner does not own
    #: "parameter", "input", "aux", "gradient" or "head_gradient".
    category: str = "activation"
    #: Whose memory it takes. "device": the pool's. "outside": the caller's on the device, as of
    #: parameters, inputs, aux states and the arrays that receive the parameters' gradients; where
    #: an op that makes one runs again, that run's result lies in the pool. "host": the host's, and
    #: no byte of the device.
    space: str = "device"
    shape: Tuple[int, ...] = ()
    dtype: str = "float32"
    #: The tensor whose memory this one lies in, a view of any shape and dtype; -1: its own. A view
    #: has that tensor's ``size_bytes``, and its op renames an input that lies there, too.
    storage_of: int = -1

    @property
    def pooled(self) -> bool:
        """Whether it counts in the pool."""
        return self.space == "device"


@dataclass(frozen=True)
class Inplace:
    """Output ``output`` may take the memory of input ``input`` (positions, not ids)."""

    input: int
    output: int
    #: The op only renames its input (reshape, identity): allowed even while others read it.
    identity: bool = False


@dataclass(frozen=True)
class Implementation:
    """How an op runs: what it reads and makes, and what that takes."""

    inputs: Tuple[int, ...]
    outputs: Tuple[int, ...]
    #: Input positions whose value is never read (only shape or existence matters).
    ignored_inputs: Tuple[int, ...] = ()
    inplace: Tuple[Inplace, ...] = ()
    time_s: float = 0.0
    workspace_bytes: int = 0
    #: False where another op does the work, so that there is no step: nothing else is set then.
    runs: bool = True
    #: Positions of values, outputs behind inputs, that have buffers of their own in any storage.
    own_buffers: Tuple[int, ...] = ()
    #: The op adds its second input to its first: a sum that the maker of the second may take over.
    adds_into_first: bool = False
    #: Output positions that the op leaves unwritten.
    unwritten_outputs: Tuple[int, ...] = ()

    @property
    def reads(self) -> Tuple[int, ...]:
        """Tensors whose values are read, each once, by number."""
        return tuple(sorted({t for position, t in enumerate(self.inputs)
                             if position not in self.ignored_inputs}))


#: Names of the fields of an implementation.
_OF_IMPLEMENTATIONS = frozenset(Implementation.__dataclass_fields__)


@dataclass(frozen=True)
class Op:
    """One operator of the step.

    Its own attributes that an implementation has, too (``inputs``, ``time_s``, ...), are those of
    the first one, which is the framework's.
    """

    name: str
    kind: str
    #: Ways to run the op, the framework's own first; variants choose others.
    implementations: Tuple[Implementation, ...]
    is_backward: bool = False
    #: The forward op whose gradient this op takes part in; -1 when unknown or forward.
    forward_op: int = -1
    #: True when the op continues a state object made by ``forward_op`` (a cell's, a user's).
    uses_state: bool = False
    #: Ops that must run before, besides the producers of the inputs, in MXNet's order.
    control_deps: Tuple[int, ...] = ()
    #: "" when the op may run again with the same result, else the reason why it may not.
    not_recomputable_because: str = ""
    #: Output positions that stay with the first run even if the op runs again (small statistics);
    #: other implementations than the first keep none.
    kept_outputs: Tuple[int, ...] = ()
    device: int = 0
    #: The stream that it runs on: one of :data:`memonger.graph.clock.STREAMS`.
    stream: str = "compute"
    #: The user's hints: ``mirror_stage`` ("" without), ``force_mirroring`` ("", "True", "False").
    mirror_stage: str = ""
    force_mirroring: str = ""
    #: Each run makes a state object that its gradient continues.
    makes_state: bool = False
    #: A copy of the op under stock mirroring is wrong where nobody reads its first output.
    needs_reader: bool = False
    #: The tensor whose value the op's one result holds as well: what runs again behind it may read
    #: the result instead. -1: none.
    hands_on: int = -1

    @classmethod
    def of(cls, name: str, kind: str, inputs: Tuple[int, ...], outputs: Tuple[int, ...],
           is_backward: bool = False, forward_op: int = -1, **fields: Any) -> "Op":
        """An op with one implementation.

        ``fields``: those of the op and of its implementation.
        """
        own = Implementation(inputs, outputs)
        return cls(name, kind, (own,), is_backward, forward_op).changed(**fields)

    def changed(self, **fields: Any) -> "Op":
        """The op with other fields, its own or those of its first implementation."""
        how = {name: fields.pop(name) for name in _OF_IMPLEMENTATIONS & fields.keys()}
        op = replace(self, **fields)
        own, *others = op.implementations
        return replace(op, implementations=(replace(own, **how), *others)) if how else op

    def running_as(self, number: int) -> "Op":
        """The op with this implementation as the only one; only the first keeps outputs."""
        return replace(self, implementations=(self.implementations[number],),
                       kept_outputs=self.kept_outputs if number == 0 else ())

    @property
    def recomputable(self) -> bool:
        return not self.not_recomputable_because

    # ------------------------------------------------------------------ the first implementation
    @property
    def inputs(self) -> Tuple[int, ...]:
        return self.implementations[0].inputs

    @property
    def outputs(self) -> Tuple[int, ...]:
        return self.implementations[0].outputs

    @property
    def ignored_inputs(self) -> Tuple[int, ...]:
        return self.implementations[0].ignored_inputs

    @property
    def inplace(self) -> Tuple[Inplace, ...]:
        return self.implementations[0].inplace

    @property
    def time_s(self) -> float:
        return self.implementations[0].time_s

    @property
    def workspace_bytes(self) -> int:
        return self.implementations[0].workspace_bytes

    @property
    def runs(self) -> bool:
        """False for a place in the order that only variants give work to."""
        return self.implementations[0].runs

    @property
    def own_buffers(self) -> Tuple[int, ...]:
        return self.implementations[0].own_buffers

    @property
    def adds_into_first(self) -> bool:
        return self.implementations[0].adds_into_first

    @property
    def unwritten_outputs(self) -> Tuple[int, ...]:
        return self.implementations[0].unwritten_outputs


@dataclass(frozen=True)
class Variant:
    """Other implementations of one op or of a few neighbours, with their own backward.

    Two variants that name the same op exclude each other. Tensors that only a variant makes
    (masks, indices) are ordinary tensors of the graph that no first implementation touches.
    """

    name: str
    #: The forward op that the variant is named after in ``Plan.decisions``.
    op: int
    #: Pairs of op and number of its implementation, forward and backward ops alike.
    choices: Tuple[Tuple[int, int], ...]
    #: True when results are bit for bit those of the framework's own implementations.
    exact: bool = True
