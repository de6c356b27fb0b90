"""How long each op takes: an analytic model of devices, this CPU among them, or a measured profile.

Both make a :class:`CostModel`, whose ``op_times`` goes into ``graph.with_times``. The roofline
model (Williams, Waterman and Patterson 2009) takes the longer of arithmetic and memory traffic,
each at the share of the device's peak that libraries reach; :mod:`memonger.mx.costs.work` counts
both.
"""
from __future__ import annotations

import json
import statistics
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, Dict, FrozenSet, List, Mapping, Optional, Protocol, Sequence, Tuple

from ...graph.types import Graph, Op
from ...util.devices import DEVICES, Device
from ...util.errors import InputError
from .work import Operator, TensorType, convolution_inside, work

Attributes = Sequence[Mapping[str, str]]


#: From here on a CPU's caches and MXNet's malloc do not help: such tensors have times of their own.
LARGE_BYTES = 1 << 20


@dataclass(frozen=True)
class OpTimes:
    """Seconds of each op of a graph."""

    times_s: Tuple[float, ...]
    #: Ops whose times a profile did not have and the roofline model gave.
    estimated: Tuple[int, ...] = ()
    #: Ops of which nothing like them was measured where times are claimed to be measured.
    guessed: FrozenSet[int] = frozenset()


class CostModel(Protocol):
    """Where op times come from."""

    @property
    def source(self) -> str:
        """``"roofline: <device>"`` or ``"profile: <device>"``; goes into ``Plan.costs``."""

    def op_times(self, graph: Graph, attributes: Attributes = ()) -> OpTimes:
        """Times of all ops; ``attributes`` has one mapping for each op."""


def wanted_outputs(graph: Graph, index: int) -> Tuple[bool, ...]:
    """Which outputs of an op are read or are outputs of the graph; others are not computed."""
    return tuple(bool(graph.consumers[t]) or t in graph.output_set
                 for t in graph.ops[index].outputs)


def is_view(graph: Graph, op: Op) -> bool:
    """True when MXNet runs nothing: the op only renames memory of the pool (Reshape, ...)."""
    for option in op.inplace:
        source, target = graph.tensors[op.inputs[option.input]], graph.tensors[
            op.outputs[option.output]]
        if (option.identity and len(op.outputs) == 1 and source.pooled and target.pooled
                and source.dtype == target.dtype and source.size_bytes == target.size_bytes):
            return True
    return False


def tensor_types(graph: Graph, tensors: Sequence[int]) -> Tuple[TensorType, ...]:
    return tuple(TensorType(graph.tensors[t].shape, graph.tensors[t].dtype) for t in tensors)


def op_class(kind: str, attributes: Mapping[str, str],
             tensors: Sequence[TensorType] = ()) -> Tuple[str, ...]:
    """Classes of ops with the speed of this kind, the closest first."""
    backward = "_backward" * kind.startswith("_backward_")
    names = [kind]
    if "onvolution" in kind and attributes.get("num_group", "1") != "1":
        names = [kind + " in groups"]
    else:
        if "onvolution" in kind and attributes.get("kernel", "").replace(" ", "") == "(1,1)":
            names.insert(0, kind + " 1x1")
        names.append(("matrix" if "onvolution" in kind or "FullyConnected" in kind
                      else "elements") + backward)
    if all(tensor.size_bytes < LARGE_BYTES for tensor in tensors):
        return tuple(names)
    return tuple(name + size for name in names for size in (" large", ""))


@dataclass(frozen=True)
class Roofline:
    """Analytic op times."""

    device: Device
    #: Measured times by the model's, for classes of ops (:func:`op_class`).
    factors: Mapping[str, float] = field(default_factory=dict)
    #: Whose times these are, where not the preset's.
    name: str = ""
    #: Stands in for a device that nobody measured.
    stands_in: bool = False

    @property
    def source(self) -> str:
        return "roofline: %s" % (self.name or self.device.name)

    def time_s(self, kind: str, attributes: Mapping[str, str], inputs: Sequence[TensorType],
               outputs: Sequence[TensorType], wanted: Optional[Sequence[bool]] = None) -> float:
        inside_s, rest_s = self.parts_s(kind, attributes, inputs, outputs, wanted)
        factor = next((self.factors[name] for name in op_class(
            kind, attributes, (*inputs, *outputs)) if name in self.factors), 1.0) \
            if self.factors else 1.0
        return inside_s + factor * rest_s

    def parts_s(self, kind: str, attributes: Mapping[str, str], inputs: Sequence[TensorType],
                outputs: Sequence[TensorType],
                wanted: Optional[Sequence[bool]] = None) -> Tuple[float, float]:
        """Time of a convolution inside of the op, and the rest before its factor.

        On a device with factors a fused operator takes its convolution's time and that of its
        passes over the data, which have another speed. Elsewhere all of it is the rest.
        """
        needed = work(kind, attributes, inputs, outputs, wanted)
        inside_s = 0.0
        inside = convolution_inside(Operator(
            kind, attributes, inputs, outputs,
            wanted or (True,) * len(outputs))) if self.factors else None
        if inside is not None:
            inside_s, needed = self.time_s(*inside), needed.without(work(*inside))
        # Inputs such as labels and masks may have other dtypes: the first output decides.
        dtype = outputs[0].dtype if outputs else "float32"
        moved_bytes = needed.moved_bytes + needed.again_bytes * self.device.second_passes
        return inside_s, self.device.time_s(needed.flops, moved_bytes, dtype, needed.is_matrix,
                                            needed.calls)

    def op_times(self, graph: Graph, attributes: Attributes = ()) -> OpTimes:
        times = []
        guessed = set()
        for index, op in enumerate(graph.ops):
            if is_view(graph, op):
                times.append(0.0)
                continue
            read = [t for i, t in enumerate(op.inputs) if i not in op.ignored_inputs]
            given = (op.kind, attributes_of(graph, index, attributes), tensor_types(graph, read),
                     tensor_types(graph, op.outputs), wanted_outputs(graph, index))
            times.append(self.time_s(*given))
            if self._guesses(Operator(*given)):
                guessed.add(index)
        return OpTimes(tuple(times), guessed=frozenset(guessed))

    def _guesses(self, op: Operator) -> bool:
        """Whether nobody measured ops of this kind; of a preset without factors nobody says so."""
        if self.stands_in or not self.factors:
            return self.stands_in
        return op.kind not in self._kinds and convolution_inside(op) is None

    @cached_property
    def _kinds(self) -> FrozenSet[str]:
        return frozenset(name.partition(" ")[0] for name in self.factors)


