"""Facts about ATen operators that planning needs: which ones may run again.

Random numbers are drawn once, and what writes into its inputs writes once.
"""
from __future__ import annotations

import torch
import torch.fx as fx

from . import private


def repeat_reason(node: fx.Node) -> str:
    """Why a forward node must not run again; "" where it may."""
    target = node.target
    if not private.is_operator(target):
        return "no ATen operator"
    if private.writes(target):
        return "writes into its input"
    seeded = str(target).startswith("prims.inductor_") and "seeds" not in str(target)
    if torch.Tag.nondeterministic_seeded in target.tags and not seeded and not _drops_nothing(node):
        return "draws random numbers"
    if target.namespace not in ("aten", "prims", "memonger"):
        return "a custom operator, which may have effects"
    return ""


def _drops_nothing(node: fx.Node) -> bool:
    """Attention names a generator for its dropout even where it drops nothing."""
    return "scaled_dot_product" in str(node.target) and not private.named_arguments(node).get(
        "dropout_p", 0.0)
