"""Projection to a vocabulary with cross-entropy, in chunks of rows.

A language model's scores (rows by words) and their gradients are most of its peak. Here the scores
of a few rows exist at a time. With one gradient for all rows (mean and sum) the gradients of hidden
states and weight are made in forward, while a chunk's scores are there, as in Liger's fused linear
cross-entropy (Hsu et al. 2024), and backward only scales them: no product runs twice. Without a
reduction backward makes the scores again.
"""
from __future__ import annotations

from typing import Any, Tuple

import torch
from torch import Tensor
from torch.utils.flop_counter import register_flop_formula

from ..util.errors import InputError

#: Bytes that a chunk's scores may take, in float32.
CHUNK_BYTES = 64 << 20

_Pair = Tuple[Tensor, Tensor]


def linear_cross_entropy(hidden: torch.Tensor, weight: torch.Tensor, target: torch.Tensor,
                         ignore_index: int = -100, label_smoothing: float = 0.0,
                         reduction: str = "mean") -> torch.Tensor:
    """``F.cross_entropy(F.linear(hidden, weight), target)`` without the scores in memory.

    Within rounding the same; bits differ, as products are of fewer rows. Sums are in float32.

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


def _chunks(rows: Tensor, words: int) -> int:
    """Rows of a chunk."""
    return max(1, min(rows.shape[0], CHUNK_BYTES // (4 * words)))


def _losses(scores: Tensor, labels: Tensor, smoothing: float) -> _Pair:
    """Loss of each row, and the logarithm of the sum of its exponentials."""
    total = scores.logsumexp(1)
    picked = scores.gather(1, labels[:, None])[:, 0]
    return total - (1 - smoothing) * picked - (
        smoothing * scores.mean(1) if smoothing else 0.0), total


def _score_gradients(scores: Tensor, total: Tensor, labels: Tensor, scale: Tensor,
                     smoothing: float) -> Tensor:
    """Gradients of the scores, in their memory."""
    scores.sub_(total[:, None]).exp_()
    if smoothing:
        scores.sub_(smoothing / scores.shape[1])
    less = torch.full_like(labels, smoothing - 1, dtype=scores.dtype)
    return scores.scatter_add_(1, labels[:, None], less[:, None]).mul_(scale[:, None])


def _run(rows: Tensor, weight: Tensor, labels: Tensor, scale: Tensor, ignored: int,
         smoothing: float, gradients: bool) -> Tuple[Tensor, Tensor, Tensor]:
    """Losses, and the gradients of rows and weight where row i's loss counts ``scale[i]``."""
    size = _chunks(rows, weight.shape[0])
    losses = rows.new_empty(rows.shape[0], dtype=torch.float32)
    of_rows = torch.empty_like(rows) if gradients else rows.new_empty(0)
    of_weight = torch.zeros_like(weight, dtype=torch.float32) if gradients else rows.new_empty(0)
    for start in range(0, rows.shape[0], size):
        part = slice(start, start + size)
        here, counts = rows[part], labels[part] != ignored
        picked = labels[part].masked_fill(~counts, 0)
        scores = (here @ weight.t()).float()
        found, total = _losses(scores, picked, smoothing)
        losses[part] = found * counts
        if gradients:
            made = _score_gradients(scores, total, picked, scale[part] * counts, smoothing)
            made = made.to(weight.dtype)
            torch.mm(made, weight, out=of_rows[part])
            if weight.dtype == torch.float32:
                of_weight.addmm_(made.t(), here)
            else:
                of_weight += made.t() @ here
    return losses, of_rows, of_weight.to(weight.dtype)


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


@register_flop_formula([torch.ops.memonger.linear_cross_entropy,
                        torch.ops.memonger.linear_cross_entropy_each_backward])
def _with_gradients(*shapes: Any, out_shape: Any = None, **kwargs: Any) -> int:
    rows, weight = [s for s in shapes if isinstance(s, (tuple, list, torch.Size))
                    and len(s) == 2][:2]
    return 3 * 2 * rows[0] * weight[0] * weight[1]


@register_flop_formula(torch.ops.memonger.linear_cross_entropy_each)
def _losses_only(rows: Any, weight: Any, *args: Any, out_shape: Any = None, **kwargs: Any) -> int:
    return 2 * rows[0] * weight[0] * weight[1]
