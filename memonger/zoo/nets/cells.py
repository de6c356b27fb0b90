"""Networks that architecture search found: cells of operations between pairs of states.

CIFAR-10: NASNet-A (arXiv 1707.07012), AmoebaNet-A (1802.01548) and DARTS (1806.09055), each in
the frame of the DARTS paper: 20 cells, 36 filters. ImageNet: AmoebaNet-D (1802.01548) as GPipe
(1811.06965) scales it.
"""
from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Dict, List, Tuple

import mxnet as mx

Built = Tuple[Any, Dict[str, Tuple[int, ...]]]
#: Operation and the state it reads; two neighbours are added and make the next state.
Choices = Tuple[Tuple[str, int], ...]


@dataclass(frozen=True)
class Genotype:
    """The two cells of a network. States 0 and 1 are the outputs of the two cells before."""

    normal: Choices
    #: States that are concatenated to the cell's output.
    normal_concat: Tuple[int, ...]
    reduce: Choices
    reduce_concat: Tuple[int, ...]


NASNET_A = Genotype(
    (("sep5", 1), ("sep3", 0), ("sep5", 0), ("sep3", 0), ("avg3", 1), ("skip", 0), ("avg3", 0),
     ("avg3", 0), ("sep3", 1), ("skip", 1)), (2, 3, 4, 5, 6),
    (("sep5", 1), ("sep7", 0), ("max3", 1), ("sep7", 0), ("avg3", 1), ("sep5", 0), ("skip", 3),
     ("avg3", 2), ("sep3", 2), ("max3", 1)), (4, 5, 6))
AMOEBANET_A = Genotype(
    (("avg3", 0), ("max3", 1), ("sep3", 0), ("sep5", 2), ("sep3", 0), ("avg3", 3), ("sep3", 1),
     ("skip", 1), ("skip", 0), ("avg3", 1)), (4, 5, 6),
    (("avg3", 0), ("sep3", 1), ("max3", 0), ("sep7", 2), ("sep7", 0), ("avg3", 1), ("max3", 0),
     ("max3", 1), ("conv17", 0), ("sep3", 5)), (3, 4, 6))
DARTS = Genotype(
    (("sep3", 0), ("sep3", 1), ("sep3", 0), ("sep3", 1), ("sep3", 1), ("skip", 0), ("skip", 0),
     ("dil3", 2)), (2, 3, 4, 5),
    (("max3", 0), ("max3", 1), ("skip", 2), ("max3", 1), ("max3", 0), ("skip", 2), ("skip", 2),
     ("max3", 1)), (2, 3, 4, 5))
#: State 0 is the cell before here, state 1 the one before that. The normal cell's concatenation
#: is that of the authors' code, which gives GPipe's parameter counts, not that of the paper.
AMOEBANET_D = Genotype(
    (("conv1", 1), ("max3", 1), ("skip", 1), ("thin17", 0), ("conv1", 0), ("thin17", 0),
     ("max3", 2), ("skip", 2), ("avg3", 1), ("conv1", 5)), (0, 3, 4, 6),
    (("max2", 0), ("max3", 0), ("skip", 2), ("thin3", 1), ("thin17", 2), ("max3", 2), ("skip", 3),
     ("max2", 1), ("avg3", 2), ("conv1", 3)), (4, 5, 6))
GENOTYPES = {"nasnet_a": NASNET_A, "amoebanet_a": AMOEBANET_A, "darts": DARTS}


def _relu(data: Any) -> Any:
    return mx.sym.Activation(data, act_type="relu")


def _norm(data: Any) -> Any:
    return mx.sym.BatchNorm(data, fix_gamma=False)


