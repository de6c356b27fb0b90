"""Inductor under a plan: its configuration, its caches, and a budget that the code keeps."""
from __future__ import annotations

import functools
import hashlib
from dataclasses import replace
from pathlib import Path
from typing import Any, Callable, Dict, Mapping, Optional, Sequence, Tuple

import torch.fx as fx

from ...memory.timeline import timeline
from ...planning.trial import code_within_budget
from ...plans.plan import Plan
from ...util.errors import InfeasibleBudget
from ..capture.optimizer_moment import pool_at_optimizer
from ..pytorch import private, private_joint, private_scheduler
from ..times import stored_profiles
from .compilation import Compilation
from .request import Request
from .trial import trial_bytes, written_positions


def compiled(compilation: Compilation, module: fx.GraphModule, inputs: Sequence[Any],
             partition: Callable[..., private_joint.Modules],
             arguments: Optional[Sequence[Any]] = None) -> Callable[..., Any]:
    """Compiled code that keeps the budget: tried, and planned again where it does not.

    ``arguments``: of the call that the code is tried with; None where it is not tried.

    Raises InfeasibleBudget where it still takes more after that.
    """
    graphs, before = compilation.graphs, len(compilation.graphs)
    planned = not compilation.request.unplanned

    def make(most_bytes: Mapping[str, int]) -> Tuple[Callable[..., Any], Optional[Plan]]:
        if most_bytes:
            compilation.tell("planning again for less, as the code takes more than the plan says")
        compilation.tightened = most_bytes
        del graphs[before:]
        try:
            call = private.run_inductor(
                private.copied_graph(module), inputs, patches(compilation.request, partition),
                tried=planned, lowering=compilation.lowering)
        except Exception as error:
            inner = private.inner_error(error)
            if isinstance(inner, InfeasibleBudget):
                raise inner from None
            raise
        return call, graphs[-1].plan if len(graphs) > before else None

    if compilation.only_plan:  # there is no code, of which to try the smallest plan's
        return make({})[0]

    def unplanned() -> Tuple[Callable[..., Any], Optional[Plan]]:
        request = compilation.request
        budget = request.plan.budget_bytes if request.plan else request.budget
        compilation.request = replace(request, unplanned=True, budget=budget)
        try:
            return make({})
        finally:
            compilation.request = request

    def used_bytes(call: Callable[..., Any], plan: Plan) -> Optional[int]:
        if not planned or arguments is None:
            return None
        compilation.tell("trying a step")
        used = trial_bytes(call, arguments, written_positions(graphs[-1].captured.joint))
        return used and max(used, pool_at_optimizer(plan.graph))

    call, plan = code_within_budget(
        make, used_bytes, unplanned, ", or ask for mode=\"eager\", whose peaks are exact")
    if plan is not None:
        graphs[-1].plan = plan
    return call


def in_order(plan: Plan) -> Dict[str, Any]:
    """Inductor's configuration under which code holds what the plan says."""
    shown = timeline(plan.graph, plan.schedule, "live")
    made, blocks = shown.storage.program.values, shown.storage.blocks
    end = {block: item.end for block, item in enumerate(blocks.blocks)}
    values = []
    for value in range(len(made) - 1, -1, -1):
        block = blocks.block_of[value]
        if block >= 0:
            values.append((made[value].step, end[block], blocks.blocks[block].bytes))
            end[block] = made[value].step  # which writes over what was there
    name = repr((plan.graph.fingerprint, plan.schedule)).encode()
    return private_scheduler.in_order(private_scheduler.Held(
        shown.live_bytes, values, hashlib.sha256(_sources() + name).hexdigest()))


def patches(request: Request, partition: Callable[..., private_joint.Modules],
            key: Optional[str] = None) -> Dict[str, Any]:
    """Inductor's configuration under a plan.

    ``key`` names in caches of whole steps what ``partition`` makes; None: there is no such cache.
    """
    return {"custom_partitioner_fn": private.Partitioner(partition, key),
            **({} if request.unplanned else private.LEAST_LIVE)}


@functools.lru_cache(maxsize=None)
def _sources() -> bytes:
    """What a plan depends on besides its request: the code that makes it."""
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parents[2].rglob("*.py")):
        digest.update(path.read_bytes())
    return digest.digest()


def cache_key(request: Request) -> str:
    """Names in caches of whole steps all that decides a plan: sources, budget, costs, decisions."""
    digest = hashlib.sha256(_sources())
    decisions = request.plan.schedule if request.plan else None
    digest.update(repr((request.budget, request.mode, request.time_limit, request.max_clones,
                        request.overhead, request.method, tuple(request.keep),
                        tuple(request.recompute), request.host_budget_bytes,
                        request.link_bytes_per_s, request.unplanned, request.kept, request.costs,
                        sorted(request.measured_s.items()),
                        sorted(request.temporary_bytes.items()), decisions)).encode())
    if request.costs == "auto":
        digest.update(stored_profiles.fingerprint().encode())
    return digest.hexdigest()
