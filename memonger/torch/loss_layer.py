"""Projection to a vocabulary with cross-entropy, in chunks of rows.

A language model's scores (rows by words) and their gradients are most of its peak. Here the scores
of a few rows exist at a time. With one gradient for all rows (mean and sum) the gradients of hidden
states and weight are made in forward, while a chunk's scores are there, as in Liger's fused linear
cross-entropy (Hsu et al. 2024), and backward only scales them: no product runs twice. Without a
reduction backward makes the scores again.

Few rows are one chunk, whose product is the weight's gradient. Of a weight of 16 bits the products
of several chunks are summed up in 24 bits, by blocks of words: what will be the gradient, and a
byte beside each number.
"""
from __future__ import annotations

from typing import Any, Iterator, Sequence, Tuple

import torch
from torch import Tensor

from ..util.errors import InputError
from . import private
from .sizes import hint

#: Chunks of the rows, and between which bytes a chunk's scores in float32 lie in any case.
CHUNKS = 8
SMALLEST_CHUNK_BYTES, LARGEST_CHUNK_BYTES = 4 << 20, 64 << 20

#: All rows are one chunk where their scores in the weight's type take so little of the weight.
SHARE_OF_WEIGHT = 3 / 8
#: Blocks of words in which gradients are summed up, bytes of a number while its block is, and those
#: of a block on a GPU at least, which are worth a kernel.
BLOCKS, _SUM_BYTES, GPU_BLOCK_BYTES = 32, 10, 64 << 20

#: Bytes of a row's numbers beside its scores, at most.
_ROW_BYTES = 64

_Pair = Tuple[Tensor, Tensor]


def linear_cross_entropy(hidden: torch.Tensor, weight: torch.Tensor, target: torch.Tensor,
                         ignore_index: int = -100, label_smoothing: float = 0.0,
                         reduction: str = "mean") -> torch.Tensor:
    """``F.cross_entropy(F.linear(hidden, weight), target)`` without the scores in memory.

    Within rounding the same; bits differ, as products are of fewer rows. Sums over the words are in
    float32, those over chunks of rows in float32 or, for weights of 16 bits, in 24 bits.

    Parameters
    ----------
    hidden : torch.Tensor
        (..., width), float32, float16 or bfloat16.
    weight : torch.Tensor
        (words, width), of the same type; it may be the embedding's.
    target : torch.Tensor
        (...), int64.
    ignore_index : int
        Targets that do not count.
    label_smoothing : float
        Share of the target spread over all words, 0 to 1.
    reduction : str
        "mean" over the targets that count, "sum" or "none".

    Returns
    -------
    torch.Tensor
        A number in float32, or with "none" one for each target.

    Raises
    ------
    InputError
        If shapes do not fit, or the reduction is another.
    """
    if reduction not in ("mean", "sum", "none"):
        raise InputError("reduction must be mean, sum or none, not %r" % (reduction,))
    if hidden.dim() < 1 or weight.dim() != 2 or hidden.shape[-1] != weight.shape[1] or \
            hidden.shape[:-1] != target.shape:
        raise InputError(
            "hidden %s, weight %s and target %s do not fit; they must be (..., width), "
            "(words, width) and (...)" % tuple(tuple(t.shape) for t in (hidden, weight, target)))
    rows, labels = hidden.reshape(-1, hidden.shape[-1]), target.reshape(-1)
    if reduction == "none":
        return _each(rows, weight, labels, ignore_index, label_smoothing).reshape(target.shape)
    counts = (labels != ignore_index).float()
    scale = counts / counts.sum() if reduction == "mean" else counts
    loss, _, _ = _reduced(rows, weight, labels, scale, ignore_index, label_smoothing)
    return loss


