"""What each op of a training step takes on this device: seconds, and bytes while it runs.

Each is run alone, on values of its own beside the parameters and inputs of the step: that takes no
more than the op does in a step.
"""
from __future__ import annotations

import time
from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Callable, Collection, Dict, List, Sequence, Tuple

import torch
import torch.fx as fx

from ..capture.costs import signatures
from ..capture.layouts import arranged, as_traced, has_channels_last, is_convolution
from ..pytorch import private, private_ops, private_sizes
from ..pytorch.allocations import CUDA_GRANULE_BYTES, allocations, device_name
from ..pytorch.sizes import hint, tensors

_REPEATS = 3
#: Libraries whose operators do nothing but compute their results.
_COMPUTING = ("aten", "prims", "memonger")


@dataclass
class Profile:
    """Measured ops by what decides their time; see :func:`..capture.costs.signature`."""

    device: str = ""
    times_s: Dict[str, float] = field(default_factory=dict)
    #: Where an op has a time and none of these it takes nothing.
    temporary_bytes: Dict[str, int] = field(default_factory=dict)

    @property
    def known_bytes(self) -> Dict[str, int]:
        """The temporary bytes of each op that was measured."""
        return {**dict.fromkeys(self.times_s, 0), **self.temporary_bytes}

    def __str__(self) -> str:
        return "%d ops on %s, %.1f ms together" % (
            len(self.times_s), self.device, 1e3 * sum(self.times_s.values()))


def measure_ops(joint: fx.GraphModule, profile: Profile) -> None:
    """Measure each op of a joint graph that ``profile`` lacks."""
    profile.device = profile.device or device_of_joint(joint)
    found = _measured(joint, profile.times_s, (), _REPEATS)
    profile.times_s.update({key: seconds for key, (seconds, _) in found.items()})
    profile.temporary_bytes.update({key: taken for key, (_, taken) in found.items() if taken})


def measured_bytes(joint: fx.GraphModule, known: Collection[str],
                   inputs: Sequence[Any], fused: bool = False) -> Dict[str, int]:
    """Bytes that ops take besides their results while they run, of those that are not ``known``.

    ``inputs``: of the compiled graph, in order; an op that reads one of them need not copy it.
    ``fused``: only of those that Inductor leaves to libraries that take any.
    """
    found = _measured(joint, known, inputs, 1, partial(takes_bytes, fused=fused))
    return {key: taken for key, (_, taken) in found.items()}


def device_of_joint(joint: fx.GraphModule) -> str:
    """The name of the device that a joint graph runs on."""
    devices = [t.device for node in joint.graph.nodes for t in tensors(node.meta.get("val"))]
    return device_name(next((d for d in devices if d.type == "cuda"), torch.device("cpu")))


def takes_time(node: fx.Node) -> bool:
    """Whether a node is an operator that takes time: no view, and nothing of Python's."""
    target: Any = node.target
    return node.op == "call_function" and private_ops.is_operator(target) and not target.is_view


def takes_bytes(node: fx.Node, fused: bool) -> bool:
    """Whether an op may take bytes besides its results: under Inductor convolutions do."""
    return takes_time(node) and (not fused or is_convolution(node))


def runs_alone(node: fx.Node) -> bool:
    """Whether it can be measured: it does nothing but compute, and its operands can be made.

    Of an operand without bytes only the op that makes it knows what is in it.
    """
    target: Any = node.target
    return takes_time(node) and target.namespace in _COMPUTING and not any(
        hint(tensor.numel()) == 0 for operand in node.all_input_nodes
        if operand.op == "call_function" for tensor in tensors(operand.meta.get("val")))


def _measured(joint: fx.GraphModule, known: Collection[str], inputs: Sequence[Any],
              repeats: int, wanted: Callable[[fx.Node], bool] = takes_time
              ) -> Dict[str, Tuple[float, int]]:
    """Seconds, the least of some runs, and temporary bytes of each op that is not known."""
    todo = {key: (node, copies) for node in joint.graph.nodes if wanted(node) and runs_alone(node)
            for key, copies in signatures(node).items()}
    todo = {key: way for key, way in todo.items() if key not in known}
    if not todo:
        return {}
    runs: Dict[str, List[_Run]] = {}
    with private.eager_kernels(), torch.no_grad(), torch.random.fork_rng(), \
            allocations() as events:
        for key, (node, copies) in todo.items():
            try:
                runs[key] = _alone(joint, node, inputs, repeats, copies)
            except (RuntimeError, ValueError, IndexError, NotImplementedError):
                pass  # not with such values: unknown
    times = [when for when, _ in events]
    found = {}
    for key, measured in runs.items():
        taken = 0
        for run in measured:
            now = most = 0
            for _, size in events[bisect_left(times, run.start_ns):
                                  bisect_right(times, run.end_ns)]:
                now += size
                most = max(most, now)
            taken = max(taken, run.taken_bytes, most - max(now, 0))
        found[key] = min(run.elapsed_s for run in measured), taken
    return found


