"""A step that PyTorch traced, as planning asks for it."""
from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Dict, Optional, Set, Tuple

import torch

from ...graph.decisions import decisions_of
from ...graph.in_use import graph_in_use
from ...graph.schedule import Recompute, Schedule, expand
from ...graph.types import Graph
from ...memory.storage import plan_storage
from ...planning.network import Network
from ...planning.requests import pins
from ...plans.footprint import Footprint
from ...plans.plan import Plan, Status
from ...util.messages import listed
from ..capture.captured import Captured
from ..capture.costs import signature
from ..pytorch import private, private_ops
from ..pytorch.sizes import open_sizes
from ..rewrite.apply import usual_schedule
from ..times.profile import takes_bytes
from .request import Request

#: A note of plans for kernels of libraries without a profile.
UNCOUNTED = ("what operators allocate while they run, as convolutions do on a CPU, is not counted "
              "without a profile: costs=memonger.torch.profile(module, inputs, mode), or memonger "
              "profile")
#: A note of plans in the place of others.
PLANNED_AGAIN = ("made in the place of the plan that was given, whose step takes more than its "
                 "budget where it ran")
#: A note of plans of a module that is not in training mode.
IN_EVAL = ("the module is in eval mode: dropout is off and BatchNorm takes its running "
            "statistics; to plan a step of training call module.train() first")
#: A note of plans with :mod:`..rewrite.loss_layers`.
_IN_CHUNKS = ("the output layer and its cross-entropy run in chunks of rows, as in "
              "memonger.torch.linear_cross_entropy: results differ from PyTorch's in the last bits")
#: A note of plans that are made in a call of a DistributedDataParallel.
_BUCKETS = ("DistributedDataParallel's buckets for gradients, as many bytes as these, are not "
            "counted: leave that much room beside the budget")
#: Notes on ops whose results' sizes depend on values.
_AT_MOST = "sizes that depend on values count with the most that they can be: %s"
_NOT_COUNTED = "not counted, as nobody knows how large they can be: %s"


