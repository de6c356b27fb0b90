"""Facts about ATen operators that planning needs: which ones may run again, and how.

Random numbers are drawn once, and what writes into its inputs writes once.
"""
from __future__ import annotations

from typing import Sequence, Tuple

import torch
import torch.fx as fx

from ..pytorch import private_ops
from . import collectives

_BATCH_NORM = torch.ops.aten._native_batch_norm_legit_functional.default
#: The same normalization by the batch's own statistics, for runs after the first.
_BATCH_NORM_AGAIN = torch.ops.aten._native_batch_norm_legit.no_stats

#: One that chooses what serves it, as :mod:`..rewrite.batch_norm` says.
_CHOSEN = torch.ops.aten._batch_norm_with_update_functional.default

#: Whose operators do nothing but make their results, and write into what their schemas say.
#: torchtitan's policies run its own operators again, too.
_WITHOUT_EFFECTS = ("aten", "prims", "memonger", "torchtitan", collectives.NAMESPACE)

#: An output stays with the first run if it has at most SMALL_BYTES and at most SMALL_SHARE of its
#: op's largest output, as the mean and variance of a normalization have.
SMALL_BYTES, SMALL_SHARE = 1 << 16, 1 / 64


def repeat_reason(node: fx.Node) -> str:
    """Why a forward node must not run again; "" where it may."""
    target = node.target
    if not private_ops.is_operator(target):
        return "no ATen operator"
    seeded = str(target).startswith("prims.inductor_") and "seeds" not in str(target)
    if draws(node) and not seeded:
        return "draws random numbers"
    if target.namespace not in _WITHOUT_EFFECTS:
        return "a custom operator, which may have effects"
    if private_ops.depends_on_values(node):
        return "its size depends on values"
    return ""


def draws(node: fx.Node) -> bool:
    """Whether a node's value depends on random numbers that are drawn for it."""
    return private_ops.is_operator(node.target) and torch.Tag.nondeterministic_seeded in \
        node.target.tags and not _drops_nothing(node)


def _drops_nothing(node: fx.Node) -> bool:
    """Attention names a generator for its dropout even where it drops nothing."""
    return "scaled_dot_product" in str(node.target) and not private_ops.named_arguments(node).get(
        "dropout_p", 0.0)


def first_results(node: fx.Node) -> Sequence[int]:
    """Results that only the first run has: the new running statistics of BatchNorm."""
    return () if not _moves_statistics(node) else (4, 5) if node.target is _CHOSEN else (3, 4)


def first_operands(node: fx.Node) -> Sequence[fx.Node]:
    """Inputs that only the first run reads: the running statistics of BatchNorm."""
    return node.args[3:5] if _moves_statistics(node) else ()


def run_again(made: fx.Node) -> None:
    """Turn a node into one for runs after the first."""
    if made.target is _CHOSEN:  # which must have some, whatever they are
        data, weight, bias, _, _, momentum, epsilon = made.args
        made.args = (data, weight, bias, weight, bias, momentum, epsilon)
    elif _moves_statistics(made):
        data, weight, bias, _, _, training, momentum, epsilon = made.args
        made.target = _BATCH_NORM_AGAIN
        made.args = (data, weight, bias, training, momentum, epsilon)


def _moves_statistics(node: fx.Node) -> bool:
    return node.target is _CHOSEN or node.target is _BATCH_NORM and bool(
        private_ops.named_arguments(node)["training"])


def kept_results(node: fx.Node, places: Sequence[int], sizes: Sequence[int]) -> Tuple[int, ...]:
    """Of the results that an op makes those that stay with its first run.

    ``places``: of each among the values of ``node``; ``sizes``: bytes of each.
    """
    small_bytes = min(SMALL_BYTES, SMALL_SHARE * max(sizes, default=0))
    return tuple(k for k, size in enumerate(sizes)
                 if places[k] in first_results(node) or size <= small_bytes)
