"""One module's training step: which graphs PyTorch traced of it, and how each is planned."""
from __future__ import annotations

import hashlib
import re
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple

import torch
import torch.fx as fx

from ..graph.schedule import Schedule, expand
from ..memory.storage import plan_storage
from ..plan.plan import Budget, Plan, Progress, Status
from ..solve import Options, solve
from ..util.errors import InputError, PlanMismatch
from ..util.units import parse_budget, refuse_bare_number
from . import private
from .apply import split, tagged
from .capture import BUFFER, INPUT, PARAMETER, Captured, read
from .eager import runner

MODES = ("inductor", "eager")


@dataclass(frozen=True)
class Request:
    """What is asked for; fields as the parameters of :func:`memonger.torch.plan`."""

    budget: Budget = None
    mode: str = "inductor"
    time_limit: float = 10.0
    max_clones: int = 0
    #: Seconds of ops and bytes that they take besides their outputs, by signature.
    measured_s: Mapping[str, float] = field(default_factory=dict)
    temporary_bytes: Mapping[str, int] = field(default_factory=dict)
    costs: str = "roofline"
    optimizer_bytes: Optional[Callable[[Sequence[int]], int]] = None
    progress: Optional[Callable[[Progress], None]] = None
    name: str = ""
    plan: Optional[Plan] = None
    #: Nothing is planned: the step as it is.
    unplanned: bool = False

    def __post_init__(self) -> None:
        if self.mode not in MODES:
            raise InputError("mode must be %s, not %r" % (" or ".join(MODES), self.mode))
        refuse_bare_number(self.budget)


@dataclass
class PlannedGraph:
    """One joint graph of a module with its plan."""

    captured: Captured
    plan: Plan


class OnlyPlanning(Exception):
    """Ends a compilation once its graph is planned."""


class Backend:
    """A backend of ``torch.compile`` that plans each training graph that it gets."""

    def __init__(self, request: Request, only_plan: bool = False):
        private.check_version()
        self.request, self.only_plan = request, only_plan
        self.graphs: List[PlannedGraph] = []
        self._plans: Dict[Tuple[str, int], Plan] = {}

    def __call__(self, module: fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        categories = [category_of(name) for name in private.input_names(module)]

        def partition(joint: fx.GraphModule, joint_inputs: Sequence[Any], *,
                      num_fwd_outputs: int, **kwargs: Any) -> private.Modules:
            return self._partition(joint, joint_inputs, num_fwd_outputs, categories, kwargs)

        if self.request.mode == "eager":
            return private.run_aot(module, inputs, self._compile, partition)
        return private.run_inductor(module, inputs, inductor_patches(self.request, partition))

    def _compile(self, module: fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        if self.only_plan:
            raise InputError("no gradient is taken: nothing to plan; call it with gradients "
                             "enabled and parameters that require them")
        return runner(module)

    def _partition(self, joint: fx.GraphModule, inputs: Sequence[Any], num_forward_outputs: int,
                   categories: Sequence[str], kwargs: Mapping[str, Any]) -> private.Modules:
        private.normalize(joint)
        request = self.request
        captured = read(joint, num_forward_outputs, categories, request.mode == "inductor",
                        request.measured_s, request.temporary_bytes, request.name)
        key = captured.graph.fingerprint, len(captured.graph.ops)
        if key not in self._plans:
            self._plans[key] = make_plan(captured, request)
        plan = self._plans[key]
        self.graphs.append(PlannedGraph(captured, plan))
        if self.only_plan:
            raise OnlyPlanning()
        if request.mode == "eager" and not captured.dynamic:
            return split(captured, plan.schedule)
        return tagged(captured, plan.schedule, inputs, **kwargs)


def inductor_patches(request: Request, partition: Callable[..., private.Modules]) \
        -> Dict[str, Any]:
    """Inductor's configuration under a plan."""
    return {"custom_partitioner_fn": private.Partitioner(partition, cache_key(request)),
            "reorder_for_peak_memory": False}


def cache_key(request: Request) -> str:
    """Names in Inductor's caches all that decides a plan: sources, budget, costs, decisions."""
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(path.read_bytes())
    decisions = request.plan.schedule if request.plan else None
    digest.update(repr((request.budget, request.mode, request.time_limit, request.max_clones,
                        request.unplanned, sorted(request.measured_s.items()),
                        sorted(request.temporary_bytes.items()), decisions)).encode())
    return digest.hexdigest()


def category_of(source: str) -> str:
    """What an input of Dynamo's graph is, by the expression that it comes from."""
    found = re.findall(r"\['?_?(parameters|buffers)'?\]|\._(parameters|buffers)\[", source)
    words = {word for pair in found for word in pair}
    return PARAMETER if "parameters" in words else BUFFER if "buffers" in words else INPUT


def make_plan(captured: Captured, request: Request) -> Plan:
    """The plan of one graph."""
    started_s = time.perf_counter()
    graph = captured.graph
    fixed = captured.outside_bytes
    if request.optimizer_bytes is not None:
        fixed["optimizer"] = request.optimizer_bytes(
            [t.size_bytes for t in graph.tensors if t.category == PARAMETER])
    if request.plan is not None:
        if request.plan.graph.fingerprint != graph.fingerprint:
            raise PlanMismatch(
                "the plan is for another graph: it was made with another module, other inputs or "
                "another version of PyTorch; plan again with memonger.torch.plan",
                request.plan.graph.fingerprint, graph.fingerprint)
        return request.plan
    outside_bytes = sum(fixed.values())
    baseline = plan_storage(graph, expand(graph, {}), "live").pool_bytes
    # PyTorch's own split, which Inductor's mode uses, has one clone of an op.
    clones = request.max_clones or (1 if request.mode == "inductor" or captured.dynamic else 0)
    options = Options(
        storage="live", variants="none", time_limit_s=request.time_limit, fixed_bytes=fixed,
        costs=request.costs, max_clones=clones, progress=request.progress)
    if request.unplanned:
        return _unplanned(captured, fixed, baseline, options, request)
    if request.budget is None:
        plan = solve(graph, None, "auto", replace(options, objective="memory"))
    else:
        plan = solve(graph, parse_budget(request.budget, baseline + outside_bytes) - outside_bytes,
                     "auto", options)
    asked = {"mode": request.mode, "torch": torch.__version__}
    if request.budget is not None:
        asked["budget"] = request.budget
    return replace(plan, options=asked, planning_s=time.perf_counter() - started_s)


def _unplanned(captured: Captured, fixed: Mapping[str, int], pool_bytes: int, options: Options,
               request: Request) -> Plan:
    schedule: Schedule = expand(captured.graph, {})
    return Plan(graph=captured.graph, schedule=schedule, status=Status.NOT_NEEDED, method="none",
                pool_bytes=pool_bytes, baseline_pool_bytes=pool_bytes, fixed_bytes=fixed,
                costs=options.costs, storage="live", options={"mode": request.mode})
