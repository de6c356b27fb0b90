"""Forms of a step for budgets that its plain one cannot meet: Inductor then holds less.

* A sum with a matrix product that is there long before it is computed by itself. As one call with
  the sum, as Inductor has it, what the product reads would live until the sum: the gradient of the
  scores all through backward, where the embedding's weight is the output layer's.
* Parts of a gradient, as that of what was concatenated, are copied, as all of it would be there
  until the last one is read. oneDNN copies such a part anyway, for a transposed convolution.
* A value made of more than one buffer is written, and not made in each kernel that reads it, which
  would hold all these buffers (:func:`..pytorch.private_kernels.few_reads`).
* Gradients of filters with one channel read no copies with the channels before the rows. That alone
  is a form, too, as values that are written instead of made twice may be what is too much.
"""
from __future__ import annotations

from typing import Any, Iterator, Mapping, Tuple

import torch
import torch.fx as fx

from ..capture.fusion import sums_with_products
from ..capture.layouts import read_no_copies
from ..capture.written import copy_of
from ..pytorch import private_joint, private_kernels
from ..pytorch.sizes import hint, tensor_bytes


def forms_in_depth(joint: fx.GraphModule
                   ) -> Iterator[Tuple[fx.GraphModule, Mapping[str, Any]]]:
    """Other forms of a joint graph, each with Inductor's configuration for it."""
    arranged = private_joint.copied(joint)
    if read_no_copies(arranged):
        yield arranged, {}
    yield rewritten(joint), private_kernels.few_reads()


def rewritten(joint: fx.GraphModule) -> fx.GraphModule:
    """A copy of the joint graph in which no such sum and no such part of a gradient waits."""
    apart = private_joint.copied(joint)
    nodes = list(apart.graph.nodes)
    place = {node: number for number, node in enumerate(nodes)}
    for total, product in sums_with_products(nodes).items():
        other = next(a for a in total.args if a is not product)
        read_bytes = sum(_bytes_of(operand) for operand in product.all_input_nodes)
        if place[other] > place[product] and read_bytes > _bytes_of(product):
            # No pattern of a product and a sum, and the same numbers.
            total.target = torch.ops.aten.sub.Tensor
            total.args, total.kwargs = (other, product), {"alpha": -1}
    for whole in nodes:
        parts = list(whole.users)
        if len(parts) < 2 or not private_joint.is_backward(whole) or any(
                part.target is not torch.ops.aten.slice.Tensor for part in parts):
            continue
        for part in parts:
            with apart.graph.inserting_before(part.next):
                copied = copy_of(part)
            part.replace_all_uses_with(
                copied, delete_user_cb=lambda user, made=copied: user is not made)
            copied.meta["partitioner_tag"] = part.meta.get("partitioner_tag", "")
    read_no_copies(apart)
    apart.recompile()
    return apart


def _bytes_of(node: fx.Node) -> int:
    return hint(tensor_bytes(node.meta["val"]))
