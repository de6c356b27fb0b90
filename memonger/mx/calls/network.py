"""A network of MXNet as planning asks for it."""
from __future__ import annotations

import logging
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Collection, Dict, FrozenSet, Mapping, Optional

from ...graph.cache import Cache
from ...graph.schedule import expand
from ...graph.types import Graph
from ...memory import arena
from ...memory.storage import plan_storage
from ...planning.estimate import Estimate
from ...plans.footprint import Footprint
from ...plans.plan import Plan
from ...util.gc_pause import paused
from ...util.units import format_bytes
from ..capture.devices import away
from ..plugin import loading as native
from ..rewrite.apply import apply_plan_to, asks_for_arena, is_planned, unforced
from ..rewrite.variant_graph import with_variants
from ..symbol.common_subexpressions import to_json
from .runner import Form, Runner
from .symbol_record import SymbolRecord

logger = logging.getLogger("memonger")
#: Categories that only stock MXNet has, or counts otherwise.
_OF_STOCK = ("never_written", "objects", "layout_copies")


#: Graphs that offer variants, by whether they must be exact, or by the numbers of those that are
#: left out: the plans of a sweep share them.
_OFFERING: Cache[Graph] = Cache()


@dataclass(frozen=True)
class BoundNetwork:
    """A :class:`memonger.planning.network.Network` of MXNet."""

    #: As users have it; where it was opened for a plan, without one.
    symbol: Any
    graph: Graph
    outside_bytes: Mapping[str, int]
    #: On stock MXNet.
    unplanned: Footprint
    #: Where op times come from.
    costs: str
    #: The symbol as it was bound: without the user's marks, which are hints on ops.
    form: Form = field(repr=False)
    runner: Runner = field(repr=False)
    #: Costs and optimizer as they were asked for, where a name tells them.
    asked: Mapping[str, Any] = field(repr=False)
    #: MXNet's objects for each op of the unplanned symbol; 0 where they are not counted.
    unplanned_objects_bytes_per_op: int
    #: Whether plans may ask for an arena.
    has_arena: bool = True
    #: Without a plan MXNet runs ops again by a rule of its own.
    mirrored: bool = False

    @property
    def storage(self) -> str:
        """How the memory of a plan is assigned; see :mod:`memonger.memory.storage`."""
        model = native.storage_model()
        fits = self.has_arena and arena.fits(self.graph)
        return "best" if model == "arena" and not fits else model

    @property
    def reserve_bytes(self) -> int:
        """Copies in other layouts that plans in whole buffers have where the unplanned ops do."""
        return sum(self.runner.copies(self.form.captured, "best").values()) \
            if self.storage == "best" else 0

    @property
    def record(self) -> Dict[str, Any]:
        """Shapes, types, gradient requests, costs and optimizer, to be saved with a plan."""
        return {**self.runner.binding.record(self.form.captured.arguments), **self.asked}

    @cached_property
    def elsewhere(self) -> FrozenSet[int]:
        """Ops of other devices than the one planned for."""
        return frozenset(number for number, op in enumerate(self.graph.ops)
                         if away(self.form.captured, op))

    @property
    def is_foreseen(self) -> bool:
        """False on a GPU, where what a form takes outside the pool shows when it is bound."""
        return self.runner.device is None

    def named(self, name: str) -> BoundNetwork:
        """The same, called ``name``."""
        return replace(self, graph=replace(self.graph, name=name))

    def offering(self, variants: str) -> BoundNetwork:
        """The same, its graph offering the operator variants that the symbol allows."""
        if variants == "none":
            return self
        exact_only = variants == "exact"
        return replace(self, graph=_OFFERING.of(
            self.graph, exact_only, lambda: self._graph_with_variants(exact_only)))

    @paused()
    def _graph_with_variants(self, exact_only: bool) -> Graph:
        graph = with_variants(
            self.graph, to_json(unforced(self.symbol)), exact_only, self.runner.read,
            self.runner.times_and_workspaces, on_gpu=self.runner.device is not None)
        return replace(graph, variants=tuple(
            variant for variant in graph.variants
            if self.elsewhere.isdisjoint(op for op, _ in variant.choices)))

    def without_variants(self, numbers: Collection[int]) -> BoundNetwork:
        """The same, without some of the variants that it offers."""
        graph = self.graph
        return replace(self, graph=_OFFERING.of(graph, frozenset(numbers), lambda: replace(
            graph, variants=tuple(variant for number, variant in enumerate(graph.variants)
                                  if number not in numbers))))

    def as_it_comes(self) -> BoundNetwork:
        """The same, taking no more outside the pool than on stock MXNet."""
        stock = self.unplanned.outside_bytes
        most = stock["workspace"]
        objects = self.unplanned_objects_bytes_per_op
        if self.outside_bytes["workspace"] <= most and "never_written" not in stock \
                and "layout_copies" not in stock and self.graph.objects_bytes_per_op == objects:
            return self
        ops = self.graph.ops
        graph = self.graph.with_times([op.time_s for op in ops],
                                      [min(op.workspace_bytes, most) for op in ops])
        return replace(
            self, graph=replace(graph, objects_bytes_per_op=objects),
            outside_bytes={**self.outside_bytes,
                           "workspace": min(most, self.outside_bytes["workspace"]),
                           **{name: stock[name] for name in _OF_STOCK if name in stock}})

    def in_whole_buffers(self) -> Optional[BoundNetwork]:
        """On a GPU the same without an arena, which is allocated before MXNet tunes convolutions.

        Whole buffers are allocated after it. None where plans have no arena.
        """
        if self.runner.device is None:
            return None
        changed = replace(self, has_arena=self.has_arena and not self.runner.tunes(self.graph))
        return changed if changed.storage != self.storage else None

    def pool_within(self, total_bytes: int) -> Footprint:
        """A total divided: what is left for the pool, beside all else by category."""
        within = self.runner.pool_within(
            self.form, total_bytes - sum(self.outside_bytes.values()), self.storage)
        return replace(within, outside_bytes={**self.outside_bytes, **within.outside_bytes})

    def apply(self, plan: Plan) -> Any:
        """The symbol with the plan's decisions on it."""
        return apply_plan_to(self.symbol, plan)

    def confirm(self, plan: Plan, applied: Any) -> Plan:
        """The plan with the bytes that an executor of ``applied`` takes."""
        taken = self.runner.footprint(self.runner.read(applied), applied, plan.storage)
        predicted, notes = None, plan.notes
        if taken.pool_bytes != plan.pool_bytes:
            predicted = plan.pool_bytes
            notes += ("the pool is what MXNet allocates, %d bytes; %d were predicted"
                      % (taken.pool_bytes, predicted),)
            logger.warning(notes[-1])
        outside = {**plan.fixed_bytes, **taken.outside_bytes}
        if "layout_copies" in plan.fixed_bytes:  # of a network that runs as on stock MXNet
            outside["layout_copies"] = plan.fixed_bytes["layout_copies"]
        return self.as_plan(plan.changed(notes=notes, planned=Footprint(
            taken.pool_bytes, outside, predicted)))

    def as_plan(self, plan: Plan) -> Plan:
        """A solver's answer with its symbol, beside what stock MXNet takes."""
        predicted, notes = None, plan.notes
        unplanned_bytes = self.unplanned.pool_bytes
        if self.mirrored:
            predicted = plan.baseline_pool_bytes
            notes += ("MXNET_BACKWARD_DO_MIRROR is set: without a plan MXNet mirrors ops, and its "
                      "pool takes %d bytes, or %d with the variable unset; with the plan it "
                      "mirrors none" % (unplanned_bytes, predicted),)
        elif unplanned_bytes != plan.baseline_pool_bytes and self.runner.device is not None:
            predicted = plan.baseline_pool_bytes
            notes += ("without a plan MXNet fuses point-wise ops there, and its pool takes %d "
                      "bytes; unfused, as in planned executors, %d"
                      % (unplanned_bytes, predicted),)
        return plan.changed(
            notes=notes, costs=self.costs, record=SymbolRecord.of(self.symbol),
            unplanned=replace(self.unplanned, predicted_pool_bytes=predicted))

    def advice(self, plan: Plan) -> str:
        """That convolutions need not be tuned, where that takes bytes."""
        tuning = plan.fixed_bytes.get("autotuning", 0)
        return "" if not tuning else \
            ", %s of it to tune convolutions (MXNET_CUDNN_AUTOTUNE_DEFAULT=0 spares that)" \
            % format_bytes(tuning)

    def estimate(self) -> Estimate:
        """Of a network without a plan what MXNet takes alone; of others what this process takes."""
        live = plan_storage(self.graph, expand(self.graph, {}), "live")
        if not is_planned(self.symbol):
            taken, storage, graph = self.unplanned, "stock", self.as_it_comes().graph
        else:
            storage, graph = native.storage_model(), self.graph
            if storage == "arena":
                storage = self.storage if asks_for_arena(self.symbol) else "best"
            taken = self.runner.footprint(self.form.as_run, self.form.symbol, storage)
            taken = replace(taken, outside_bytes={**self.outside_bytes, **taken.outside_bytes})
        return Estimate({**taken.outside_bytes, "pool": taken.pool_bytes}, taken.pool_bytes,
                        live.pool_bytes, graph, storage)
