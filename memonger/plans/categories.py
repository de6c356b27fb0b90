"""What the categories of a step's bytes are called, for people."""
from __future__ import annotations

from typing import Mapping, Optional

from ..graph.types import Graph

#: Names of the categories of ``Plan.fixed_bytes`` and ``Estimate.by_category``.
CATEGORIES = {"parameters": "parameters", "gradients": "gradients", "aux": "aux states",
              "inputs": "inputs", "head_gradients": "head gradients", "pool": "pool",
              "workspace": "workspace", "optimizer": "optimizer state",
              "outputs": "outputs and their gradients", "random_states": "random states",
              "buckets": "DistributedDataParallel's buckets",
              "never_written": "never written", "objects": "MXNet's objects",
              "layout_copies": "copies in other layouts", "recurrent_states": "states of RNN",
              "rest": "the rest"}
#: The same for a framework that sets no pool aside for the values of a step.
_WITHOUT_POOL = {**CATEGORIES, "pool": "in the step", "rest": "before it", "aux": "buffers",
                 "head_gradients": "gradients of outputs"}


def category_names(graph: Optional[Graph]) -> Mapping[str, str]:
    """Names of categories in the words of the framework that runs a graph."""
    return CATEGORIES if graph is None or pool_name(graph) == "pool" else _WITHOUT_POOL


def pool_name(graph: Graph) -> str:
    """What the bytes that a plan changes are called: MXNet sets a pool aside for them."""
    return "pool" if graph.shares_buffers or graph.own_units else "in the step"
