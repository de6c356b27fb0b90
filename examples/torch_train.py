"""Trains PyTorch networks without a plan and with one: the curves are equal, the peak is not.

A small GPT learns the text of a module of the standard library, with dropout; a ResNet learns
scikit-learn's handwritten digits, with BatchNorm.

    python examples/torch_train.py --budget 60%
"""
from __future__ import annotations

import argparse
import copy
import inspect
import textwrap
from typing import Any, Iterator, List, Tuple

import torch
import torch.nn as nn
import torch.nn.functional as F

import memonger.torch as mt

Batch = Tuple[torch.Tensor, torch.Tensor]


class Block(nn.Module):
    """A layer of a transformer."""

    def __init__(self, width: int, heads: int):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.body = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(),
                                  nn.Linear(4 * width, width), nn.Dropout(0.1))
        self.heads = heads

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        query, key, value = (part.unflatten(2, (self.heads, -1)).transpose(1, 2)
                             for part in self.qkv(self.norm1(x)).chunk(3, 2))
        mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.proj(mixed.transpose(1, 2).flatten(2))
        return x + self.body(self.norm2(x))


class GPT(nn.Module):
    """A language model of characters."""

    def __init__(self, characters: int, length: int, width: int = 64, layers: int = 4):
        super().__init__()
        self.embedding = nn.Embedding(characters, width)
        nn.init.normal_(self.embedding.weight, std=0.02)
        self.position = nn.Parameter(torch.zeros(length, width))
        self.blocks = nn.Sequential(*[Block(width, 4) for _ in range(layers)])
        self.norm = nn.LayerNorm(width)

    def forward(self, x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        hidden = self.norm(self.blocks(self.embedding(x) + self.position))
        return mt.linear_cross_entropy(hidden, self.embedding.weight, target)


class Residual(nn.Module):
    """Two convolutions and a shortcut."""

    def __init__(self, width: int):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(width, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU(inplace=True),
            nn.Conv2d(width, width, 3, padding=1), nn.BatchNorm2d(width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.relu(x + self.body(x))


class ResNet(nn.Module):
    """A classifier of small images."""

    def __init__(self, width: int = 16, blocks: int = 6):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(1, width, 3, padding=1),
                                  *[Residual(width) for _ in range(blocks)])
        self.last = nn.Linear(width, 10)

    def forward(self, x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(self.last(self.body(x).mean((2, 3))), target)


def text_batches(batch: int = 32, length: int = 64) -> Tuple[int, Iterator[Batch]]:
    """Pieces of the source of a module, character by character."""
    text = inspect.getsource(textwrap)
    characters = sorted(set(text))
    codes = torch.tensor([characters.index(c) for c in text])

    def made() -> Iterator[Batch]:
        generator = torch.Generator().manual_seed(1)
        while True:
            starts = torch.randint(0, len(codes) - length - 1, (batch,), generator=generator)
            yield (torch.stack([codes[s:s + length] for s in starts]),
                   torch.stack([codes[s + 1:s + length + 1] for s in starts]))
    return len(characters), made()


def digit_batches(batch: int = 128) -> Iterator[Batch]:
    """Images of eight by eight, and what they show."""
    from sklearn.datasets import load_digits
    digits = load_digits()
    images = torch.tensor(digits.images, dtype=torch.float32)[:, None] / 16
    labels = torch.tensor(digits.target)
    generator = torch.Generator().manual_seed(1)
    while True:
        picked = torch.randint(0, len(labels), (batch,), generator=generator)
        yield images[picked], labels[picked]


def train(call: Any, module: nn.Module, batches: List[Batch]) -> List[float]:
    """The loss at each step of Adam, from the same seed."""
    torch.manual_seed(2)
    optimizer = torch.optim.Adam(module.parameters(), 3e-3)
    losses = []
    for x, target in batches:
        optimizer.zero_grad()
        loss = call(x, target)
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    return losses


def compare(name: str, module: nn.Module, source: Iterator[Batch],
            args: argparse.Namespace) -> bool:
    """Train twice, print both curves, and tell whether they are equal."""
    batches = [next(source) for _ in range(args.steps)]
    twin = copy.deepcopy(module)
    costs = mt.profile(module, batches[0], args.mode)
    planned = mt.compile(module, args.budget, args.mode, costs=costs)
    plain = mt.compile(twin, mode=args.mode)
    curves = train(planned, module, batches), train(plain, twin, batches)
    module.zero_grad()
    twin.zero_grad()
    peaks = [mt.measure(step, batches[0], 1).peak_bytes / 2**20 for step in (plain, planned)]
    print("%s: %s" % (name, repr(mt.plans(planned)[0])))
    for label, curve in zip(("planned  ", "unplanned"), curves):
        print("  loss %s %s" % (label, " ".join("%.4f" % v for v in curve[::args.steps // 5 or 1])))
    print("  peak of a step %.2f MiB without the plan, %.2f MiB with it; curves %s" % (
        *peaks, "equal" if curves[0] == curves[1] else "DIFFER"))
    return curves[0] == curves[1]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--budget", default="60%")
    parser.add_argument("--mode", default="eager", choices=("eager", "inductor"))
    parser.add_argument("--steps", type=int, default=50)
    args = parser.parse_args()
    torch.manual_seed(0)
    characters, texts = text_batches()
    equal = [compare("gpt", GPT(characters, 64), texts, args),
             compare("resnet", ResNet(), digit_batches(), args)]
    return 0 if all(equal) else 1


if __name__ == "__main__":
    raise SystemExit(main())
