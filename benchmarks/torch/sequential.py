"""Transformers and a recurrent language model, written from their papers."""
from __future__ import annotations

import torch
import torch.nn as nn
import torch.nn.functional as F


class Block(nn.Module):
    """Attention and two linear layers, each after a LayerNorm and with a shortcut."""

    def __init__(self, width: int, heads: int, dropout: float, causal: bool):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.heads, self.dropout, self.causal = heads, dropout, causal

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        query, key, value = (
            part.view(batch, length, self.heads, width // self.heads).transpose(1, 2)
            for part in self.qkv(self.norm1(x)).split(width, 2))
        mixed = F.scaled_dot_product_attention(query, key, value, is_causal=self.causal)
        mixed = self.proj(mixed.transpose(1, 2).reshape(batch, length, width))
        x = x + F.dropout(mixed, self.dropout, self.training)
        wide = self.narrow(F.gelu(self.wide(self.norm2(x))))
        return x + F.dropout(wide, self.dropout, self.training)


class GPT(nn.Module):
    """GPT-2, Radford et al. 2019; the output layer has the embedding's weight."""

    def __init__(self, layers: int = 12, width: int = 768, heads: int = 12, words: int = 50257,
                 length: int = 512, dropout: float = 0.1):
        super().__init__()
        self.embedding, self.position = nn.Embedding(words, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList([Block(width, heads, dropout, True) for _ in range(layers)])
        self.norm, self.dropout = nn.LayerNorm(width), dropout

    def hidden(self, tokens: torch.Tensor) -> torch.Tensor:
        """What the output layer reads."""
        places = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.embedding(tokens) + self.position(places)
        x = F.dropout(x, self.dropout, self.training)
        for block in self.blocks:
            x = block(x)
        return self.norm(x)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return F.linear(self.hidden(tokens), self.embedding.weight)


class ViT(nn.Module):
    """ViT-B/16, Dosovitskiy et al. 2020, with the mean in place of a class token."""

    def __init__(self, layers: int = 12, width: int = 768, heads: int = 12, patch: int = 16,
                 size: int = 224, classes: int = 1000):
        super().__init__()
        self.patches = nn.Conv2d(3, width, patch, patch)
        self.position = nn.Parameter(torch.zeros(1, (size // patch) ** 2, width))
        self.blocks = nn.ModuleList([Block(width, heads, 0.0, False) for _ in range(layers)])
        self.norm, self.last = nn.LayerNorm(width), nn.Linear(width, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.patches(x).flatten(2).transpose(1, 2) + self.position
        for block in self.blocks:
            x = block(x)
        return self.last(self.norm(x).mean(1))


class LSTM(nn.Module):
    """A language model of two layers, Zaremba et al. 2014, step by step."""

    def __init__(self, words: int = 10000, width: int = 650, layers: int = 2,
                 dropout: float = 0.5):
        super().__init__()
        self.embedding, self.last = nn.Embedding(words, width), nn.Linear(width, words)
        self.cells = nn.ModuleList([nn.LSTMCell(width, width) for _ in range(layers)])
        self.width, self.dropout = width, dropout

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        embedded = self.embedding(tokens)
        zero = embedded.new_zeros(tokens.shape[0], self.width)
        states = [(zero, zero) for _ in self.cells]
        outputs = []
        for step in range(tokens.shape[1]):
            x = embedded[:, step]
            for layer, cell in enumerate(self.cells):
                states[layer] = cell(x, states[layer])
                x = states[layer][0]
            outputs.append(x)
        return self.last(F.dropout(torch.stack(outputs, 1), self.dropout, self.training))
