"""A step of several graphs under one budget: a module that breaks its graph, or blocks.

PyTorch compiles each graph when the step first comes to it, and asks for its halves before it has
seen the next one. So a graph first runs by code that is right for any plan and keeps the least: its
backward runs the forward pass once more, as the plan says that is made when the module's call is
over and all graphs are known. From the second step on each graph runs by the plan.

A step is known by its graphs, in order, with their sizes. Where values decide which graph comes
next, all that begins otherwise than the steps so far is run in the first way, and planned.
"""
from __future__ import annotations

import contextlib
import logging
import operator
from dataclasses import dataclass, replace
from typing import (
    Any,
    Callable,
    Dict,
    Hashable,
    Iterable,
    List,
    Mapping,
    Optional,
    Sequence,
    Set,
    Tuple,
)

import torch
import torch.fx as fx

from ...graph.schedule import Schedule, expand
from ...plans.plan import Plan
from ...util.errors import InfeasibleBudget, InputError
from ..capture.captured import Captured
from ..capture.laid import Between, Run, divided, joined, lay
from ..capture.optimizer_moment import with_optimizer
from ..pytorch import private, private_joint, private_ops
from ..pytorch.module_step import (
    gradient_bytes,
    parameters_of,
    random_states,
    storage_bytes,
)
from ..pytorch.sizes import Values, in_force
from .backend import NO_GRADIENT, Backend, OnlyPlanning, halves
from .checks import check_inference
from .compilation import Code, PlannedGraph
from .network import TracedNetwork
from .part import Beginning, Call, Part, Step, storages_of
from .planning import best_plan, log_plan, make_plan
from .request import Request

logger = logging.getLogger("memonger.torch")
#: A note of plans for Inductor.
_NOT_TRIED = ("the code of several graphs is not tried: the step takes what is predicted, or some "
              "percent more; mode=\"eager\" takes no more")


@dataclass
class _Choice:
    """How a graph runs at one place of a step."""

    plan: Plan
    schedule: Optional[Schedule]


