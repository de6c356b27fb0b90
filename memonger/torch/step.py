"""One module's training step: which graphs PyTorch traced of it, and how each is planned."""
from __future__ import annotations

import re
import time
from dataclasses import dataclass, replace
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple

import torch
import torch.fx as fx

from ..plan.plan import Plan, Progress, Status
from ..util.errors import InfeasibleBudget, InputError, MemongerError, PlanMismatch
from . import private
from .apply import kept_whole, split, tagged
from .capture import BUFFER, INPUT, PARAMETER, Captured
from .dropout import divide_dropout
from .eager import runner
from .inductor import compiled, patches
from .layouts import mark_layouts
from .module_step import gradient_bytes
from .optimizer import OptimizerBytes
from .optimizer_moment import with_optimizer
from .planning import make_plan
from .pool_indices import narrow_indices
from .reading import read
from .request import Request, with_profile
from .stored_profiles import stored
from .variants import with_chunks


@dataclass
class PlannedGraph:
    """One joint graph of a module with its plan."""

    captured: Captured
    plan: Plan
    #: Its operators are the network's own, not :mod:`.variants`.
    exact: bool = True


class OnlyPlanning(Exception):
    """Ends a compilation once its graph is planned."""


class Backend:
    """A backend of ``torch.compile`` that plans each training graph that it gets."""

    def __init__(self, request: Request, only_plan: bool = False, normalize: bool = True):
        self.request, self.only_plan, self.normalize = request, only_plan, normalize
        self.graphs: List[PlannedGraph] = []
        self._started_s = time.perf_counter()
        self._plans: Dict[Tuple[str, int], Plan] = {}
        #: Bytes that a plan's pool may take after a trial, by the graph's fingerprint.
        self.tightened: Dict[str, int] = {}
        self.optimizer_takes: Optional[OptimizerBytes] = None
        self.gradient_bytes = 0

    def tell(self, phase: str) -> None:
        """What goes on, to the request's ``progress``."""
        if self.request.progress is not None:
            self.request.progress(Progress(phase, time.perf_counter() - self._started_s))

    def __call__(self, module: fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        self._started_s = time.perf_counter()
        self.tell("tracing")
        held_bytes = gradient_bytes(inputs)
        if held_bytes != self.gradient_bytes:
            self._plans.clear()
        self.gradient_bytes = held_bytes
        original = None
        if self.request.variants == "all" and not self.request.unplanned:
            module, original = self._chosen(module, inputs)
        names = private.input_names(module)
        self.optimizer_takes = self._optimizer_takes(inputs, names)

        def partition(joint: fx.GraphModule, joint_inputs: Sequence[Any], *,
                      num_fwd_outputs: int, **kwargs: Any) -> private.Modules:
            sources = ["" if k is None else names[k] for k in private.input_positions(
                joint.graph.find_nodes(op="placeholder"))]
            return self._partition(joint, joint_inputs, num_fwd_outputs,
                                   list(map(category_of, sources)), kwargs, original,
                                   labels_of(sources))

        if self.request.mode == "eager":
            return private.run_aot(module, inputs, self._compile, partition)
        self.tightened = {}
        return compiled(self, module, inputs, partition, original)

    def _chosen(self, module: fx.GraphModule,
                inputs: Sequence[Any]) -> Tuple[fx.GraphModule, Optional[Plan]]:
        """The network, or where that is better the same with variants and its own unplanned step.

        Better: it meets the budget in less time; without a budget, it takes less.
        """
        other = with_chunks(module)
        plain = self._unplanned(module, inputs) if other else None
        changed = self._unplanned(other, inputs) if plain else None
        if other is None or plain is None or changed is None:
            return module, None
        asked = replace(self.request, time_limit=self.request.time_limit / 2)
        made: List[Tuple[float, fx.GraphModule, Optional[Plan]]] = []
        refused: List[MemongerError] = []
        for graph, network, original in ((plain, module, None), (changed, other, plain.plan)):
            try:
                plan = make_plan(graph.captured, asked, original=original)
            except (InfeasibleBudget, PlanMismatch) as error:
                refused.append(error)
                continue
            self._plans[graph.captured.graph.fingerprint, 0] = plan
            made.append((plan.total_bytes if asked.budget is None else
                         plan.schedule.time_s(plan.graph), network, original))
            if plan.status is Status.NOT_NEEDED or asked.plan:
                break
        if not made:
            raise min(refused, key=lambda error: getattr(error, "minimum_bytes", 0))
        return min(made, key=lambda item: item[0])[1:]

    def _unplanned(self, module: fx.GraphModule,
                   inputs: Sequence[Any]) -> Optional[PlannedGraph]:
        """The training step of a Dynamo graph as it is; None without gradients."""
        backend = Backend(replace(self.request, unplanned=True, plan=None), only_plan=True,
                          normalize=self.normalize)
        try:
            backend(module, inputs)
        except OnlyPlanning:
            return backend.graphs[0]
        except InputError:
            pass
        return None

    def _optimizer_takes(self, inputs: Sequence[Any],
                         sources: Sequence[str]) -> Optional[OptimizerBytes]:
        """What the optimizer takes for the parameters among a graph's inputs; None without one."""
        if self.request.optimizer is None:
            return None
        return self.request.optimizer.bytes_of([
            value for value, source in zip(inputs, sources) if isinstance(value, torch.Tensor)
            and value.requires_grad and category_of(source) == PARAMETER])

    def options(self) -> Dict[str, Any]:
        """Options of ``torch.compile`` under which Inductor asks this for its partitions."""
        def partition(joint: fx.GraphModule, inputs: Sequence[Any], *, num_fwd_outputs: int,
                      **kwargs: Any) -> private.Modules:
            static = set(kwargs.get("static_lifetime_input_indices") or ())
            categories = [PARAMETER if place in static else INPUT
                          for place in range(len(inputs))]
            return self._partition(joint, inputs, num_fwd_outputs, categories, kwargs)
        return patches(self.request, partition, {})

    def _compile(self, module: fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        if self.only_plan:
            raise InputError("no gradient is taken: nothing to plan; call it with gradients "
                             "enabled and parameters that require them")
        return runner(module)

    def _partition(self, joint: fx.GraphModule, inputs: Sequence[Any], num_forward_outputs: int,
                   categories: Sequence[str], kwargs: Mapping[str, Any],
                   original: Optional[Plan] = None,
                   labels: Sequence[str] = ()) -> private.Modules:
        if self.normalize:
            private.normalize(joint)
            if self.request.mode == "eager":
                narrow_indices(joint)
                divide_dropout(joint)
            else:
                mark_layouts(joint)
        if self.request.kept:
            return kept_whole(joint, inputs, num_forward_outputs, **kwargs)
        request = _with_stored(self.request, joint)
        captured = read(joint, num_forward_outputs, categories, request.mode == "inductor",
                        request.measured_s, request.temporary_bytes,
                        "auto" if request.measured_s else request.costs, request.name,
                        labels)
        captured.gradient_bytes = self.gradient_bytes
        captured = with_optimizer(captured, self.optimizer_takes, request.plan)
        fingerprint = captured.graph.fingerprint
        key = fingerprint, self.tightened.get(fingerprint, 0)
        if key not in self._plans:
            self._plans[key] = make_plan(captured, request, key[1], original)
        plan = self._plans[key]
        self.graphs.append(PlannedGraph(captured, plan, exact=original is None))
        if self.only_plan:
            raise OnlyPlanning()
        self.tell("compiling")
        if request.mode == "eager" and not captured.dynamic:
            return split(captured, plan.schedule)
        fused = request.mode == "inductor"
        unplanned = fused and plan.method == "none"
        return tagged(captured, None if unplanned else plan.schedule, inputs, fused, **kwargs)


def _with_stored(request: Request, joint: fx.GraphModule) -> Request:
    """The request with what was measured of all ops of the graph, where it asks for no other."""
    profile = stored(joint) if request.costs == "auto" else None
    return request if profile is None else with_profile(request, profile)


def category_of(source: str) -> str:
    """What an input of Dynamo's graph is, by the expression that it comes from."""
    found = re.findall(r"\['?_?(parameters|buffers)'?\]|\._(parameters|buffers)\[", source)
    words = {word for pair in found for word in pair}
    return PARAMETER if "parameters" in words else BUFFER if "buffers" in words else INPUT


def labels_of(sources: Sequence[str]) -> List[str]:
    """What inputs of Dynamo's graph are called: the module's arguments by name, or "input1", ...

    "" for parameters and buffers, and for what is no such input.
    """
    labels: List[str] = []
    for source in sources:
        name = re.fullmatch(r"L\['(\w+)'\]", source)
        nameless = "input%d" % (len(labels) - labels.count("") + 1)
        is_named = source and category_of(source) == INPUT
        labels.append((name.group(1) if name else nameless) if is_named else "")
    return labels
