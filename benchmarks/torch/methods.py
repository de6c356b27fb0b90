"""What is compared: memonger, PyTorch's own budget, and checkpoints by hand."""
from __future__ import annotations

from functools import partial
from typing import Any, Callable, Tuple

import torch
import torch.nn as nn
from torch.utils.checkpoint import (
    CheckpointPolicy,
    SelectiveCheckpointContext,
    checkpoint,
    create_selective_checkpoint_contexts,
)
from torch.utils.flop_counter import flop_registry

import memonger.torch as mt
from memonger.torch.pytorch import private, private_joint
from memonger.torch.rewrite.eager import runner

#: What selective checkpoints keep: matrix products, convolutions and attention, of which PyTorch's
#: table lacks that of a CPU before 2.15.
KEPT = {*flop_registry, torch.ops.aten._scaled_dot_product_flash_attention_for_cpu}


def memonger(module: nn.Module, budget: Any, mode: str, costs: Any, time_limit: float,
             host: Any = None) -> Any:
    """The module under a plan of ours; budget None: the same without a plan."""
    return mt.compile(module, budget, mode, costs=costs, time_limit=time_limit, host=host)


def torch_budget(module: nn.Module, share: float, mode: str, solver: str = "dp") -> Any:
    """PyTorch's ``activation_memory_budget``, with one of its solvers."""
    def backend(graph: Any, inputs: Any) -> Callable[..., Any]:
        with torch._functorch.config.patch(activation_memory_budget=share,
                                           activation_memory_budget_solver=solver,
                                           enable_autograd_cache=False):
            if mode == "inductor":
                return private.run_inductor(graph, inputs, {"fx_graph_cache": False})
            return private.run_aot(graph, inputs, runner, runner,
                                   private_joint.partitioners.min_cut_rematerialization_partition,
                                   runner)
    return torch.compile(module, backend=backend, fullgraph=True)


def as_written(module: nn.Module, mode: str) -> Any:
    """The module with the checkpoints that it has: as it is, or compiled without a budget."""
    return torch.compile(module, fullgraph=True) if mode == "inductor" else module


def by_blocks(module: nn.Module, **options: Any) -> nn.Module:
    """Each block of the network is a checkpoint; of a U-Net those on the way down, too.

    ``options``: of ``torch.utils.checkpoint.checkpoint``.
    """
    for blocks in ("blocks", "down"):
        for block in getattr(getattr(module, "net", module), blocks, ()):
            block.forward = checkpointed(block.forward, **options)
    return module


def checkpointed(forward: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    """The call as a checkpoint: its values are computed again in backward."""
    return partial(checkpoint, forward, use_reentrant=False, **options)


def selective(module: nn.Module, every: int = 1) -> nn.Module:
    """Each block a selective checkpoint: results of matrix products, convolutions and attention
    are kept, or of every so many one; all others are computed again.
    """
    return by_blocks(module, context_fn=partial(_policy, every))


def _policy(every: int) -> Tuple[Any, Any]:
    """The two contexts of one checkpoint."""
    seen = {False: 0, True: 0}

    def keeps(context: SelectiveCheckpointContext, op: Any, *args: Any,
              **kwargs: Any) -> CheckpointPolicy:
        if getattr(op, "overloadpacket", None) not in KEPT:
            return CheckpointPolicy.PREFER_RECOMPUTE
        seen[context.is_recompute] += 1
        return CheckpointPolicy.PREFER_RECOMPUTE if seen[context.is_recompute] % every else \
            CheckpointPolicy.MUST_SAVE
    return create_selective_checkpoint_contexts(keeps)