def attributes_of(graph: Graph, index: int, attributes: Attributes) -> Mapping[str, str]:
    """Attributes of an op; a gradient without any has those of its forward op."""
    if not attributes:
        return {}
    if not attributes[index] and graph.ops[index].forward_op >= 0:
        return attributes[graph.ops[index].forward_op]
    return attributes[index]


def roofline(device: str = "reference") -> Roofline:
    """The analytic model of a preset.

    Raises InputError if there is no such preset; the message lists them.
    """
    if device not in DEVICES:
        raise InputError("no device preset %r; there are %s" % (device, ", ".join(DEVICES)))
    return Roofline(DEVICES[device], _cpu_factors() if device == "cpu" else {})


@lru_cache(maxsize=None)
def _cpu_factors() -> Mapping[str, float]:
    """Of the preset ``cpu``: the mean of two runs of ``memonger.mx.profile.calibrate`` there."""
    text = Path(__file__).with_name("cpu_factors.json").read_text(encoding="utf-8")
    factors: Mapping[str, float] = json.loads(text)["factors"]
    return factors


# ---------------------------------------------------------------------------------- measured
def signature(kind: str, attributes: Mapping[str, str], inputs: Sequence[TensorType],
              outputs: Sequence[TensorType], wanted: Optional[Sequence[bool]] = None) -> str:
    """The key of an op in a profile: ops with the same key take the same time."""
    own = {k: str(v) for k, v in attributes.items() if not k.startswith("__")}
    return json.dumps([kind, own, [[list(t.shape), t.dtype] for t in inputs],
                       [[list(t.shape), t.dtype] for t in outputs],
                       "".join("01"[bool(w)] for w in wanted or (True,) * len(outputs))],
                      sort_keys=True, separators=(",", ":"))


def op_signature(graph: Graph, index: int, attributes: Attributes) -> str:
    """Signature of an op of a graph; see :func:`signature`."""
    op = graph.ops[index]
    return signature(op.kind, attributes_of(graph, index, attributes),
                     tensor_types(graph, op.inputs), tensor_types(graph, op.outputs),
                     wanted_outputs(graph, index))


@dataclass(frozen=True)
class Profile:
    """Measured op times; what is missing is estimated.

    Estimates are the roofline model's, times the median ratio of measured to analytic times, so
    that both are on one scale.
    """

    #: The device as measured, in words.
    device: str
    #: Seconds by signature.
    times_s: Mapping[str, float]
    #: Model for ops that were not measured.
    fallback: Roofline
    #: Everything else that the profile's file says: versions, threads, date.
    facts: Mapping[str, Any] = field(default_factory=dict)

    @property
    def source(self) -> str:
        return "profile: %s" % self.device

    def op_times(self, graph: Graph, attributes: Attributes = ()) -> OpTimes:
        analytic = self.fallback.op_times(graph, attributes).times_s
        times: List[float] = []
        estimated: List[int] = []
        ratios: List[float] = []
        for index, guess in enumerate(analytic):
            known = self.times_s.get(op_signature(graph, index, attributes))
            if is_view(graph, graph.ops[index]):
                known = 0.0
            if known is None:
                estimated.append(index)
            elif known > 0 and guess > 0:
                ratios.append(known / guess)
            times.append(guess if known is None else known)
        scale = statistics.median(ratios) if ratios else 1.0
        for index in estimated:
            times[index] *= scale
        return OpTimes(tuple(times), tuple(estimated), frozenset(estimated))


def best_known(graph: Graph, attributes: Attributes, profile: Optional[Profile],
               otherwise: Roofline) -> CostModel:
    """The profile if it has measured nine tenths of the graph's expected time, else the model.

    ``profile``: what is stored for the device, if anything.
    ``otherwise``: what to use when there is no profile or it was made for other networks.
    """
    if profile is None:
        return otherwise
    expected = otherwise.op_times(graph, attributes).times_s
    missing = profile.op_times(graph, attributes).estimated
    unknown_s = sum(expected[index] for index in missing)
    return profile if unknown_s <= 0.1 * sum(expected) else otherwise


def distinct_ops(graph: Graph, attributes: Attributes) -> Dict[str, int]:
    """One op for each signature that has to be measured, in execution order."""
    counts: Dict[str, int] = {}
    for index, op in enumerate(graph.ops):
        if not is_view(graph, op):
            counts.setdefault(op_signature(graph, index, attributes), index)
    return counts
