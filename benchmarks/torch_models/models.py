"""All models by name, and what trains them: a loss, half precision, autocast."""
from __future__ import annotations

import contextlib
from typing import Any, Callable, ContextManager, Dict, List, Tuple

import torch
from torch import nn

from . import diffusion, language, vision

#: Makers of modules with their inputs, by name of the model.
MODELS: Dict[str, Callable[[str], Tuple[Any, Any]]] = {
    **dict.fromkeys(language.CAUSAL, language.causal),
    **dict.fromkeys(language.MASKED, language.masked),
    **dict.fromkeys(language.PAIRED, language.paired),
    **dict.fromkeys(vision.SEEN, vision.seen),
    "clip": vision.clip, "detr": vision.detr,
    **{"timm_" + name: lambda made: vision.timm(made[len("timm_"):]) for name in vision.TIMM},
    **{"tv_" + name: lambda made: vision.torchvision(made[len("tv_"):])
       for name in vision.TORCHVISION},
    **{"df_" + name: lambda made: diffusion.DIFFUSERS[made[len("df_"):]]()
       for name in diffusion.DIFFUSERS}}
#: Those that are also trained in bfloat16, and under autocast.
_LOW = ("llama", "bert", "hf_vit", "timm_resnet50", "df_unet")
NAMES: List[str] = [*MODELS, *(name + kind for name in _LOW for kind in ("@bf16", "@autocast"))]


class WithLoss(nn.Module):
    """A model that gives its own loss, or the sum of the mean squares of what it gives."""

    def __init__(self, net: nn.Module):
        super().__init__()
        self.net = net

    def forward(self, *args: Any, **named: Any) -> Any:
        output = self.net(*args, **named)
        if isinstance(output, dict) and output.get("loss") is not None:
            return output["loss"]
        found: List[torch.Tensor] = []
        todo = [output]
        while todo:
            value = todo.pop()
            if isinstance(value, dict):
                todo += value.values()
            elif isinstance(value, (tuple, list)):
                todo += value
            elif isinstance(value, torch.Tensor) and value.is_floating_point():
                found.append(value)
        return sum(value.float().pow(2).mean() for value in found)


def build(name: str) -> Tuple[nn.Module, Any, Callable[[], ContextManager[Any]]]:
    """A model in training mode, its inputs, and the context that it runs in."""
    base, _, kind = name.partition("@")
    net, inputs = MODELS[base](base)
    module = WithLoss(net).train()
    if kind == "bf16":
        module = module.to(torch.bfloat16)
        inputs = torch.utils._pytree.tree_map(
            lambda v: v.to(torch.bfloat16) if isinstance(v, torch.Tensor)
            and v.is_floating_point() else v, inputs)
    if kind == "autocast":
        return module, inputs, lambda: torch.autocast("cpu", torch.bfloat16)
    return module, inputs, contextlib.nullcontext
