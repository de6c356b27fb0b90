"""The networks by name, each with its loss and inputs of a given batch."""
from __future__ import annotations

from typing import Callable, Dict, NamedTuple, Tuple

import torch
import torch.nn as nn
import torch.nn.functional as F

from memonger.torch import linear_cross_entropy

from . import convolutional as conv
from . import sequential as seq
from .held_out import HELD_OUT

Inputs = Tuple[torch.Tensor, torch.Tensor]


class WithLoss(nn.Module):
    """A network that gives the mean cross-entropy of its output."""

    def __init__(self, net: nn.Module):
        super().__init__()
        self.net = net

    def forward(self, x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        output = self.net(x)
        if output.dim() == 3:  # words: batch, time, classes
            return F.cross_entropy(output.flatten(0, 1), target.flatten())
        return F.cross_entropy(output, target)


class InChunks(nn.Module):
    """GPT with its output layer and cross-entropy in chunks: the same loss."""

    def __init__(self, net: seq.GPT):
        super().__init__()
        self.net = net

    def forward(self, x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return linear_cross_entropy(self.net.hidden(x), self.net.embedding.weight, target)


class Net(NamedTuple):
    """How to build a network in its size and in a tiny one."""

    build: Callable[[], nn.Module]
    tiny: Callable[[], nn.Module]
    batch: int
    inputs: Callable[[int, bool], Inputs]


def images(batch: int, tiny: bool) -> Inputs:
    size = 64 if tiny else 224
    classes = 10 if tiny else 1000
    return torch.randn(batch, 3, size, size), torch.randint(0, classes, (batch,))


def pictures(batch: int, tiny: bool) -> Inputs:
    size = 64 if tiny else 256
    return torch.randn(batch, 3, size, size), torch.randint(0, 2, (batch, size, size))


def volumes(batch: int, tiny: bool) -> Inputs:
    size = 16 if tiny else 64
    return torch.randn(batch, 1, size, size, size), torch.randint(0, 2, (batch, size, size, size))


def words(vocabulary: int, length: int) -> Callable[[int, bool], Inputs]:
    def made(batch: int, tiny: bool) -> Inputs:
        shape, last = ((batch, 64), 1000) if tiny else ((batch, length), vocabulary)
        return torch.randint(0, last, shape), torch.randint(0, last, shape)
    return made


def _gpt(layers: int, width: int = 768, heads: int = 12, dropout: float = 0.1) -> Net:
    return Net(lambda: seq.GPT(layers, width, heads, dropout=dropout),
               lambda: seq.GPT(3, 96, 4, 1000, 64, dropout), 4, words(50257, 512))


NETS: Dict[str, Net] = {
    "resnet50": Net(conv.resnet, lambda: conv.resnet((2, 2), 16, 10), 32, images),
    "vgg16": Net(conv.vgg, lambda: conv.vgg(8, 32, 64, 10), 32, images),
    "densenet121": Net(conv.densenet, lambda: conv.densenet((3, 3), 16, 10), 32, images),
    "mobilenetv2": Net(conv.mobilenet, lambda: conv.mobilenet(0.25, 10), 32, images),
    "googlenet": Net(conv.googlenet, lambda: conv.googlenet(8, 10), 32, images),
    "unet": Net(conv.UNet, lambda: conv.UNet(8, 3), 4, pictures),
    "unet3d": Net(lambda: conv.UNet(32, 3, 3), lambda: conv.UNet(4, 2, 3), 2, volumes),
    "gpt2": _gpt(12), "gpt2_24": _gpt(24), "gpt2_48": _gpt(48),
    "vit_b": Net(seq.ViT, lambda: seq.ViT(3, 96, 4, 8, 64, 10), 32, images),
    "lstm": Net(seq.LSTM, lambda: seq.LSTM(1000, 32), 20, words(10000, 35)),
}


def unfilled(name: str, batch: int) -> Tuple[nn.Module, Inputs]:
    """A network whose memory nobody touches, and inputs on "meta".

    Without dropout: PyTorch's budget draws it anew where it runs again.
    """
    net = NETS[name]
    with torch.device("meta"):
        module = WithLoss(net.build()).train()
    module.to_empty(device="cpu")
    for part in module.modules():
        if isinstance(part, nn.Dropout):
            part.p = 0.0
        elif isinstance(getattr(part, "dropout", None), float):
            part.dropout = 0.0
    x, target = net.inputs(batch or net.batch, False)
    return module, (x.to("meta"), target.to("meta"))


def build(name: str, batch: int = 0, tiny: bool = False,
          device: str = "cpu") -> Tuple[nn.Module, Inputs]:
    """The network with its loss in training mode, and inputs; the same values for each call.

    ``name`` with "_chunks" behind it: a GPT with the loss layer of memonger; those of
    :data:`.held_out.HELD_OUT` have one size.
    """
    torch.manual_seed(0)
    if name in HELD_OUT:
        return HELD_OUT[name][0]().train(), HELD_OUT[name][1]()
    net = NETS[name.replace("_chunks", "")]
    with torch.device(device):
        whole = (net.tiny if tiny else net.build)()
    module = InChunks(whole) if name.endswith("_chunks") else WithLoss(whole)
    x, target = net.inputs(batch or net.batch, tiny)
    return module.train(), (x.to(device), target.to(device))
