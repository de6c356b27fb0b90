"""What each op of a training step takes on this device: seconds, and bytes while it runs."""
from __future__ import annotations

import time
from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field
from typing import Any, Dict, List, Sequence, Tuple

import torch
import torch.fx as fx

from . import private
from .allocations import allocations, device_name
from .capture import CUDA_GRANULE_BYTES
from .costs import signature
from .layouts import arranged, has_channels_last
from .sizes import hint, tensors

_REPEATS = 3


@dataclass
class Profile:
    """Measured ops by what decides their time; see :func:`.costs.signature`."""

    device: str = ""
    times_s: Dict[str, float] = field(default_factory=dict)
    temporary_bytes: Dict[str, int] = field(default_factory=dict)

    def __str__(self) -> str:
        return "%d ops on %s, %.1f ms together" % (
            len(self.times_s), self.device, 1e3 * sum(self.times_s.values()))


def measure_ops(joint: fx.GraphModule, profile: Profile) -> None:
    """Run a joint graph once on random values, and measure each op that ``profile`` lacks."""
    windows: List[Tuple[str, int, int]] = []
    profile.device = profile.device or device_of_joint(joint)
    with allocations() as events:
        _run_all(joint, profile, windows)
    times = [when for when, _ in events]
    for key, start_ns, end_ns in windows:
        now = most = 0
        for _, size in events[bisect_left(times, start_ns):bisect_right(times, end_ns)]:
            now += size
            most = max(most, now)
        if most > max(now, 0):
            profile.temporary_bytes[key] = most - max(now, 0)


def device_of_joint(joint: fx.GraphModule) -> str:
    """The name of the device that a joint graph runs on."""
    devices = [t.device for node in joint.graph.nodes for t in tensors(node.meta.get("val"))]
    return device_name(next((d for d in devices if d.type == "cuda"), torch.device("cpu")))


def runs_alone(node: fx.Node) -> bool:
    """Whether a node is an operator that takes time: no view, and nothing of Python's."""
    target: Any = node.target
    return node.op == "call_function" and private.is_operator(target) and not target.is_view


def _run_all(joint: fx.GraphModule, profile: Profile,
             windows: List[Tuple[str, int, int]]) -> None:
    """Each value is dropped after its last reader, as in training."""
    last: Dict[fx.Node, fx.Node] = {}
    for node in joint.graph.nodes:
        for read in node.all_input_nodes:
            last[read] = node
    values: Dict[fx.Node, Any] = {}
    for node in joint.graph.nodes:
        if node.op == "placeholder":
            values[node] = _random(node.meta["val"])
        elif node.op == "get_attr":
            values[node] = getattr(joint, str(node.target))
        elif node.op == "call_function":
            arguments = fx.node.map_arg((node.args, node.kwargs), values.__getitem__)
            if has_channels_last(node):
                arguments = private.pytree.tree_map(arranged, arguments)
            values[node] = _run(node, arguments, profile, windows)
            if has_channels_last(node):
                values[node] = _laid_out(values[node], node.meta["val"])
            del arguments
        for read in [*node.all_input_nodes, node]:
            if last.get(read, read) is node and node.op != "output":
                values.pop(read, None)


def _run(node: fx.Node, arguments: Tuple[Any, Any], profile: Profile,
         windows: List[Tuple[str, int, int]]) -> Any:
    operands, options = arguments
    target: Any = node.target
    if not runs_alone(node):
        return target(*operands, **options)
    key = signature(node)
    if key in profile.times_s:
        return target(*operands, **options)
    on_cuda = [t.device for t in tensors((operands, options)) if t.device.type == "cuda"]
    best_s = float("inf")
    # What writes into its inputs runs once.
    for _ in range(1 if private.writes(target) else _REPEATS):
        value = None
        if on_cuda:
            value, elapsed_s, extra_bytes = _timed_on_cuda(target, operands, options)
            if extra_bytes:
                profile.temporary_bytes[key] = extra_bytes
        else:
            started_ns, started_s = time.time_ns(), time.perf_counter()
            value = target(*operands, **options)
            elapsed_s = time.perf_counter() - started_s
            windows.append((key, started_ns, time.time_ns()))
        best_s = min(best_s, elapsed_s)
    profile.times_s[key] = best_s
    return value


def _laid_out(values: Any, fakes: Any) -> Any:
    """The values in the layouts of the fake ones, which later nodes of the graph expect."""
    def like(value: Any, fake: Any) -> Any:
        if not isinstance(value, torch.Tensor) or value.stride() == fake.stride():
            return value
        return torch.empty_strided(value.shape, [hint(n) for n in fake.stride()],
                                   dtype=value.dtype, device=value.device).copy_(value)
    return private.pytree.tree_map(like, values, fakes)


def _timed_on_cuda(target: Any, operands: Sequence[Any],
                   options: Dict[str, Any]) -> Tuple[Any, float, int]:
    """The value, seconds on the device, and bytes at the worst moment besides the value."""
    start, end = torch.cuda.Event(True), torch.cuda.Event(True)
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    private.keep_cuda_busy(20000)  # the launch is over before the device begins
    start.record()
    value = target(*operands, **options)
    end.record()
    end.synchronize()
    after = torch.cuda.memory_allocated()
    extra = torch.cuda.max_memory_allocated() - max(after, before)
    granules = -(-max(extra, 0) // CUDA_GRANULE_BYTES)
    return value, start.elapsed_time(end) / 1e3, granules * CUDA_GRANULE_BYTES


def _random(value: Any) -> Any:
    """A real value of the form of a fake one; whole numbers are 0."""
    if not isinstance(value, torch.Tensor):
        return hint(value) if isinstance(value, torch.SymInt) else value
    shape: List[int] = [hint(n) for n in value.shape]
    made = torch.empty_strided(shape, [hint(n) for n in value.stride()], dtype=value.dtype,
                               device=value.device)
    return made.uniform_(0.1, 1.0) if value.dtype.is_floating_point else made.zero_()
