"""One module's training step: which graphs PyTorch traced of it, and how each is planned."""
from __future__ import annotations

import re
import time
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import Any, Callable, Dict, Iterable, Iterator, List, Mapping, Optional, Sequence, Tuple

import torch
import torch.fx as fx

from ...graph.schedule import Schedule
from ...plans.plan import Plan, Status
from ...util.errors import InfeasibleBudget, InputError, MemongerError, PlanMismatch
from ...util.units import budget_share, parse_budget
from ..capture.captured import BUFFER, INPUT, PARAMETER, Captured
from ..capture.costs import ROOFLINES
from ..capture.layouts import gradients_are_arranged, mark_layouts
from ..capture.optimizer_moment import with_optimizer
from ..capture.reading import read
from ..pytorch import private, private_joint, private_ops, private_sizes
from ..pytorch.module_step import gradient_bytes
from ..pytorch.optimizer import OptimizerBytes
from ..pytorch.sizes import Symbols
from ..rewrite.apply import kept_whole, split, tagged
from ..rewrite.batch_norm import choose_batch_norms
from ..rewrite.dropout import divide_dropout
from ..rewrite.eager import runner
from ..rewrite.in_depth import forms_in_depth
from ..rewrite.loss_layers import with_chunks
from ..rewrite.offload import with_offload
from ..rewrite.pool_indices import narrow_indices
from ..times.stored_profiles import stored
from .any_size import AnySize
from .checks import check_inference
from .compilation import Code, Compilation, PlannedGraph
from .inductor import cache_key, compiled, in_order, patches
from .network import TracedNetwork
from .planning import first_plan, knee_of, log_plan, make_plan
from .request import Request, with_profile

NO_GRADIENT = "no gradient is taken: nothing to plan; call it with gradients enabled and " \
    "parameters that require them"


class OnlyPlanning(Exception):
    """Ends a compilation once its graph is planned."""


