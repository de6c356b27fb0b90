"""Projection to a vocabulary with cross-entropy, in chunks of rows.

A language model's scores (rows by words) and their gradients are most of its peak. Here the scores
of a few rows exist at a time. With one gradient for all rows (mean and sum) the gradients of hidden
states and weight are made in forward, while a chunk's scores are there, as in Liger's fused linear
cross-entropy (Hsu et al. 2024), and backward only scales them. Without a
reduction backward makes the scores again.

Few rows are one chunk, whose product is the weight's gradient. With several chunks the products for
a float32 weight are added to its gradient. A weight of 16 bits would lose digits there, so its
gradient takes a second pass, by blocks of words: the scores of all rows for a block's words are
made again, and one product is the block's gradient, rounded once. That is four products of the size
of the projection where others take three.
"""
from __future__ import annotations

from typing import Any, Sequence, Tuple

import torch
from torch import Tensor

from ...util.errors import InputError
from . import private_ops
from .sizes import hint, resized

#: Chunks of the rows, and between which bytes a chunk's scores in float32 lie, for float32 weights.
CHUNKS = 8
SMALLEST_CHUNK_BYTES, LARGEST_CHUNK_BYTES = 4 << 20, 64 << 20

#: All rows are one chunk where their scores in the weight's type take so little of the weight.
SHARE_OF_WEIGHT = 3 / 8
#: With weights of 16 bits the scores of one of several chunks or blocks, of ``_BOTH_TYPES`` bytes
#: each, take so much of the larger of weight and hidden states, but those of so many rows or words
#: at least.
SHARE_OF_BOTH, FEWEST, _BOTH_TYPES = 2 / 5, 16, 6

#: Bytes of a row's numbers beside its scores, at most: of each row, and of those in work.
_ROW_BYTES, _WORK_BYTES = 24, 32

_Pair = Tuple[Tensor, Tensor]


