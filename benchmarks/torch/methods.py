"""What is compared: memonger, PyTorch's own budget, and checkpoints by hand."""
from __future__ import annotations

from typing import Any, Callable

import torch
import torch.nn as nn
from torch.utils.checkpoint import checkpoint

import memonger.torch as mt
from memonger.torch import private
from memonger.torch.eager import runner


def memonger(module: nn.Module, budget: Any, mode: str, costs: Any, time_limit: float) -> Any:
    """The module under a plan of ours; budget None: the same without a plan."""
    return mt.compile(module, budget, mode, costs=costs, time_limit=time_limit)


def torch_budget(module: nn.Module, share: float, mode: str) -> Any:
    """PyTorch's ``activation_memory_budget``."""
    def backend(graph: Any, inputs: Any) -> Callable[..., Any]:
        with torch._functorch.config.patch(activation_memory_budget=share,
                                           enable_autograd_cache=False):
            if mode == "inductor":
                return private.run_inductor(graph, inputs, {"fx_graph_cache": False})
            return private.run_aot(graph, inputs, runner,
                                   private.partitioners.min_cut_rematerialization_partition)
    return torch.compile(module, backend=backend, fullgraph=True)


def by_blocks(module: nn.Module) -> nn.Module:
    """Each block of the network is a checkpoint; of a U-Net those on the way down, too."""
    for blocks in ("blocks", "down"):
        for block in getattr(module.net, blocks, ()):
            block.forward = checkpointed(block.forward)
    return module


def checkpointed(forward: Callable[..., Any]) -> Callable[..., Any]:
    """The call as a checkpoint: its values are computed again in backward."""
    return lambda *args: checkpoint(forward, *args, use_reentrant=False)
