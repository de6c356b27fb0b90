"""Small PyTorch modules that each have something that planning must get right."""
from __future__ import annotations

import weakref

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils._python_dispatch import TorchDispatchMode


class Convolutions(nn.Module):
    """BatchNorm, in-place ReLU, dropout and a shortcut."""

    def __init__(self, dropout=0.3, width=8):
        super().__init__()
        self.first = nn.Conv2d(3, width, 3, padding=1)
        self.norm = nn.BatchNorm2d(width)
        self.body = nn.Sequential(nn.Conv2d(width, width, 3, padding=1), nn.BatchNorm2d(width),
                                  nn.ReLU(inplace=True), nn.Dropout(dropout),
                                  nn.Conv2d(width, width, 3, padding=1))
        self.last = nn.Linear(width, 5)

    def forward(self, x, target):
        h = F.relu(self.norm(self.first(x)))
        h = F.relu_(h + self.body(h))
        return F.cross_entropy(self.last(h.mean((2, 3))), target)


class Pixels(nn.Module):
    """Convolutions, and a class of two for each pixel."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.net = nn.Sequential(*[
            layer for channels in (3, 8, 8, 8) for layer in (
                nn.Conv2d(channels, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU())],
            nn.Conv2d(8, 2, 1))

    def forward(self, x, target):
        return nn.functional.cross_entropy(self.net(x), target)


class Attention(nn.Module):
    """Layers of a transformer with dropout; the output layer has the embedding's weight."""

    def __init__(self, layers=3, width=16, words=31, dropout=0.1):
        super().__init__()
        self.embedding = nn.Embedding(words, width)
        self.layers = nn.ModuleList([nn.ModuleList([
            nn.LayerNorm(width), nn.Linear(width, 3 * width), nn.Linear(width, width),
            nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.Linear(4 * width, width)])
            for _ in range(layers)])
        self.dropout = dropout

    def forward(self, tokens, target):
        x = self.embedding(tokens)
        for norm, qkv, proj, norm2, wide, narrow in self.layers:
            q, k, v = (z.view(*x.shape[:2], 4, -1).transpose(1, 2)
                       for z in qkv(norm(x)).chunk(3, -1))
            mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            mixed = proj(mixed.transpose(1, 2).reshape(x.shape))
            x = x + F.dropout(mixed, self.dropout, self.training)
            x = x + F.dropout(narrow(F.gelu(wide(norm2(x)))), self.dropout, self.training)
        scores = F.linear(x, self.embedding.weight)
        return F.cross_entropy(scores.flatten(0, 1), target.flatten())


def images(batch=16, size=16):
    torch.manual_seed(1)
    return torch.randn(batch, 3, size, size), torch.randint(0, 5, (batch,))


def pictures(batch=4, size=32):
    """A batch of pictures with a class for each pixel."""
    torch.manual_seed(1)
    return torch.randn(batch, 3, size, size), torch.randint(0, 2, (batch, size, size))


def sentences(batch=8, length=12, words=31):
    torch.manual_seed(1)
    return torch.randint(0, words, (batch, length)), torch.randint(0, words, (batch, length))


def trained(call, module, inputs, steps=2, loss=None):
    """Losses, gradients and buffers after each of a few steps of SGD, from the same seed."""
    torch.manual_seed(7)
    found = []
    for _ in range(steps):
        module.zero_grad(set_to_none=True)
        output = call(**inputs) if isinstance(inputs, dict) else call(*inputs)
        value = loss(output) if loss else output
        value.backward()
        found += [value.detach().clone()]
        found += [p.grad.clone() for p in module.parameters() if p.grad is not None]
        found += [b.clone() for b in module.buffers()]
        with torch.no_grad():
            for p in module.parameters():
                if p.grad is not None:
                    p -= 0.01 * p.grad
    return found


def same(one, other):
    """Bit for bit."""
    return len(one) == len(other) and all(
        a.shape == b.shape and torch.equal(a, b) for a, b in zip(one, other))


class Counter(TorchDispatchMode):
    """Bytes of the storages alive that ATen operators made, and the most there were."""

    def __init__(self):
        super().__init__()
        self.seen, self.now, self.peak = {}, 0, 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        given = {t.untyped_storage()._cdata for t in torch.utils._pytree.tree_leaves((args, kwargs))
                 if isinstance(t, torch.Tensor)}
        for t in torch.utils._pytree.tree_leaves(out):
            if isinstance(t, torch.Tensor):
                storage = t.untyped_storage()
                if storage._cdata not in self.seen and storage._cdata not in given:
                    self.seen[storage._cdata] = storage.nbytes()
                    self.now += storage.nbytes()
                    weakref.finalize(storage, self._gone, storage._cdata)
        self.peak = max(self.peak, self.now)
        return out

    def _gone(self, key):
        self.now -= self.seen.pop(key, 0)