def _conv(data: Any, filters: int, kernel: Tuple[int, int] = (1, 1),
          stride: Tuple[int, int] = (1, 1), dilate: int = 1, groups: int = 1) -> Any:
    pad = tuple((k - 1) * dilate // 2 for k in kernel)
    return mx.sym.Convolution(data, num_filter=filters, kernel=kernel, stride=stride, pad=pad,
                              dilate=(dilate, dilate), num_group=groups, no_bias=True)


def _unit(data: Any, filters: int, kernel: Tuple[int, int] = (1, 1),
          stride: Tuple[int, int] = (1, 1)) -> Any:
    return _norm(_conv(_relu(data), filters, kernel, stride))


def _halve(data: Any, filters: int) -> Any:
    """Halve an even height and width: two strided convolutions, the second off by one pixel."""
    data = _relu(data)
    shifted = mx.sym.slice(data, begin=(None, None, 1, 1), end=(None, None, None, None))
    half = filters // 2
    return _norm(mx.sym.Concat(_conv(data, half, stride=(2, 2)),
                               _conv(shifted, filters - half, stride=(2, 2)), dim=1))


def _separable(data: Any, filters: int, size: int, stride: int) -> Any:
    for step in (stride, 1):
        data = _conv(_relu(data), filters, (size, size), (step, step), groups=filters)
        data = _norm(_conv(data, filters))
    return data


def _thin(data: Any, filters: int, kernels: Tuple[Tuple[int, int], ...], stride: int) -> Any:
    """A bottleneck: convolutions on a quarter of the filters."""
    data = _unit(data, filters // 4)
    for kernel in kernels:
        data = _unit(data, filters // 4, kernel,
                     tuple(stride if k > 1 else 1 for k in kernel))  # type: ignore[arg-type]
    return _unit(data, filters)


def _operate(kind: str, data: Any, filters: int, stride: int) -> Any:
    both = (stride, stride)
    if kind == "skip":
        return _halve(data, filters) if stride > 1 else data
    if kind in ("avg3", "max3"):
        return mx.sym.Pooling(data, pool_type=kind[:3], kernel=(3, 3), stride=both, pad=(1, 1),
                              count_include_pad=False)
    if kind == "max2":
        return mx.sym.Pooling(data, pool_type="max", kernel=(2, 2), stride=both)
    if kind.startswith("sep"):
        return _separable(data, filters, int(kind[3:]), stride)
    if kind == "dil3":
        data = _conv(_relu(data), filters, (3, 3), both, dilate=2, groups=filters)
        return _norm(_conv(data, filters))
    if kind == "conv17":
        data = _conv(_relu(data), filters, (1, 7), (1, stride))
        return _norm(_conv(data, filters, (7, 1), (stride, 1)))
    if kind == "conv1":
        return _unit(data, filters, stride=both)
    return _thin(data, filters, ((3, 3),) if kind == "thin3" else ((1, 7), (7, 1)), stride)


def _cell(states: List[Any], choices: Choices, concat: Tuple[int, ...], filters: int,
          reduces: bool) -> Any:
    states = list(states)
    for left, right in zip(choices[::2], choices[1::2]):
        parts = [_operate(kind, states[state], filters, 2 if reduces and state < 2 else 1)
                 for kind, state in (left, right)]
        states.append(parts[0] + parts[1])
    return mx.sym.Concat(*[states[i] for i in concat], dim=1)


def _head(data: Any, classes: int) -> Any:
    data = mx.sym.Pooling(data, pool_type="avg", global_pool=True, kernel=(1, 1))
    scores = mx.sym.FullyConnected(mx.sym.Flatten(data), num_hidden=classes, name="fc")
    return mx.sym.SoftmaxOutput(scores, mx.sym.var("softmax_label"), name="softmax")


def cifar(batch: int, *, genotype: str = "darts", cells: int = 20, filters: int = 36,
          image: int = 32, classes: int = 10) -> Built:
    """A network for CIFAR-10, without path dropout and auxiliary loss.

    ``genotype``: key of :data:`GENOTYPES`.
    ``cells``, ``filters``, ``image``, ``classes``: the cells at one and two thirds halve the
        picture and double the filters.
    """
    chosen = GENOTYPES[genotype]
    before = last = _norm(_conv(mx.sym.var("data"), 3 * filters, (3, 3)))
    halved = False
    for index in range(cells):
        reduces = index in (cells // 3, 2 * cells // 3)
        filters *= 2 if reduces else 1
        states = [_halve(before, filters) if halved else _unit(before, filters),
                  _unit(last, filters)]
        choices, concat = ((chosen.reduce, chosen.reduce_concat) if reduces
                           else (chosen.normal, chosen.normal_concat))
        before, last = last, _cell(states, choices, concat, filters, reduces)
        halved = reduces
    return _head(last, classes), {"data": (batch, 3, image, image), "softmax_label": (batch,)}


def amoebanet_d(batch: int, *, cells: int = 18, filters: int = 208, image: int = 224,
                classes: int = 1000) -> Built:
    """AmoebaNet-D (cells, filters) for ImageNet.

    ``cells``: normal cells, a multiple of three; four cells that halve the picture come on top.
    """
    if cells % 3:
        raise ValueError("cells must be a multiple of three")
    width = filters // 4
    before = last = _norm(_conv(_relu(mx.sym.var("data")), width, (3, 3), (2, 2)))
    before_width = last_width = width
    halved = False
    third = (False,) * (cells // 3)
    for reduces in (True, True, *third, True, *third, True, *third):
        width *= 2 if reduces else 1
        older = before
        if halved:
            older = _halve(before, width)
        elif before_width != width:
            older = _unit(before, width)
        choices, concat = ((AMOEBANET_D.reduce, AMOEBANET_D.reduce_concat) if reduces
                           else (AMOEBANET_D.normal, AMOEBANET_D.normal_concat))
        made = _cell([_unit(last, width), older], choices, concat, width, reduces)
        before, last, halved = last, made, reduces
        before_width, last_width = last_width, width * len(concat)
    return _head(last, classes), {"data": (batch, 3, image, image), "softmax_label": (batch,)}