@dataclass
class _Run:
    """One run of an op; ``taken_bytes`` is what a GPU's allocator says of it."""

    elapsed_s: float
    start_ns: int
    end_ns: int
    taken_bytes: int = 0


def _alone(joint: fx.GraphModule, node: fx.Node, inputs: Sequence[Any],
           repeats: int, copies: bool) -> List[_Run]:
    target: Any = node.target
    places = {n: k for k, n in enumerate(joint.graph.find_nodes(op="placeholder"))}

    def operand(read: fx.Node) -> Any:
        if read.op == "get_attr":
            return getattr(joint, str(read.target))
        place, value = places.get(read, len(inputs)), read.meta["val"]
        given: Any = inputs[place] if place < len(inputs) else None
        if _serves(given, value) and not private_ops.writes(target):
            return given.detach()
        return private_ops.pytree.tree_map(_random, value)
    made: Dict[fx.Node, Any] = {read: operand(read) for read in node.all_input_nodes}
    operands, options = fx.node.map_arg((node.args, node.kwargs), made.__getitem__)
    if has_channels_last(node):
        operands, options = private_ops.pytree.tree_map(arranged, (operands, options))
    operands, options = private_ops.pytree.tree_map(_number, (operands, options))
    copied = [read.meta["val"] for read in node.args[:2] if copies]

    def call() -> Any:
        laid = [_laid_as(mine, traced) for mine, traced in zip(operands, copied)]
        value = target(*laid, *operands[len(laid):], **options)
        return value if has_channels_last(node) else as_traced(node, value)
    # What writes into its inputs runs once.
    count = 1 if private_ops.writes(target) else repeats
    if any(t.device.type == "cuda" for t in tensors((operands, options, node.meta.get("val")))):
        return [_on_cuda(call) for _ in range(count)]
    return [_on_cpu(call) for _ in range(count)]


def _serves(given: Any, value: Any) -> bool:
    """Whether an input of the step can be what an op reads: whole numbers may be anything."""
    return isinstance(given, torch.Tensor) and isinstance(value, torch.Tensor) \
        and not private_sizes.is_fake(given) and given.is_floating_point() \
        and given.dtype == value.dtype and list(given.shape) == [hint(n) for n in value.shape] \
        and list(given.stride()) == [hint(n) for n in value.stride()]


def _on_cpu(call: Callable[[], Any]) -> _Run:
    start_ns, start_s = time.time_ns(), time.perf_counter()
    value = call()
    elapsed_s = time.perf_counter() - start_s
    end_ns = time.time_ns()
    del value
    return _Run(elapsed_s, start_ns, end_ns)


def _on_cuda(call: Callable[[], Any]) -> _Run:
    start, end = torch.cuda.Event(True), torch.cuda.Event(True)
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    private_ops.keep_cuda_busy(20000)  # the launch is over before the device begins
    start.record()
    value = call()
    end.record()
    end.synchronize()
    after = torch.cuda.memory_allocated()
    extra = torch.cuda.max_memory_allocated() - max(after, before)
    granules = -(-max(extra, 0) // CUDA_GRANULE_BYTES)
    del value
    return _Run(start.elapsed_time(end) / 1e3, 0, 0, granules * CUDA_GRANULE_BYTES)


def _laid_as(value: torch.Tensor, traced: torch.Tensor) -> torch.Tensor:
    """A value in the layout of a fake one, copied where it has another."""
    strides = [hint(n) for n in traced.stride()]
    if list(value.stride()) == strides:
        return value
    return torch.empty_strided(value.shape, strides, dtype=value.dtype,
                               device=value.device).copy_(value)


def _number(value: Any) -> Any:
    return hint(value) if isinstance(value, torch.SymInt) else value


def _random(value: Any) -> Any:
    """A real value of the form of a fake one; whole numbers are 0."""
    if not isinstance(value, torch.Tensor):
        return _number(value)
    shape, strides = ([hint(n) for n in numbers] for numbers in (value.shape, value.stride()))
    count = 1 + sum((n - 1) * step for n, step in zip(shape, strides)) if all(shape) else 0
    made = torch.empty(count, dtype=value.dtype, device=value.device)
    made = made.uniform_(0.1, 1.0) if value.dtype.is_floating_point else made.zero_()
    return made.as_strided(shape, strides)
