"""Kinds of modules that nothing was tuned on, each with its loss: small, for ``torch --depth``."""
from __future__ import annotations

from typing import Any, Callable, Dict, List, Tuple

import torch
import torch.nn as nn
import torch.nn.functional as F


def conv(channels: int, width: int, norm: Any = nn.BatchNorm2d, kind: Any = nn.Conv2d,
         **options: Any) -> nn.Sequential:
    """Convolution, BatchNorm and ReLU at the same size."""
    return nn.Sequential(kind(channels, width, 3, padding=1, **options), norm(width), nn.ReLU())


class U(nn.Module):
    """Two stages down and up, in two dimensions or three."""

    def __init__(self, dimensions: int = 2, width: int = 8):
        super().__init__()
        parts: Dict[int, Tuple[Any, ...]] = {
            2: (nn.Conv2d, nn.BatchNorm2d, nn.ConvTranspose2d, F.max_pool2d),
            3: (nn.Conv3d, nn.BatchNorm3d, nn.ConvTranspose3d, F.max_pool3d)}
        kind, norm, up, self.pool = parts[dimensions]
        self.down = nn.ModuleList([conv(3, width, norm, kind), conv(width, 2 * width, norm, kind)])
        self.deep = conv(2 * width, 4 * width, norm, kind)
        self.up = nn.ModuleList([up(4 * width, 2 * width, 2, 2), up(2 * width, width, 2, 2)])
        self.blocks = nn.ModuleList([conv(4 * width, 2 * width, norm, kind),
                                     conv(2 * width, width, norm, kind)])
        self.last = kind(width, 2, 1)

    def forward(self, x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        skips: List[torch.Tensor] = []
        for stage in self.down:
            skips.append(stage(x))
            x = self.pool(skips[-1], 2)
        x = self.deep(x)
        for up, block in zip(self.up, self.blocks):
            x = block(torch.cat([skips.pop(), up(x)], 1))
        return F.cross_entropy(self.last(x), target)


class Inverted(nn.Module):
    """Narrow shortcuts around wide depthwise convolutions, as in MobileNetV2."""

    def __init__(self, width: int = 8, blocks: int = 3):
        super().__init__()
        self.first = conv(3, width)
        self.blocks = nn.ModuleList([nn.Sequential(
            nn.Conv2d(width, 6 * width, 1, bias=False), nn.BatchNorm2d(6 * width), nn.ReLU6(),
            nn.Conv2d(6 * width, 6 * width, 3, padding=1, groups=6 * width, bias=False),
            nn.BatchNorm2d(6 * width), nn.ReLU6(), nn.Conv2d(6 * width, width, 1, bias=False),
            nn.BatchNorm2d(width)) for _ in range(blocks)])
        self.last = nn.Linear(width, 5)

    def forward(self, x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        for block in self.blocks:
            x = x + block(x)
        return F.cross_entropy(self.last(x.mean((2, 3))), target)


class Siamese(nn.Module):
    """One network on two inputs: every weight is used twice."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([conv(3, 8), conv(8, 8)])
        self.last = nn.Linear(8 * 256, 16)

    def forward(self, x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return (self._half(x) - self._half(x.flip(0))).square().mean()

    def _half(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = block(x)
        return self.last(x.flatten(1))


class CrossAttention(nn.Module):
    """Queries of one sequence, keys and values of another one."""

    def __init__(self, width: int):
        super().__init__()
        self.query, self.both = nn.Linear(width, width), nn.Linear(width, 2 * width)
        self.norm = nn.LayerNorm(width)

    def forward(self, x: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        key, value = self.both(other).chunk(2, -1)
        return x + F.scaled_dot_product_attention(self.query(self.norm(x)), key, value)


class Gated(nn.Module):
    """A wide layer, a half of which says how much of the other half goes on."""

    def __init__(self, width: int):
        super().__init__()
        self.norm, self.wide = nn.LayerNorm(width), nn.Linear(width, 8 * width)
        self.narrow = nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        gate, value = self.wide(self.norm(x)).chunk(2, -1)
        return x + self.narrow(F.silu(gate) * value)


class Across(nn.Module):
    """Blocks on two sequences of words; the output layer has the embedding's weight."""

    def __init__(self, *kinds: Callable[[int], nn.Module], width: int = 32, words: int = 31):
        super().__init__()
        self.embedding = nn.Embedding(words, width)
        self.blocks = nn.ModuleList([kind(width) for kind in kinds * 2])

    def forward(self, tokens: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        x, other = self.embedding(tokens), self.embedding(target)
        for block in self.blocks:
            x = block(x, other)
        return F.linear(x, self.embedding.weight).square().mean()


def images() -> Tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(16, 3, 16, 16), torch.randint(0, 5, (16,))


def volumes() -> Tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(2, 3, 16, 16, 16), torch.randint(0, 2, (2, 16, 16, 16))


def sentences() -> Tuple[torch.Tensor, torch.Tensor]:
    return torch.randint(0, 31, (32, 12)), torch.randint(0, 31, (32, 12))


#: Of each kind a module and its inputs.
HELD_OUT: Dict[str, Tuple[Callable[[], nn.Module], Callable[[], Any]]] = {
    "depthwise": (Inverted, images), "siamese": (Siamese, images),
    "cross": (lambda: Across(CrossAttention), sentences),
    "u3d": (lambda: U(3), volumes), "gated": (lambda: Across(Gated), sentences)}
