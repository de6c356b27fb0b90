"""Convolutional networks, written from their papers."""
from __future__ import annotations

from typing import Any, List, Sequence

import torch
import torch.nn as nn
import torch.nn.functional as F


def convolution(inputs: int, outputs: int, size: int = 3, stride: int = 1,
                groups: int = 1, relu: bool = True) -> nn.Sequential:
    """Convolution without bias, BatchNorm and, where asked for, ReLU."""
    layers: List[nn.Module] = [
        nn.Conv2d(inputs, outputs, size, stride, size // 2, groups=groups, bias=False),
        nn.BatchNorm2d(outputs)]
    return nn.Sequential(*layers, *([nn.ReLU(inplace=True)] if relu else []))


class Bottleneck(nn.Module):
    """He et al. 2015, three convolutions and a shortcut."""

    def __init__(self, inputs: int, width: int, stride: int):
        super().__init__()
        self.body = nn.Sequential(
            convolution(inputs, width, 1), convolution(width, width, 3, stride),
            convolution(width, 4 * width, 1, relu=False))
        self.shortcut = nn.Identity() if stride == 1 and inputs == 4 * width else \
            convolution(inputs, 4 * width, 1, stride, relu=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.relu(self.body(x) + self.shortcut(x), inplace=True)


class Classifier(nn.Module):
    """Blocks, the mean over space, and a linear layer."""

    def __init__(self, stem: nn.Module, blocks: Sequence[nn.Module], width: int, classes: int):
        super().__init__()
        self.stem, self.blocks = stem, nn.ModuleList(blocks)
        self.last = nn.Linear(width, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.stem(x)
        for block in self.blocks:
            x = block(x)
        return self.last(x.mean((2, 3)))


def resnet(depths: Sequence[int] = (3, 4, 6, 3), width: int = 64,
           classes: int = 1000) -> Classifier:
    """ResNet-50 by default."""
    stem = nn.Sequential(convolution(3, width, 7, 2), nn.MaxPool2d(3, 2, 1))
    blocks, inputs = [], width
    for stage, depth in enumerate(depths):
        for index in range(depth):
            blocks.append(Bottleneck(inputs, width << stage, 2 if stage and not index else 1))
            inputs = 4 * (width << stage)
    return Classifier(stem, blocks, inputs, classes)


class Dense(nn.Module):
    """Huang et al. 2016: a block of layers that each read all before them."""

    def __init__(self, inputs: int, layers: int, growth: int, last: bool):
        super().__init__()
        self.layers = nn.ModuleList([nn.Sequential(
            nn.BatchNorm2d(inputs + i * growth), nn.ReLU(inplace=True),
            nn.Conv2d(inputs + i * growth, 4 * growth, 1, bias=False), nn.BatchNorm2d(4 * growth),
            nn.ReLU(inplace=True), nn.Conv2d(4 * growth, growth, 3, padding=1, bias=False))
            for i in range(layers)])
        outputs = inputs + layers * growth
        self.end = nn.Sequential(nn.BatchNorm2d(outputs), nn.ReLU(inplace=True), *(
            [] if last else [nn.Conv2d(outputs, outputs // 2, 1, bias=False), nn.AvgPool2d(2)]))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        features = [x]
        for layer in self.layers:
            features.append(layer(torch.cat(features, 1)))
        return self.end(torch.cat(features, 1))


def densenet(depths: Sequence[int] = (6, 12, 24, 16), growth: int = 32,
             classes: int = 1000) -> Classifier:
    """DenseNet-121 by default."""
    width = 2 * growth
    stem = nn.Sequential(convolution(3, width, 7, 2), nn.MaxPool2d(3, 2, 1))
    blocks = []
    for stage, depth in enumerate(depths):
        last = stage == len(depths) - 1
        blocks.append(Dense(width, depth, growth, last))
        width = (width + depth * growth) // (1 if last else 2)
    return Classifier(stem, blocks, width, classes)


def vgg(width: int = 64, hidden: int = 4096, size: int = 224, classes: int = 1000) -> nn.Module:
    """VGG-16, Simonyan and Zisserman 2014."""
    layers: List[nn.Module] = []
    inputs = 3
    for outputs, count in ((1, 2), (2, 2), (4, 3), (8, 3), (8, 3)):
        for _ in range(count):
            layers += [nn.Conv2d(inputs, outputs * width, 3, padding=1), nn.ReLU(inplace=True)]
            inputs = outputs * width
        layers.append(nn.MaxPool2d(2))
    return nn.Sequential(
        *layers, nn.Flatten(), nn.Linear(inputs * (size // 32) ** 2, hidden),
        nn.ReLU(inplace=True), nn.Dropout(), nn.Linear(hidden, hidden), nn.ReLU(inplace=True),
        nn.Dropout(), nn.Linear(hidden, classes))


class Inverted(nn.Module):
    """Sandler et al. 2018: wide inside, narrow outside."""

    def __init__(self, inputs: int, outputs: int, stride: int, expand: int):
        super().__init__()
        wide = inputs * expand
        self.shortcut = stride == 1 and inputs == outputs
        self.body = nn.Sequential(
            *([convolution(inputs, wide, 1)] if expand > 1 else []),
            convolution(wide, wide, 3, stride, wide), convolution(wide, outputs, 1, relu=False))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.body(x) if self.shortcut else self.body(x)


def mobilenet(scale: float = 1.0, classes: int = 1000) -> Classifier:
    """MobileNetV2."""
    def wide(channels: int) -> int:
        return max(8, int(channels * scale) // 8 * 8)
    blocks: List[nn.Module] = []
    inputs = wide(32)
    for expand, channels, count, stride in (
            (1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1),
            (6, 160, 3, 2), (6, 320, 1, 1)):
        for index in range(count):
            blocks.append(Inverted(inputs, wide(channels), 1 if index else stride, expand))
            inputs = wide(channels)
    blocks.append(convolution(inputs, wide(1280), 1))
    return Classifier(convolution(3, wide(32), 3, 2), blocks, wide(1280), classes)


class Inception(nn.Module):
    """Szegedy et al. 2014: four branches side by side."""

    def __init__(self, inputs: int, a: int, b: Sequence[int], c: Sequence[int], d: int):
        super().__init__()
        self.branches = nn.ModuleList([
            convolution(inputs, a, 1),
            nn.Sequential(convolution(inputs, b[0], 1), convolution(b[0], b[1], 3)),
            nn.Sequential(convolution(inputs, c[0], 1), convolution(c[0], c[1], 3)),
            nn.Sequential(nn.MaxPool2d(3, 1, 1), convolution(inputs, d, 1))])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cat([branch(x) for branch in self.branches], 1)


def googlenet(share: int = 1, classes: int = 1000) -> Classifier:
    """GoogLeNet without its side outputs; widths divided by ``share``."""
    stem = nn.Sequential(convolution(3, 64 // share, 7, 2), nn.MaxPool2d(3, 2, 1),
                         convolution(64 // share, 64 // share, 1),
                         convolution(64 // share, 192 // share), nn.MaxPool2d(3, 2, 1))
    rows: Sequence[Any] = (
        (64, (96, 128), (16, 32), 32), (128, (128, 192), (32, 96), 64), None,
        (192, (96, 208), (16, 48), 64), (160, (112, 224), (24, 64), 64),
        (128, (128, 256), (24, 64), 64), (112, (144, 288), (32, 64), 64),
        (256, (160, 320), (32, 128), 128), None, (256, (160, 320), (32, 128), 128),
        (384, (192, 384), (48, 128), 128))
    blocks: List[nn.Module] = []
    width = 192 // share
    for row in rows:
        if row is None:
            blocks.append(nn.MaxPool2d(3, 2, 1))
            continue
        a, b, c, d = row
        blocks.append(Inception(width, a // share, [n // share for n in b],
                                [n // share for n in c], d // share))
        width = a // share + b[1] // share + c[1] // share + d // share
    return Classifier(stem, blocks, width, classes)


class UNet(nn.Module):
    """Ronneberger et al. 2015, in two or three dimensions, with BatchNorm."""

    def __init__(self, width: int = 64, depth: int = 4, dimensions: int = 2, classes: int = 2):
        super().__init__()
        conv, norm = (nn.Conv2d, nn.BatchNorm2d) if dimensions == 2 else (
            nn.Conv3d, nn.BatchNorm3d)
        up = nn.ConvTranspose2d if dimensions == 2 else nn.ConvTranspose3d
        self.pool = F.max_pool2d if dimensions == 2 else F.max_pool3d

        def double(inputs: int, outputs: int) -> nn.Sequential:
            return nn.Sequential(
                conv(inputs, outputs, 3, padding=1), norm(outputs), nn.ReLU(inplace=True),
                conv(outputs, outputs, 3, padding=1), norm(outputs), nn.ReLU(inplace=True))
        widths = [width << level for level in range(depth + 1)]
        inputs = 3 if dimensions == 2 else 1
        self.down = nn.ModuleList([double(a, b) for a, b in zip([inputs, *widths], widths)])
        self.up = nn.ModuleList([up(2 * w, w, 2, 2) for w in reversed(widths[:-1])])
        self.blocks = nn.ModuleList([double(2 * w, w) for w in reversed(widths[:-1])])
        self.last = conv(width, classes, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        levels = []
        for level, block in enumerate(self.down):
            x = block(self.pool(x, 2) if level else x)
            levels.append(x)
        levels.pop()
        for up, block in zip(self.up, self.blocks):
            x = block(torch.cat([levels.pop(), up(x)], 1))
        return self.last(x)