def rows_of_chunk(rows: int, words: int, width: int = 0) -> int:
    """How many rows' scores exist at a time: all where they are small beside the weight."""
    row_bytes = 4 * words
    most = min(max(rows * row_bytes // CHUNKS, SMALLEST_CHUNK_BYTES), LARGEST_CHUNK_BYTES)
    most_rows = rows if rows <= SHARE_OF_WEIGHT * width else most // row_bytes
    return max(1, min(rows, most_rows))


def _losses(scores: Tensor, labels: Tensor, smoothing: float) -> _Pair:
    """Loss of each row, and the sum of its exponentials; these take the scores' memory."""
    most = scores.amax(1)
    less = (1 - smoothing) * scores.gather(1, labels[:, None])[:, 0]
    if smoothing:
        less += smoothing * scores.mean(1)
    sums = scores.sub_(most[:, None]).exp_().sum(1)
    return most + sums.log() - less, sums


def _score_gradients(exponentials: Tensor, sums: Tensor, labels: Tensor, scale: Tensor,
                     smoothing: float) -> Tensor:
    """Gradients of the scores, in the memory of their exponentials."""
    gradients = exponentials.mul_((scale / sums)[:, None])
    if smoothing:
        gradients.sub_((scale * (smoothing / gradients.shape[1]))[:, None])
    less = (scale * (smoothing - 1))[:, None]
    return gradients.scatter_add_(1, labels[:, None], less)


def _run(rows: Tensor, weight: Tensor, labels: Tensor, scale: Tensor, ignored: int,
         smoothing: float, gradients: bool) -> Tuple[Tensor, Tensor, Tensor]:
    """Losses, and the gradients of rows and weight where row i's loss counts ``scale[i]``."""
    size = rows_of_chunk(rows.shape[0], *weight.shape)
    losses = rows.new_empty(rows.shape[0], dtype=torch.float32)
    of_rows = torch.empty_like(rows) if gradients else rows.new_empty(0)
    of_weight = _Sum(weight, size < rows.shape[0])
    for start in range(0, rows.shape[0], size):
        part = slice(start, start + size)
        here, counts = rows[part], labels[part] != ignored
        picked = labels[part].masked_fill(~counts, 0)
        scores = (here @ weight.t()).float()
        found, sums = _losses(scores, picked, smoothing)
        losses[part] = found * counts
        if gradients:
            scores = _score_gradients(scores, sums, picked, scale[part] * counts, smoothing)
            scores = scores.to(weight.dtype)
            torch.mm(scores, weight, out=of_rows[part])
            of_weight.add(scores, here)
        del scores  # before the next ones
    return losses, of_rows, of_weight.result() if gradients else rows.new_empty(0)


class _Sum:
    """The sum of the products of all chunks, in the weight's shape and type.

    Several chunks' are summed up in float32, of which 24 bits are kept for a weight of 16: sign,
    exponent and 15 digits, eight more than bfloat16 has.
    """

    def __init__(self, weight: Tensor, several: bool):
        self.weight, self.several = weight, several
        self.total: Any = None
        self.upper: Any = None
        self.lower: Any = None

    def add(self, scores: Tensor, rows: Tensor) -> None:
        """Add ``scores.t() @ rows``."""
        if not self.several:
            self.total = scores.t() @ rows
            return
        if self.total is None:
            self.total = torch.zeros_like(self.weight)
        if self.weight.dtype == torch.float32:
            self.total.addmm_(scores.t(), rows)
        else:
            if self.upper is None:
                self.upper = self.total.view(torch.int16)
                self.lower = torch.zeros_like(self.weight, dtype=torch.uint8)
            products = torch.empty_like(self.weight[:_block_of(self.weight)])
            for block, bits, other in self._bits():
                product = torch.mm(scores[:, block].t(), rows, out=products[:len(bits)])
                bits.view(torch.float32).add_(other.view(torch.float32).copy_(product))
                self.lower[block] = bits.bitwise_right_shift_(8)
                self.upper[block] = bits.bitwise_right_shift_(8)

    def _bits(self) -> Iterator[Tuple[slice, Tensor, Tensor]]:
        """The sums of each block as the bits of float32, and room for as many others."""
        words, size = self.weight.shape[0], _block_of(self.weight)
        room = self.upper.new_empty((2, size, self.weight.shape[1]), dtype=torch.int32)
        for start in range(0, words, size):
            block = slice(start, min(start + size, words))
            bits, other = room[:, :block.stop - start]
            bits.copy_(self.upper[block]).bitwise_left_shift_(8)
            bits.bitwise_or_(other.copy_(self.lower[block])).bitwise_left_shift_(8)
            yield block, bits, other

    def result(self) -> Tensor:
        """The sum; it takes the memory of its upper bits."""
        if self.upper is not None:
            for block, bits, _ in self._bits():
                self.total[block] = bits.view(torch.float32)
        return torch.zeros_like(self.weight) if self.total is None else self.total


def _block_of(weight: Tensor) -> int:
    """How many words are summed up at a time."""
    words, width = map(hint, weight.shape)
    least = 1 if weight.device.type == "cpu" else GPU_BLOCK_BYTES // (_SUM_BYTES * width)
    return min(words, max(-(-words // BLOCKS), least))


@torch.library.custom_op("memonger::linear_cross_entropy", mutates_args=())
def _reduced(rows: Tensor, weight: Tensor, labels: Tensor, scale: Tensor, ignored: int,
             smoothing: float) -> Tuple[Tensor, Tensor, Tensor]:
    losses, of_rows, of_weight = _run(rows, weight, labels, scale, ignored, smoothing, True)
    return (losses * scale).sum(), of_rows, of_weight


@_reduced.register_fake
def _(rows: Tensor, weight: Tensor, labels: Tensor, scale: Tensor, ignored: int,
      smoothing: float) -> Tuple[Tensor, Tensor, Tensor]:
    return scale.new_empty(()), torch.empty_like(rows), torch.empty_like(weight)


def _keep_gradients(ctx: Any, inputs: Any, output: Any) -> None:
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(output[1], output[2])


def _scale_gradients(ctx: Any, gradient: Tensor, *_: Any) -> Tuple[Any, ...]:
    of_rows, of_weight = ctx.saved_tensors
    factor = gradient.to(of_rows.dtype)
    if type(of_weight) is Tensor and not private.keeps_graph():  # nobody reads them again
        if gradient.device.type != "cpu" or gradient != 1:
            of_rows, of_weight = of_rows.mul_(factor), of_weight.mul_(factor)
        return of_rows, of_weight, None, None, None, None
    return of_rows * factor, of_weight * factor, None, None, None, None


_reduced.register_autograd(_scale_gradients, setup_context=_keep_gradients)


@torch.library.custom_op("memonger::linear_cross_entropy_each", mutates_args=())
def _each(rows: Tensor, weight: Tensor, labels: Tensor, ignored: int,
          smoothing: float) -> Tensor:
    return _run(rows, weight, labels, labels, ignored, smoothing, False)[0]


@_each.register_fake
def _(rows: Tensor, weight: Tensor, labels: Tensor, ignored: int, smoothing: float) -> Tensor:
    return rows.new_empty(rows.shape[0], dtype=torch.float32)


@torch.library.custom_op("memonger::linear_cross_entropy_each_backward", mutates_args=())
def _each_backward(gradient: Tensor, rows: Tensor, weight: Tensor, labels: Tensor,
                   ignored: int, smoothing: float) -> _Pair:
    return _run(rows, weight, labels, gradient, ignored, smoothing, True)[1:]


@_each_backward.register_fake
def _(gradient: Tensor, rows: Tensor, weight: Tensor, labels: Tensor, ignored: int,
      smoothing: float) -> _Pair:
    return torch.empty_like(rows), torch.empty_like(weight)


def _keep_inputs(ctx: Any, inputs: Any, output: Any) -> None:
    ctx.save_for_backward(*inputs[:3])
    ctx.options = inputs[3:]


def _again(ctx: Any, gradient: Tensor) -> Tuple[Any, ...]:
    of_rows, of_weight = _each_backward(gradient, *ctx.saved_tensors, *ctx.options)
    return of_rows, of_weight, None, None, None


_each.register_autograd(_again, setup_context=_keep_inputs)


#: How often an op of this module reads or writes all scores: the product, their largest, four times
#: for exponentials, their sum; with gradients twice for these, and two products.
_PASSES = {"linear_cross_entropy": 11, "linear_cross_entropy_each": 7,
           "linear_cross_entropy_each_backward": 11}
#: How many products of the size of the projection it runs.
_PRODUCTS = {"linear_cross_entropy": 3, "linear_cross_entropy_each": 1,
             "linear_cross_entropy_each_backward": 3}


def score_bytes(target: Any, arguments: Sequence[Any]) -> Any:
    """Bytes of scores that an op of this module reads and writes; 0 for other ops.

    A symbol where the number of rows is one.
    """
    tensors = _operands(target, arguments)
    return _PASSES[_name(target)] * 4 * tensors[0].shape[0] * tensors[1].shape[0] if tensors else 0


def flops(target: Any, arguments: Sequence[Any]) -> Any:
    """Multiplications and additions of an op of this module, or a symbol; 0 for other ops."""
    tensors = _operands(target, arguments)
    return 2 * _PRODUCTS[_name(target)] * tensors[0].shape[0] * tensors[1].numel() \
        if tensors else 0


def temporary_bytes(target: Any, arguments: Sequence[Any]) -> int:
    """Bytes that an op of this module takes at most besides its outputs while it runs; else 0."""
    tensors = _operands(target, arguments)
    if not tensors:
        return 0
    (count, width), words = map(hint, tensors[0].shape), hint(tensors[1].shape[0])
    size, item = rows_of_chunk(count, words, width), tensors[1].element_size()
    of_chunk = size * (_ROW_BYTES + words * (4 if item == 4 else 4 + item))
    if _name(target) == "linear_cross_entropy_each":
        return of_chunk
    gradients, output = size * (_ROW_BYTES + words * item), words * width * item
    if size == count:  # the output comes after the scores
        return max(of_chunk - output, gradients)
    block = _block_of(tensors[1]) * width * _SUM_BYTES
    return of_chunk if item == 4 else words * width + max(of_chunk, gradients + block)


def _name(target: Any) -> str:
    space, _, name = str(target).partition(".")
    return name.partition(".")[0] if space == "memonger" else ""


def _operands(target: Any, arguments: Sequence[Any]) -> Sequence[Tensor]:
    """Rows and weight of an op of this module; () for other ops."""
    return [t for t in arguments if isinstance(t, Tensor) and t.dim() == 2][:2] \
        if _name(target) in _PASSES else ()
