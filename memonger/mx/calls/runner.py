"""What runs a network, and the bytes that it takes besides those in the graph."""
from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Any, Callable, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from ...graph.schedule import expand
from ...graph.types import Graph
from ...memory.storage import plan_storage
from ...plans.footprint import Footprint
from ...util.gc_pause import paused
from ..capture.devices import counted
from ..capture.record import Captured
from ..costs.models import CostModel, Roofline
from ..memory.gpu_pool import BoundStep, Device, reservations, workspaces
from ..memory.mkldnn import mkldnn_workspaces, planned_copies
from ..memory.native_workspaces import native_workspaces
from ..plugin.environment import mkldnn_is_on
from ..rewrite.variant_graph import Prices
from .binding import Binding

#: A graph and its symbol to the graph of another runner.
Reshape = Callable[[Graph, Any], Graph]


class Form(NamedTuple):
    """A symbol as it was bound."""

    symbol: Any
    captured: Captured
    #: As an executor of it runs: on a GPU point-wise ops may be fused.
    as_run: Captured


@dataclass(frozen=True)
class Runner:
    """How symbols of a network are bound, and what that takes besides their pools."""

    binding: Binding
    #: How the GPU hands out memory; None on a CPU.
    device: Optional[Device]
    #: Prices ops.
    model: CostModel = field(repr=False)
    #: Turns the graph of an executor, read from a symbol, into that of a CachedOp; None for
    #: executors.
    reshape: Optional[Reshape] = field(default=None, repr=False)
    #: Sizes of the arrays that the optimizer makes.
    optimizer_arrays: Tuple[int, ...] = field(default=(), repr=False)

    @property
    def is_of_cpu(self) -> bool:
        """Whether it runs on a CPU, and is priced as one."""
        return self.device is None and (
            not isinstance(self.model, Roofline) or self.model.device.name == "cpu")

    @paused()
    def read(self, symbol: Any) -> Captured:
        """A form of the network, bound without allocation."""
        return self.binding.read(symbol)

    def graph(self, captured: Captured, symbol: Any, times_s: Optional[Sequence[float]] = None,
              planned: bool = True) -> Graph:
        """The step of a form with its workspaces; without ``times_s`` ops take no time."""
        spaces = self.workspaces(captured, planned)
        graph = captured.graph.with_times(times_s or [0.0] * len(spaces), spaces)
        return graph if self.reshape is None else self.reshape(graph, symbol)

    def times_and_workspaces(self, captured: Captured) -> Prices:
        """Seconds and bytes of each op."""
        times = self.model.op_times(captured.graph, captured.attributes)
        return Prices(times.times_s, self.workspaces(captured), times.guessed)

    def workspaces(self, captured: Captured, planned: bool = True) -> Sequence[int]:
        """What MXNet's code takes; for the preset of another device what the graph says.

        Ops of an executor share one temporary space; those of a CachedOp on a CPU take turns with
        several, which all become as large as the largest.
        """
        turns = 1
        if self.reshape is not None and self.device is None:
            turns = int(os.environ.get("MXNET_CPU_TEMP_COPY", "4"))
        return [turns * space
                for space in counted(captured, self._workspaces(captured, planned))]

    def _workspaces(self, captured: Captured, planned: bool) -> Sequence[int]:
        if self.device is not None:
            return workspaces(self.device, captured.graph)
        if not mkldnn_is_on():
            return native_workspaces(captured.graph, captured.attributes, captured.added)
        if not self.is_of_cpu:
            return [op.workspace_bytes for op in captured.graph.ops]
        return mkldnn_workspaces(captured.graph, captured.attributes, planned, captured.added)

    def tunes(self, graph: Graph) -> bool:
        """Whether MXNet tunes convolutions of the step."""
        return self.device is not None and self.device.autotunes and \
            any(reservations(graph, op) for op in graph.ops)

    def footprint(self, captured: Captured, symbol: Any, storage: str) -> Footprint:
        """Pool of a form of the network with a plan, and what only its form tells besides."""
        if self.device is None and self.reshape is None:
            return Footprint(int(captured.pool_bytes), self.copies(captured, storage))
        step = self._bound_step(captured, symbol, storage)
        return Footprint(
            int(captured.pool_bytes) if self.reshape is None else step.storage.pool_bytes,
            self.copies(captured, "best") if self.device is None else
            step.extra_bytes(self.device, self._arrays(captured)))

    def copies(self, captured: Captured, storage: str) -> Mapping[str, int]:
        """The largest copy in another layout that an op has while it runs.

        MKLDNN's operators write in layouts of their own only where their arrays are whole buffers.
        """
        if not self.is_of_cpu or not mkldnn_is_on() or storage not in ("arena", "best"):
            return {}
        most = max([*counted(captured, planned_copies(
            captured.graph, captured.default_layout, captured.resources)), 0])
        if not most or storage == "arena" and plan_storage(
                captured.graph, expand(captured.graph, {}), storage).offset_of:
            return {}
        return {"layout_copies": most}

    def pool_within(self, form: Form, left_bytes: int, storage: str) -> Footprint:
        """Divides the bytes left on a device between the pool and what the allocator adds."""
        if self.device is None:
            return Footprint(left_bytes)
        step = self._bound_step(form.captured, form.symbol, storage)
        extra = step.extra_bytes(self.device, self._arrays(form.captured))
        buffers = step.storage.buffer_bytes
        extra["rounding"] -= self.device.all_rounded(buffers) - sum(buffers)
        left_bytes -= sum(extra.values())
        pool_bytes = step.pool_within(self.device, left_bytes)
        extra["rounding"] += left_bytes - pool_bytes
        return Footprint(pool_bytes, extra)

    def _bound_step(self, captured: Captured, symbol: Any, storage: str) -> BoundStep:
        graph = self.graph(captured, symbol)
        names = [op.name for op in captured.graph.ops]
        return BoundStep(graph, dict(zip(names, captured.attributes)),
                         dict(zip(names, captured.resources)),
                         plan_storage(graph, expand(graph, {}), storage))

    def _arrays(self, captured: Captured) -> List[int]:
        """Sizes of the arrays outside a step."""
        requests = dict(zip(captured.arguments.names, captured.arguments.grad_reqs))
        # A CachedOp makes the gradients for outputs itself.
        outside = [t for number, t in enumerate(captured.graph.tensors)
                   if t.producer < 0 and number not in captured.elsewhere
                   and not (self.reshape is not None and t.category == "head_gradient")]
        trained = [t for t in outside if requests.get(t.name, "null") != "null"]
        return [*(t.size_bytes for t in outside + trained), *self.optimizer_arrays]