def linear_cross_entropy(hidden: torch.Tensor, weight: torch.Tensor, target: torch.Tensor,
                         ignore_index: int = -100, label_smoothing: float = 0.0,
                         reduction: str = "mean") -> torch.Tensor:
    """``F.cross_entropy(F.linear(hidden, weight), target)`` without the scores in memory.

    Within rounding the same; bits differ, as products are of fewer rows. Sums over the words, and
    over chunks of rows, are in float32.

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


def rows_of_chunk(rows: int, words: int, width: int, item_bytes: int) -> int:
    """How many rows' scores exist at a time: all where they are small beside the weight."""
    if rows <= SHARE_OF_WEIGHT * width:
        most = rows
    elif item_bytes == 4:
        most_bytes = max(4 * rows * words // CHUNKS, SMALLEST_CHUNK_BYTES)
        most = min(most_bytes, LARGEST_CHUNK_BYTES) // (4 * words)
    else:
        most = _at_a_time(words, width, max(rows, words))
    return max(1, min(rows, most))


def words_of_block(rows: int, words: int, width: int) -> int:
    """For how many words the scores of all rows exist at a time, with weights of 16 bits."""
    return max(1, min(words, _at_a_time(rows, width, max(rows, words))))


def _at_a_time(scores: int, width: int, larger: int) -> int:
    """How many rows or words with so many scores each make a chunk or a block."""
    share = int(SHARE_OF_BOTH * 2 * width * larger) // (_BOTH_TYPES * scores)
    return min(max(share, FEWEST), LARGEST_CHUNK_BYTES // (4 * scores))


def _losses(scores: Tensor, labels: Tensor, smoothing: float) -> Tuple[Tensor, Tensor, Tensor]:
    """Loss of each row, the logarithm of the sum of its exponentials, and the latter's sum.

    In place: a score becomes the exponential of its difference from the largest.
    """
    most = scores.amax(1)
    less = (1 - smoothing) * scores.gather(1, labels[:, None])[:, 0]
    if smoothing:
        less += smoothing * scores.mean(1)
    sums = scores.sub_(most[:, None]).exp_().sum(1)
    logs = most.add_(sums.log())
    return logs - less, logs, sums


def _score_gradients(exponentials: Tensor, factor: Tensor, labels: Tensor, scale: Tensor,
                     smoothing: float, words: int) -> None:
    """Exponentials of some words' scores become the scores' gradients.

    Labels count from the first of these words; labels of other words are ignored.
    """
    exponentials.mul_(factor[:, None])
    if smoothing:
        exponentials.sub_((scale * (smoothing / words))[:, None])
    last = exponentials.shape[1] - 1
    less = scale * (smoothing - 1) * ((labels >= 0) & (labels <= last))
    exponentials.scatter_add_(1, labels.clamp(0, last)[:, None], less[:, None])


def _run(rows: Tensor, weight: Tensor, labels: Tensor, scale: Tensor, ignored: int,
         smoothing: float, gradients: bool) -> Tuple[Tensor, Tensor, Tensor]:
    """Losses, and the gradients of rows and weight where row i's loss counts ``scale[i]``."""
    count, (words, width) = rows.shape[0], weight.shape
    size = rows_of_chunk(count, words, width, weight.element_size())
    several, summed = size < count, weight.dtype == torch.float32
    counts = labels != ignored
    labels, scale = labels.masked_fill(~counts, 0), scale * counts
    losses, logs = (rows.new_empty(count, dtype=torch.float32) for _ in range(2))
    of_rows, of_weight = rows.new_empty(0), rows.new_empty(0)
    if gradients:
        of_rows = torch.empty_like(rows)
    if gradients and several and summed:
        of_weight = torch.zeros_like(weight)
    room = weight.new_empty(min(size, count), words)
    for start in range(0, max(1, count), size):
        part = slice(start, start + size)
        here, at, counted = rows[part], labels[part], scale[part]
        products = torch.mm(here, weight.t(), out=room[:here.shape[0]])
        scores = products.float()
        losses[part], logs[part], sums = _losses(scores, at, smoothing)
        if gradients:
            _score_gradients(scores, counted / sums, at, counted, smoothing, words)
            products.copy_(scores)
        del scores  # before the other products, which need room of their own
        if gradients:
            torch.mm(products, weight, out=of_rows[part])
        if gradients and several and summed:
            of_weight.addmm_(products.t(), here)
    if gradients and not several:
        of_weight = torch.mm(room.t(), rows, out=torch.empty_like(weight))
    elif gradients and not summed:
        del room, products
        of_weight = _by_words(rows, weight, labels, logs, scale, smoothing)
    return losses.mul_(counts), of_rows, of_weight


def _by_words(rows: Tensor, weight: Tensor, labels: Tensor, logs: Tensor, scale: Tensor,
              smoothing: float) -> Tensor:
    """The weight's gradient by blocks of words, from the logarithms of the rows' sums."""
    words, size = weight.shape[0], words_of_block(rows.shape[0], *weight.shape)
    of_weight, room = torch.empty_like(weight), weight.new_empty(size, rows.shape[0])
    for start in range(0, words, size):
        here = weight[start:start + size]
        products = torch.mm(here, rows.t(), out=room[:here.shape[0]])
        scores = products.float().sub_(logs).exp_()
        _score_gradients(scores.t(), scale, labels - start, scale, smoothing, words)
        products.copy_(scores)
        del scores
        torch.mm(products, rows, out=of_weight[start:start + size])
    return of_weight


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
    if type(of_weight) is Tensor and not private_ops.keeps_graph():  # nobody reads them again
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
#: What a second pass, by words, adds to these: the product, four times for exponentials, twice for
#: gradients; the last product is there without it.
_PASSES_BY_WORDS, _PRODUCTS_BY_WORDS = 7, 1


def score_bytes(target: Any, arguments: Sequence[Any]) -> Any:
    """Bytes of scores that an op of this module reads and writes; 0 for other ops.

    A symbol where the number of rows is one.
    """
    tensors = _operands(target, arguments)
    if not tensors:
        return 0
    passes = _PASSES[_name(target)] + _PASSES_BY_WORDS * _is_by_words(target, *tensors)
    return passes * 4 * tensors[0].shape[0] * tensors[1].shape[0]


def flops(target: Any, arguments: Sequence[Any]) -> Any:
    """Multiplications and additions of an op of this module, or a symbol; 0 for other ops."""
    tensors = _operands(target, arguments)
    if not tensors:
        return 0
    products = _PRODUCTS[_name(target)] + _PRODUCTS_BY_WORDS * _is_by_words(target, *tensors)
    return 2 * products * tensors[0].shape[0] * tensors[1].numel()


def temporary_bytes(target: Any, arguments: Sequence[Any]) -> int:
    """Bytes that an op of this module takes at most besides its outputs while it runs; else 0."""
    tensors = _operands(target, arguments)
    if not tensors:
        return 0
    count, words, width, item = _sizes(*tensors)
    size = rows_of_chunk(count, words, width, item)
    of_chunk = size * (_WORK_BYTES + words * (4 if item == 4 else _BOTH_TYPES))
    later, output = size * words * item, words * width * item
    if _is_by_words(target, *tensors):
        later = count * (_WORK_BYTES + words_of_block(count, words, width) * _BOTH_TYPES)
    if _name(target) != "linear_cross_entropy_each" and (item != 4 or size == count):
        of_chunk = max(of_chunk - output, later)  # the output comes after the chunks
    return count * _ROW_BYTES + of_chunk


def _is_by_words(target: Any, rows: Tensor, weight: Tensor) -> bool:
    """Whether an op of this module makes the weight's gradient in a second pass, by words."""
    count, words, width, item = _sizes(rows, weight)
    return _name(target) != "linear_cross_entropy_each" and item != 4 and \
        rows_of_chunk(count, words, width, item) < count


def _sizes(rows: Tensor, weight: Tensor) -> Tuple[int, int, int, int]:
    """Rows, words, width, and the bytes of a number."""
    count, width, words = (resized(hint(n)) for n in (*rows.shape, weight.shape[0]))
    return count, words, width, weight.element_size()


def _name(target: Any) -> str:
    space, _, name = str(target).partition(".")
    return name.partition(".")[0] if space == "memonger" else ""


def _operands(target: Any, arguments: Sequence[Any]) -> Sequence[Tensor]:
    """Rows and weight of an op of this module; () for other ops."""
    return [t for t in arguments if isinstance(t, Tensor) and t.dim() == 2][:2] \
        if _name(target) in _PASSES else ()