class StepInParts(Backend):
    """A backend of ``torch.compile`` that plans all graphs of a step as one."""

    def __init__(self, request: Request, module: Any, only_plan: bool = False,
                 graphs: Sequence[PlannedGraph] = ()):
        notes = (*request.notes, *((_NOT_TRIED,) if request.mode == "inductor" else ()))
        super().__init__(replace(request, variants="exact", host_budget_bytes=None, notes=notes),
                         only_plan)
        self.graphs += graphs
        self.module = module if isinstance(module, torch.nn.Module) else torch.nn.Module()
        self.parts: List[Part] = []
        self._now: Optional[Step] = None
        self._choices: Dict[Beginning, _Choice] = {}
        self._refusals: Dict[Beginning, InfeasibleBudget] = {}
        #: The last plan for graphs in this order, whatever their sizes, with the schedule of each.
        self._known: Dict[Tuple[int, ...], Tuple[Plan, List[Schedule]]] = {}
        #: What is compiled: the graph, by which schedule.
        self._compiling: Tuple[Optional[Part], Optional[Schedule]] = (None, None)
        self._asked = self.request

    def __call__(self, module: fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        if self._now is not None:
            self._now.window.end()  # compiling is no part of the step
        part = Part(len(self.parts), module, inputs, self.compile_part, self.run)
        self.parts.append(part)
        return part

    # ------------------------------------------------------------------ a step
    def step(self, call: Callable[[], Any], arguments: Any) -> Any:
        """Run a call of the module, which is a step's forward pass."""
        if self._now is not None:
            return call()
        self._now = now = Step(_tensors(arguments))
        try:
            if not self._choices:
                now.window.begin()
            result = call()
            now.window.end()
            if now.is_new or not now.calls and () not in self._choices:
                self._finish(now, result)
            return result
        finally:
            now.window.end()
            self._now = None

    def run(self, part: Part, arguments: Sequence[Any]) -> Any:
        """Run one graph of a step."""
        now = self._now
        if now is None:
            return self.step(lambda: self.run(part, arguments), arguments)
        now.window.end()
        key = part.symbols.key(arguments)
        now.beginning = (*now.beginning, (part.number, key))
        choice = self._choice(now.beginning)
        values = part.symbols.values(key)
        call = Call(part, values, [private_ops.storage_reference(a) for a in arguments],
                     now.between(arguments))
        now.calls.append(call)
        if now.is_new or choice is None or now.plan is not None and choice.plan is not now.plan:
            call.is_new = True
            self._prepare(now, part, arguments, values)
            outputs = part.code(None, values)(*arguments)
        else:
            now.plan = choice.plan
            outputs = part.code(choice.schedule, values)(*arguments)
        call.outputs = [private_ops.storage_reference(o) for o in outputs]
        if now.is_new:
            now.window.begin(outputs)
        return outputs

    def _choice(self, beginning: Beginning) -> Optional[_Choice]:
        """How the last graph of this beginning runs: as at these sizes, or at larger ones."""
        if beginning not in self._choices:
            for known, choice in self._choices.items():
                if len(known) == len(beginning) and all(
                        mine == other and all(map(operator.le, sizes, larger))
                        for (mine, sizes), (other, larger) in zip(beginning, known)):
                    return choice
        return self._choices.get(beginning)

    def _prepare(self, now: Step, part: Part, arguments: Sequence[Any], values: Values) -> None:
        """Note what a refusal is to put back, and measure what is new at these sizes."""
        if not now.is_new:
            now.is_new, now.random = True, random_states()
        now.undo += [(t, t.detach().clone()) for t in part.written(arguments)]
        if self.measures and part.symbols.places and part.trains:
            assert part.captured is not None
            with in_force(values):
                self.measure(part.captured.joint, arguments)

    def _finish(self, now: Step, result: Any) -> None:
        """Plan the step that was new."""
        try:
            if now.beginning in self._refusals:
                raise self._refusals[now.beginning]
            behind = now.between(_tensors(result))
            plan, schedules = self._planned(now, self._laid(now, result, behind))
            firsts = schedules if self.request.mode == "eager" else \
                self._by_eager_kernels(now, self._laid(now, result, behind, True))
        except InfeasibleBudget as error:
            self._refusals[now.beginning] = error
            now.restore()
            raise
        for call in now.calls:
            call.part.pending.clear()
        for place, (call, schedule, first) in enumerate(zip(now.calls, schedules, firsts)):
            self._choices[now.beginning[:place + 1]] = _Choice(plan, schedule)
            if call.is_new:
                call.part.pending.append(first)
        if not now.calls:
            self._choices[()] = _Choice(plan, None)

    def _laid(self, now: Step, result: Any, behind: Between, eager: bool = False) -> Captured:
        """The graphs of the step as one, as the mode runs them, or by eager kernels."""
        runs = []
        for call in now.calls:
            captured = call.part.captured if eager else call.part.fused or call.part.captured
            assert captured is not None
            with in_force(call.values or None):
                captured = replace(captured, graph=captured.graph_now())
            runs.append(Run(captured, call.inputs, call.outputs, call.before))
        held = storages_of([*self.module.parameters(), *self.module.buffers()])
        laid = lay(runs, behind, held | storages_of(now.given), storages_of(_tensors(result)),
                   self._others(now, held))
        trained = parameters_of(self.module)
        laid.gradient_bytes = gradient_bytes(trained, self.request.in_flight)
        takes = None if self.request.optimizer is None else self.request.optimizer.bytes_of(trained)
        return with_optimizer(laid, takes, self.request.plan, self.request.in_flight)

    def _by_eager_kernels(self, now: Step, laid: Captured) -> List[Schedule]:
        """The schedule of each graph in the first step, which eager kernels run."""
        request = replace(self._asked, mode="eager", budget=self.request.budget,
                          temporary_bytes=self.known_bytes, given=None, plan=None)
        try:
            plan = best_plan([TracedNetwork(laid, request)])
        except InfeasibleBudget as error:
            if not isinstance(error.best_plan, Plan):
                raise
            plan = error.best_plan
        return divided(laid, plan.schedule)

    def _others(self, now: Step, held: Set[Hashable]) -> Mapping[str, int]:
        """Bytes of what no graph reads: parameters and their gradients, buffers, arguments.

        ``held``: storages of parameters and buffers.
        """
        read = {storage for call in now.calls for storage in call.inputs}

        def unread(tensors: Iterable[torch.Tensor], known: Set[Hashable] = read) -> int:
            return storage_bytes(t for t in tensors
                                 if private_ops.storage_reference(t) not in known)
        return {"other parameters": unread(self.module.parameters()),
                "other buffers": unread(self.module.buffers()),
                "other inputs": unread(now.given, read | held),
                "gradients": unread(parameters_of(self.module))}

    def _planned(self, now: Step, laid: Captured) -> Tuple[Plan, List[Schedule]]:
        """A plan, with the schedule of each graph: that of other sizes, where it fits here, too."""
        request = replace(self._asked, budget=self.request.budget, plan=self.request.plan,
                          progress=self.request.progress, temporary_bytes=self.known_bytes)
        numbers = tuple(call.part.number for call in now.calls)
        if numbers in self._known and self.budget_bytes is not None:
            plan, schedules = self._known[numbers]
            network, schedule = TracedNetwork(laid, request), joined(laid, schedules)
            if network.pool_bytes(schedule) + sum(
                    network.outside_of(schedule).values()) <= self.budget_bytes:
                return plan, schedules
            logger.info("new sizes, at which the plan at hand takes more than the budget: planning "
                        "again")
        if now.calls and not any(call.part.trains for call in now.calls):
            if self.only_plan:
                raise InputError(NO_GRADIENT)
            plan = make_plan(laid, replace(request, plan=None, unplanned=True))
            check_inference(self, Code(self.run, PlannedGraph(laid, plan), False), ())
            return plan, [plan.schedule] * len(now.calls)
        self.tell("planning")
        request = self._at_knee(laid, request)
        fingerprint = laid.graph.fingerprint, 0, False
        if fingerprint not in self._plans:
            self._plans[fingerprint] = best_plan([TracedNetwork(laid, request)])
            if not request.unplanned:
                log_plan(self._plans[fingerprint])
            self.graphs.append(PlannedGraph(laid, self._plans[fingerprint]))
        plan = self._plans[fingerprint]
        self._fix_budget(plan.budget_bytes)
        if self.only_plan:
            raise OnlyPlanning()
        self._known[numbers] = plan, divided(laid, plan.schedule)
        return self._known[numbers]

    # ------------------------------------------------------------------ a graph
    def compile_part(self, part: Part, module: fx.GraphModule, inputs: Sequence[Any],
                     schedule: Optional[Schedule]) -> Callable[..., Any]:
        """Code of a graph by a schedule, or by one that serves any plan, of eager kernels."""
        self.tell("compiling")
        self._compiling = part, schedule
        if self.request.mode == "eager":
            return self._eager_code(part, module, inputs)
        if schedule is not None:
            return self.code(module, part.sources, inputs).call
        asked = self.request
        self.request = replace(asked, mode="eager")
        try:
            call = self._eager_code(part, private.copied_graph(module), inputs)
        finally:
            self.request = asked
        if not part.trains:
            return self.code(module, part.sources, inputs).call
        if part.fused is None:
            with contextlib.suppress(OnlyPlanning):
                self.code(private.copied_graph(module), part.sources, inputs)
        return call

    def _eager_code(self, part: Part, module: fx.GraphModule,
                    inputs: Sequence[Any]) -> Callable[..., Any]:
        code = self.code(module, part.sources, inputs)
        if part.captured is None and code.planned is not None:
            part.captured = code.planned.captured
        return code.call

    def _divided(self, forms: Iterable[Captured], request: Request, inputs: Sequence[Any],
                 original: Optional[Plan], kwargs: Mapping[str, Any]) -> private_joint.Modules:
        captured = next(iter(forms))
        part, schedule = self._compiling
        assert part is not None
        if request.mode == "inductor" and part.fused is None:
            self._asked, part.fused = request, captured
            raise OnlyPlanning()
        if part.captured is None:
            part.captured, part.trains = captured, True
            if self._asked.mode == "eager":
                self._asked = request
        if schedule is None and not captured.sized_by_values:
            return part.halves_for_any(captured)
        if schedule is None:
            schedule = expand(captured.graph, {op: {} for op, item in enumerate(captured.graph.ops)
                                               if item.recomputable and not item.is_backward})
        return halves(captured, schedule, request.mode, inputs, kwargs)

    def _without_gradient(self, graph: fx.GraphModule,
                          names: Sequence[str]) -> List[PlannedGraph]:
        return [self._as_it_is(graph, names)]

    def _backward(self) -> Callable[..., Any]:
        part, schedule = self._compiling
        assert part is not None
        usual = super()._backward()
        return lambda half, inputs: usual(half, inputs) if schedule is not None or \
            part.captured is None or part.captured.sized_by_values else part.backward_for_any(half)


def in_step(whole: Backend, module: Any, call: Callable[..., Any],
            **options: Any) -> Callable[..., Any]:
    """A call of a module or function whose graphs ``whole`` gets, as one step of it.

    ``options``: with which PyTorch's containers in the module are compiled, too.
    """
    inside = private.compiled_inside(module, **options) \
        if isinstance(module, torch.nn.Module) else {}

    def run(*args: Any, **named: Any) -> Any:
        with private.called_so(inside):
            if not isinstance(whole, StepInParts):
                return call(*args, **named)
            return whole.step(lambda: call(*args, **named), (args, named))
    return run


def _tensors(value: Any) -> List[torch.Tensor]:
    """The tensors in arguments or a result, also in objects that are no containers to PyTorch."""
    found: List[torch.Tensor] = []
    for leaf in private_ops.pytree.tree_leaves(value):
        if isinstance(leaf, torch.Tensor):
            found.append(leaf)
        elif hasattr(leaf, "__dict__") and not isinstance(leaf, (type, torch.nn.Module)):
            found += [t for t in private_ops.pytree.tree_leaves(vars(leaf))
                      if isinstance(t, torch.Tensor)]
    return found