@dataclass(frozen=True)
class TracedNetwork(Network):
    """A training step of PyTorch."""

    captured: Captured
    request: Request
    #: The most for what the step allocates, below what a budget leaves; 0: none.
    most_bytes: int = 0
    #: The unplanned step, where the graph is that network with other operators.
    original: Optional[Plan] = None

    @property
    def graph(self) -> Graph:
        """The joint graph of forward and backward."""
        return self.captured.graph

    @cached_property
    def outside_bytes(self) -> Dict[str, int]:
        """What exists before the step, and the optimizer's state."""
        return self.captured.outside_bytes

    @cached_property
    def as_written(self) -> Schedule:
        """What runs without a plan: the module as it is written. Inductor computes some values
        again anyway.
        """
        return usual_schedule(self.captured, self.request.mode == "inductor")

    def pool_bytes(self, schedule: Schedule) -> int:
        """What the step allocates by a schedule."""
        return plan_storage(self.graph, schedule, "live").pool_bytes

    def held_bytes(self, schedule: Schedule) -> int:
        """What a microbatch holds from its forward pass to its backward pass: what forward
        allocates and leaves, and its inputs.
        """
        blocks = plan_storage(self.graph, schedule, "live").blocks
        run: Set[int] = set()
        turn = blocks.num_steps
        for at, step in enumerate(schedule.steps):
            if step.op in run or self.graph.ops[step.op].is_backward:
                turn = at
                break
            run.add(step.op)
        return self.outside_bytes["inputs"] + sum(
            block.bytes for block in blocks.blocks if block.start < turn <= block.end)

    def outside_of(self, schedule: Schedule) -> Dict[str, int]:
        """What is there beside a step by a schedule: other microbatches in flight, too."""
        others = self.request.in_flight - 1
        if others <= 0:
            return self.outside_bytes
        at_optimizer = self.captured.at_optimizer_bytes - self.pool_bytes(schedule)
        return {**self.outside_bytes,
                "microbatches": max(others * self.held_bytes(schedule), at_optimizer)}

    @cached_property
    def as_written_bytes(self) -> int:
        """What the step allocates without a plan."""
        return self.pool_bytes(self.as_written)

    @cached_property
    def unplanned(self) -> Footprint:
        """The network's step without a plan; a plan's file predicts one that keeps everything."""
        pool_bytes = self.original.baseline_pool_bytes if self.original else \
            self.captured.plain_pool_bytes or self.as_written_bytes
        kept = self.pool_bytes(expand(self.graph, {}))
        return Footprint(pool_bytes, self.outside_of(self.as_written),
                         kept if kept != pool_bytes else None)

    @property
    def costs(self) -> str:
        """Where op times come from."""
        return self.request.costs if self.request.measured_s else self.captured.costs

    @property
    def record(self) -> Dict[str, Any]:
        """Mode, version, a named optimizer, and what runs again anyway, for the plan's file."""
        named = self.request.optimizer
        anyway = sorted(set(self.as_written.recomputed()).difference(self.captured.checkpoints))
        return {"mode": self.request.mode, "torch": torch.__version__,
                **({"link_bytes_per_s": self.request.link_bytes_per_s}
                   if self.captured.moves else {}),
                **({"in_flight": self.request.in_flight} if self.request.in_flight else {}),
                "variants": self.request.variants,
                **({"again_anyway": tuple(self.graph.ops[op].name for op in anyway)}
                   if anyway else {}),
                **({"optimizer": named.name.lower(), "optimizer_params": {
                    name: value * 1 for name, value in named.options.items()
                    if isinstance(value, (int, float))}}
                   if named is not None and named.options is not None else {})}

    def pool_within(self, total_bytes: int) -> Footprint:
        """A total divided, or less for the pool after a trial that took more than predicted."""
        left_bytes = total_bytes - sum(self.outside_bytes.values())
        if self.request.in_flight <= 1:
            return Footprint(self.most_bytes or left_bytes, self.outside_bytes)
        pool_bytes = self.most_bytes or self.pool_like(self.as_written, total_bytes)
        return Footprint(pool_bytes, {**self.outside_bytes,
                                      "microbatches": max(left_bytes - pool_bytes, 0)})

    def pool_like(self, schedule: Schedule, total_bytes: int) -> int:
        """A total's share for one microbatch, which takes as much beside what it holds as by
        ``schedule``.
        """
        others = self.request.in_flight - 1
        beside_bytes = self.pool_bytes(schedule) - self.held_bytes(schedule)
        left_bytes = total_bytes - sum(self.outside_bytes.values())
        return (left_bytes + others * beside_bytes) // (others + 1)

    def apply(self, plan: Plan) -> Plan:
        """The plan, with what Inductor runs again anyway, where that takes no more."""
        if self.request.mode != "inductor":
            return plan
        kept = set(pins(self.graph, self.request.keep, "keep"))
        again: Recompute = {op: {} for op in set(self.as_written.recomputed()) - kept}
        steps = expand(graph_in_use(self.graph, plan.schedule), {
            **again, **decisions_of(self.graph, plan.schedule)}).steps
        both = replace(plan.schedule, steps=steps)
        pool_bytes = self.pool_bytes(both)
        if pool_bytes > plan.pool_bytes or both.steps == plan.schedule.steps:
            return plan
        return plan.changed(
            schedule=both, planned=replace(plan.planned, pool_bytes=pool_bytes),
            status=Status.FEASIBLE if plan.status is Status.OPTIMAL else plan.status)

    def confirm(self, plan: Plan, applied: Plan) -> Plan:
        """The plan that runs."""
        return self.as_plan(applied)

    def as_plan(self, plan: Plan) -> Plan:
        """A solver's answer beside the unplanned step, with notes on what differs."""
        notes = plan.notes
        fused = self.request.mode == "inductor"
        if not all(signature(node) in self.request.temporary_bytes for node in self.captured.nodes
                   if node is not None and takes_bytes(node, fused)):
            notes += (UNCOUNTED,)
        if self.request.in_eval:
            notes += (IN_EVAL,)
        if self.original:
            notes += (_IN_CHUNKS,)
        if private.inside_ddp():
            notes += (_BUCKETS,)
        notes += self._on_checkpoints(plan) + self._on_values()
        planned = replace(plan.planned, outside_bytes={
            **plan.planned.outside_bytes, **self.outside_of(plan.schedule)})
        return plan.changed(costs=self.costs, notes=notes, unplanned=self.unplanned,
                            planned=planned)

    def _on_checkpoints(self, plan: Plan) -> Tuple[str, ...]:
        """What a plan does with the module's own checkpoints, which the unplanned step has."""
        number_of = self.captured.checkpoints
        usual = [op for op in set(self.as_written.recomputed()) if op in number_of]
        if not usual:
            return ()
        kept = set(usual).difference(plan.schedule.recomputed())
        told = "undoes %d of %d of the module's own checkpoints, in whole or in part" % tuple(
            len({number_of[op] for op in ops}) for ops in (kept, usual)) if kept else \
            "the module's own checkpoints are as they are written"
        time_s = self.graph.time_s
        share = self.as_written.time_s(self.graph) / time_s - 1 if time_s else 0.0
        return ("%s; times are beside a step without them, and with them that takes %+.1f %%"
                % (told, 100 * share),)

    def _on_values(self) -> Tuple[str, ...]:
        """How values count whose sizes depend on others, as that of ``x[mask]`` does."""
        sized = [(self.graph.ops[op].name, open_sizes(node.meta["val"]))
                 for node, op in self.captured.ops_by_node.items()]
        unknown = [name for name, sizes in sized if None in map(private_ops.most, sizes)]
        known = [name for name, sizes in sized if sizes and name not in unknown]
        return tuple(note % listed(names) for note, names in (
            (_AT_MOST, known), (_NOT_COUNTED, unknown)) if names)
