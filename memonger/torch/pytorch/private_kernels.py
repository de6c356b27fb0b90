"""Every call into what is not public of PyTorch about what Inductor makes one kernel of."""
from __future__ import annotations

from typing import Any, Dict, List

import torch
import torch.fx as fx

from .private_ops import FORMULAS

try:
    from torch._functorch import partitioners
except ImportError:  # another PyTorch than those tested: versions.py finds out before others do
    pass

_FUSIBLE: Dict[str, Any] = {}
#: What writes values to places that indices name, in a copy of its first operand.
_SCATTERS = {torch.ops.aten.index_put, torch.ops.aten._unsafe_index_put,
             torch.ops.aten._unsafe_masked_index_put_accumulate}
#: What adds them there, as the gradient of max-pooling does in PyTorch 2.13 and later.
_SCATTERED_SUMS = {torch.ops.aten.scatter_add}


def is_random(node: fx.Node) -> bool:
    """Whether Inductor draws the node's value from a seed."""
    return str(getattr(node.target, "overloadpacket", "")) == "prims.inductor_random"


def is_drawn_by_kernel(node: fx.Node) -> bool:
    """Whether kernels of different forms draw different numbers for the node from one seed.

    On a GPU PyTorch 2.13 and 2.14 draw four at once in kernels of one dimension, and one in others
    (its issue 198333).
    """
    if not is_random(node) or node.meta["val"].device.type != "cuda":
        return False
    from torch._inductor import config
    from torch._inductor.codegen.triton import TritonOverrides
    return hasattr(TritonOverrides, "_can_use_4x_random") and \
        getattr(config, "use_rand4x", True) and not config.align_random_eager


def is_fusible(node: fx.Node) -> bool:
    """Whether Inductor makes the node part of a neighbour's kernel."""
    if not _FUSIBLE:
        ops = partitioners.get_default_op_list()
        _FUSIBLE["ops"] = set(ops.fusible_ops) | set(ops.view_ops)
    packet = getattr(node.target, "overloadpacket", None)
    if is_random(node):  # made in registers from a seed
        return True
    return packet is not None and packet not in FORMULAS and (
        torch.Tag.pointwise in node.target.tags or packet in _FUSIBLE["ops"])


def copies_first_operand(node: fx.Node) -> bool:
    """Whether the node writes values into a copy of its first operand, which its kernels make."""
    packet = getattr(node.target, "overloadpacket", None)
    return packet in _SCATTERS or packet in _SCATTERED_SUMS


def scatters(node: fx.Node) -> bool:
    """Whether Inductor makes one kernel of a scatter and of what its values are made of.

    That of a scattered sum also where a library does it, which is not known before a step runs.
    """
    if not copies_first_operand(node) or torch.are_deterministic_algorithms_enabled():
        return False
    if node.target.overloadpacket in _SCATTERED_SUMS:
        return True
    from torch._inductor import utils
    place = [argument.name for argument in node.target._schema.arguments].index("indices")
    masks = any(isinstance(index, fx.Node) and index.meta["val"].dtype in (torch.bool, torch.uint8)
                for index in node.args[place])
    return not masks and not utils.needs_fallback_due_to_atomic_add_limitations(
        node.meta["val"].dtype)


def has_library_for_sum(node: fx.Node) -> bool:
    """Whether a library does a scattered sum: on a CPU where this process has several threads."""
    if getattr(node.target, "overloadpacket", None) not in _SCATTERED_SUMS:
        return False
    from torch._inductor import utils
    mine = node.meta["val"]
    return utils.use_scatter_fallback(torch.ops.aten.scatter_reduce_.two, "sum", mine.dtype,
                                      mine.dtype, mine.device.type, True)


def is_pointwise(node: fx.Node) -> bool:
    """Whether each element of the node's value depends on one element of each operand."""
    return torch.Tag.pointwise in getattr(node.target, "tags", ()) or is_random(node) or \
        str(node.target) == "prims._low_memory_max_pool_offsets_to_indices.default"


def written(node: fx.Node, strides: List[int]) -> fx.Node:
    """The node's value as one that Inductor writes so, however many kernels read it."""
    from torch._inductor import inductor_prims
    with node.graph.inserting_after(node):
        made = node.graph.call_function(inductor_prims.force_stride_order, (node, strides))
    made.meta = dict(node.meta)
    return made


def most_buffers_computed_again() -> int:
    """A value of at most so many buffers Inductor computes in each kernel that reads it."""
    from torch._inductor import config
    return config.realize_reads_threshold


def few_reads() -> Dict[str, Any]:
    """Inductor's configuration under which that is one buffer."""
    return {"realize_reads_threshold": 1}