class Backend(Compilation):
    """A backend of ``torch.compile`` that plans each training graph that it gets."""

    def __init__(self, request: Request, only_plan: bool = False, normalize: bool = True):
        super().__init__(request, only_plan)
        self.normalize = normalize
        self._plans: Dict[Tuple[str, int, bool], Plan] = {}
        #: Those that the log has a line about.
        self._told: List[Plan] = []
        self.optimizer_takes: Optional[OptimizerBytes] = None
        #: Arguments of the call that is compiled for.
        self._arguments: Sequence[Any] = ()
        self.gradient_bytes = 0

    def __call__(self, module: fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        self._started_s = time.perf_counter()
        self.tell("tracing")
        sources = private.input_names(module)
        symbols = Symbols(private_sizes.example_values(module))
        if symbols.places and self.has_budget:
            return AnySize(self, self.code, module, sources, inputs, symbols)
        if not symbols.places:
            self.seen.add(sources, inputs)
        return self.code(module, sources, inputs, inputs).call

    def code(self, module: fx.GraphModule, sources: Sequence[str], inputs: Sequence[Any],
             arguments: Optional[Sequence[Any]] = None) -> Code:
        """A Dynamo graph, compiled by a plan for the sizes in force.

        ``inputs``: what it is compiled for; ``arguments``: of a call with these sizes, where there
        is one.
        """
        self._arguments = arguments or inputs
        held_bytes = gradient_bytes(self._arguments, self.request.in_flight)
        if held_bytes != self.gradient_bytes:
            self._plans.clear()
        self.gradient_bytes = held_bytes
        original = None
        if self.request.variants == "all" and not self.request.unplanned:
            module, original = self._chosen(module, sources, inputs)
        self.optimizer_takes = self._optimizer_takes(self._arguments, sources)
        made: List[PlannedGraph] = []

        def partition(joint: fx.GraphModule, joint_inputs: Sequence[Any], *,
                      num_fwd_outputs: int, **kwargs: Any) -> private_joint.Modules:
            names = names_in(joint, sources)
            return self._partition(joint, joint_inputs, num_fwd_outputs,
                                   list(map(category_of, names)), kwargs, original,
                                   labels_of(names), deeper=True)

        def infer(graph: fx.GraphModule, _: Sequence[Any]) -> Callable[..., Any]:
            made.extend(self._without_gradient(graph, names_in(graph, sources)))
            return runner(graph)

        count = len(self.graphs)
        try:
            if self.request.mode == "eager":
                call = private.run_aot(module, inputs, lambda graph, _: runner(graph),
                                       self._backward(), partition, infer)
            else:
                call = compiled(self, module, inputs, partition, arguments)
        except Exception:
            if not self.only_plan:  # what is refused never runs
                del self.graphs[count:]
            raise
        finally:
            self._arguments = ()
        if len(self.graphs) > count:
            self._fix_budget(self.graphs[-1].plan.budget_bytes)
            return Code(call, self.graphs[-1], True)
        code = Code(call, made[0] if made else None, False)
        if self.has_budget and arguments is not None:
            check_inference(self, code, arguments)
        return code

    def _chosen(self, module: fx.GraphModule, sources: Sequence[str],
                inputs: Sequence[Any]) -> Tuple[fx.GraphModule, Optional[Plan]]:
        """The network, or where that is better the same with variants and its own unplanned step.

        Better: it meets the budget in less time; without a budget, it takes less.
        """
        other = with_chunks(module)
        plain = self._unplanned(module, sources, inputs) if other else None
        changed = self._unplanned(other, sources, inputs) if other and plain else None
        if other is None or plain is None or changed is None:
            return module, None
        self._at_knee(plain.captured, self.request)
        if self.request.budget is not None:
            self._fix_budget(parse_budget(self.request.budget, plain.plan.total_bytes))
        asked = replace(self.request, time_limit=self.request.time_limit / 2)
        made: List[Tuple[float, fx.GraphModule, Optional[Plan]]] = []
        refused: List[MemongerError] = []
        for graph, network, original in ((plain, module, None), (changed, other, plain.plan)):
            try:
                plan = make_plan(graph.captured, asked, original=original)
            except (InfeasibleBudget, PlanMismatch) as error:
                refused.append(error)
                continue
            self._plans[graph.captured.graph.fingerprint, 0, False] = plan
            made.append((plan.total_bytes if asked.budget is None else
                         plan.schedule.time_s(plan.graph), network, original))
            if plan.status is Status.NOT_NEEDED or asked.plan:
                break
        if not made:
            raise min(refused, key=lambda error: getattr(error, "minimum_bytes", 0))
        return min(made, key=lambda item: item[0])[1:]

    def _unplanned(self, module: fx.GraphModule, sources: Sequence[str],
                   inputs: Sequence[Any]) -> Optional[PlannedGraph]:
        """The training step of a Dynamo graph as it is; None without gradients."""
        backend = Backend(replace(self.request, unplanned=True, plan=None), only_plan=True,
                          normalize=self.normalize)
        try:
            backend.code(module, sources, inputs)
        except OnlyPlanning:
            return backend.graphs[0]
        except InputError:
            pass
        return None

    def _optimizer_takes(self, arguments: Sequence[Any],
                         sources: Sequence[str]) -> Optional[OptimizerBytes]:
        """What the optimizer takes for a call's parameters, which are its own; None without one."""
        if self.request.optimizer is None:
            return None
        return self.request.optimizer.bytes_of([
            value for value, source in zip(arguments, sources) if isinstance(value, torch.Tensor)
            and value.requires_grad and category_of(source) == PARAMETER])

    def _without_gradient(self, graph: fx.GraphModule,
                          names: Sequence[str]) -> List[PlannedGraph]:
        """A graph in which no gradient is taken, where somebody asks what it takes."""
        if self.only_plan:
            raise InputError(NO_GRADIENT)
        return [self._as_it_is(graph, names)] if self.has_budget else []

    def _as_it_is(self, graph: fx.GraphModule, names: Sequence[str]) -> PlannedGraph:
        """A graph in which no gradient is taken: nothing of it runs again."""
        request = replace(self._with_bytes(self.request, graph), plan=None, unplanned=True)
        captured = read(graph, len(graph.graph.output_node().args[0]),
                        list(map(category_of, names)), False, request.measured_s,
                        request.temporary_bytes, labels=labels_of(names))
        captured.checkpoints.clear()  # they are for backward
        return PlannedGraph(captured, make_plan(captured, request))

    def _fix_budget(self, budget_bytes: Optional[int]) -> None:
        """From now on a share means these bytes, which are its share of the first step."""
        if not self.only_plan and budget_share(self.request.budget) is not None:
            self.request = replace(self.request, budget=budget_bytes)

    def _at_knee(self, captured: Captured, request: Request) -> Request:
        """The request; the knee is a share from then on: it is of the first step."""
        asked = knee_of(captured, request)
        if asked is not request:
            self.request = replace(self.request, budget=asked.budget, given=asked.given,
                                   time_limit=asked.time_limit, notes=asked.notes)
        return asked

    def options(self) -> Dict[str, Any]:
        """Options of ``torch.compile`` under which Inductor asks this for its partitions."""
        def partition(joint: fx.GraphModule, inputs: Sequence[Any], *, num_fwd_outputs: int,
                      **kwargs: Any) -> private_joint.Modules:
            static = set(kwargs.get("static_lifetime_input_indices") or ())
            categories = [PARAMETER if place in static else INPUT
                          for place in range(len(inputs))]
            return self._partition(joint, inputs, num_fwd_outputs, categories, kwargs)
        return patches(self.request, partition, cache_key(self.request))

    def _partition(self, joint: fx.GraphModule, inputs: Sequence[Any], num_forward_outputs: int,
                   categories: Sequence[str], kwargs: Mapping[str, Any],
                   original: Optional[Plan] = None,
                   labels: Sequence[str] = (), deeper: bool = False) -> private_joint.Modules:
        if self.normalize:
            private_joint.normalize(joint)
            if self.request.mode == "eager":
                narrow_indices(joint)
                divide_dropout(joint)
                choose_batch_norms(joint)
            else:
                mark_layouts(joint)
        if self.request.kept:
            return kept_whole(joint, inputs, num_forward_outputs, **kwargs)
        request = self._with_bytes(self.request, joint)
        fused = request.mode == "inductor"

        def captured_of(graph: fx.GraphModule) -> Captured:
            found = read(graph, num_forward_outputs, categories, fused,
                         request.measured_s, request.temporary_bytes, request.estimates,
                         request.name, labels)
            found.gradient_bytes = self.gradient_bytes
            return found

        def forms() -> Iterator[Captured]:
            captured = captured_of(joint)
            yield captured
            if deeper and fused and original is None and not (
                    request.unplanned or captured.sized_by_values):
                plain_bytes = TracedNetwork(captured, request).as_written_bytes
                for graph, lowering in forms_in_depth(joint):
                    with private_ops.configured(lowering):
                        found = captured_of(graph)
                    found.plain_pool_bytes, found.lowering = plain_bytes, lowering
                    yield found

        return self._divided(forms(), request, inputs, original, kwargs)

    def _backward(self) -> Callable[..., Any]:
        """What runs the backward half of a graph in eager mode."""
        return lambda graph, _: runner(graph)

    def _divided(self, forms: Iterable[Captured], request: Request, inputs: Sequence[Any],
                 original: Optional[Plan], kwargs: Mapping[str, Any]) -> private_joint.Modules:
        """The halves of a graph by a plan of it.

        ``forms``: of the graph; each is for budgets that no plan of those before meets.
        """
        steps = map(partial(self._offering, request), forms)
        first = next(steps)
        key = first[0].graph.fingerprint, max(self.tightened.values(), default=0), request.unplanned
        asked = replace(request, plan=self._plans[key]) if key in self._plans else \
            self._at_knee(first[0], request)
        network, plan = first_plan([TracedNetwork(step, asked, key[1], original) for step in form]
                                   for form in chain([first], steps))
        captured, self._plans[key] = network.captured, plan
        if not request.unplanned and not any(plan is told for told in self._told):
            self._told.append(plan)
            log_plan(plan, bool(key[1]))
        self.lowering.clear()
        self.lowering.update(captured.lowering)
        self.graphs.append(PlannedGraph(captured, plan, exact=original is None))
        if self.only_plan:
            raise OnlyPlanning()
        self.tell("compiling")
        fused = request.mode == "inductor"
        schedule = None if fused and plan.method == "none" else plan.schedule
        if fused and schedule is not None and not captured.sized_by_values:
            self.lowering.update(in_order(plan))
        if fused and schedule is not None and gradients_are_arranged(captured.joint):
            self.lowering.update(private_ops.arranging())
        return halves(captured, schedule, request.mode, inputs, kwargs)

    def _offering(self, request: Request, captured: Captured) -> List[Captured]:
        """The step with moves to the host, where the request allows any, and without."""
        steps = [captured]
        if request.host_budget_bytes is not None and not request.unplanned and \
                not captured.sized_by_values:
            moved = with_offload(captured, request.link_bytes_per_s,
                                 request.plan.graph if request.plan else None)
            steps = [moved, captured] if moved.moves else steps
        return [with_optimizer(step, self.optimizer_takes, request.plan, request.in_flight)
                for step in steps]

    def _with_bytes(self, request: Request, joint: fx.GraphModule) -> Request:
        """The request with what is stored about all ops of the graph, where it asks for no other.

        To keep a budget, what libraries' kernels take while they run is measured where that is not
        known.
        """
        if request.costs in ROOFLINES or not self.counts:
            return request
        known = stored(joint)
        if request.costs == "auto" and known.times_s:
            request = with_profile(request, known)
        if request.costs == "auto" or request.measured_s:
            self.known_bytes.update(known.temporary_bytes)
        if self.measures:
            self.measure(joint, self._arguments, known.device)
        return replace(request, temporary_bytes=self.known_bytes)


def halves(captured: Captured, schedule: Optional[Schedule], mode: str, inputs: Sequence[Any],
           kwargs: Mapping[str, Any]) -> private_joint.Modules:
    """Forward and backward by a schedule; None: what Inductor does by itself."""
    fused = mode == "inductor"
    if schedule is not None and not captured.sized_by_values:
        return split(captured, schedule, fused)
    return tagged(captured, schedule, inputs, fused, **kwargs)


def names_in(joint: fx.GraphModule, sources: Sequence[str]) -> List[str]:
    """Where each input of an ATen graph comes from, by the expressions of the Dynamo graph's."""
    return ["" if k is None else sources[k] for k in private_joint.input_positions(
        joint.graph.find_nodes(op="placeholder"))]


def category_of(source: str) -> str:
    """What an input of Dynamo's graph is, by the expression that it comes from."""
    found = re.findall(r"\['?_?(parameters|buffers)'?\]|\._(parameters|buffers)\[", source)
    words = {word for pair in found for word in pair}
    return PARAMETER if "parameters" in words else BUFFER if "buffers" in words else INPUT


def labels_of(sources: Sequence[str]) -> List[str]:
    """What inputs of Dynamo's graph are called: the module's arguments by name, or "input1", ...,
    parameters and buffers by their paths: "layers.0.weight".

    "" for what is neither, and for a name that is taken.
    """
    labels: List[str] = []
    inputs = 0
    for source in sources:
        label = ""
        if source and category_of(source) == INPUT:
            inputs += 1
            name = re.fullmatch(r"L\['(\w+)'\]", source)
            label = name.group(1) if name else "input%d" % inputs
        elif source.startswith("L["):  # of the module that is compiled, which the first key names
            label = ".".join(re.findall(r"\['([^']+)'\]", source)[1:])
        labels.append("" if label in labels else label)
    return labels
