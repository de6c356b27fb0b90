"""Which values Inductor never puts into memory.

Inductor makes one kernel of fusible ops that read each other: pointwise ones and reductions. A
value stays in registers where all its readers are part of its kernel. Fusible ops of one half of
the step count as one kernel where the longest path to each has the same number of matrix products,
convolutions and other library kernels: then none lies between them.

A pointwise value is computed in each kernel that reads it if it has one reader or is made of few
buffers, which are then held until the last of these kernels runs.
A scatter computes the values that it writes, and its kernel ends with it; a constant into which it
writes is filled in by its kernel.
A sum over a batch is written, by a kernel of its own with what only such sums read: kernels that
read it come later.
A matrix product that only a sum reads becomes one call with it, at the place of the sum. Random
numbers are drawn row by row, so beside convolutions whose channels come last they are written.
"""
from __future__ import annotations

import operator
from typing import Any, Callable, Dict, FrozenSet, List, Sequence, Set, Tuple

import torch
import torch.fx as fx

from ..pytorch import private_kernels, private_ops
from ..pytorch.sizes import tensors
from .layouts import out_of_order
from .padding import room_bytes

#: What Inductor computes once on a CPU, however little it reads.
_COSTLY_ON_CPU = {"aten." + name for name in (
    "exp", "log", "log10", "log1p", "log2", "sigmoid", "tanh")}
#: What is smaller by this factor than what it is made of or for is kept, as PyTorch does.
_SMALL = 4


def in_order(nodes: Sequence[fx.Node], early: Set[fx.Node],
             late: Set[fx.Node]) -> List[fx.Node]:
    """The nodes, with each early one behind the last node of forward that reads as it does.

    ``late``: the nodes of backward.
    """
    place = {node: (number, 0) for number, node in enumerate(nodes)}
    for number, node in enumerate(nodes):
        if node in early:
            behind = max(place[other][0] for i in node.all_input_nodes for other in (
                i, *(r for r in i.users if r in place and r not in late and r not in early)))
            place[node] = (min(behind, number), number)
    return sorted(nodes, key=place.__getitem__)


def in_registers(nodes: Sequence[fx.Node], views: Set[fx.Node], late: Set[fx.Node],
                 written: Set[fx.Node], early: Set[fx.Node]) -> Set[fx.Node]:
    """The nodes of a joint graph, in order, whose values no kernel writes.

    ``views``: the nodes that only rename memory. ``late``: the nodes of backward.
    ``written``: inputs that forward writes into, so that backward makes no value of them.
    ``early``: what PyTorch keeps for backward in place of what it is made of.
    Linear in the number of edges where values are made of few buffers.
    """
    sums = sums_with_products(nodes)
    fusible = {n for n in nodes if n.op == "call_function" and n not in views and n not in sums
               and private_kernels.is_fusible(n) and isinstance(n.meta.get("val"), torch.Tensor)}
    scatters = {n for n in nodes if n.op == "call_function" and private_kernels.scatters(n)}
    stage: Dict[fx.Node, int] = {}
    for node in nodes:
        library = node.op == "call_function" and node not in fusible and node not in views
        stage[node] = max((stage[i] for i in node.all_input_nodes), default=0) + library
    readers = _readers(nodes, views)
    # What scatters write into a copy of.
    filled = {n: _behind(n.args[0], lambda view: view in views and view.op == "call_function")
              for n in nodes if n.op == "call_function" and private_kernels.copies_first_operand(n)}
    fusible_again = fusible - out_of_order(nodes)

    def in_kernel_of(reader: fx.Node, node: fx.Node) -> bool:
        return reader in fusible or (not node.all_input_nodes if filled.get(reader) is node
                                     else reader in scatters)

    unread = {n for n in fusible_again if not _sums_over_batch(n)
              and all(in_kernel_of(r, n) for r in readers[n])}
    most = private_kernels.most_buffers_computed_again()
    sources = _computed_again(nodes, views, late, unread, readers, most)
    # In depth a kernel writes in a layout of its own, over none of what it reads, as if read later.
    for_sums = _for_sums_over_batch(nodes, unread, readers) if most > 1 else set()
    kernels: Dict[fx.Node, FrozenSet[Tuple[int, bool]]] = {}
    for node in reversed(nodes):  # that read its value, themselves or in others computed again
        kernels[node] = frozenset().union(*(
            kernels[r] if r in sources else {(stage.get(r, -1), r in for_sums)}
            for r in readers[node]))

    def in_one_kernel(node: fx.Node) -> bool:
        return all((r in late) == (node in late) for r in readers[node]) and (
            node in sources or kernels[node] <= {(stage[node], node in for_sums)})

    unwritten = {n for n in unread if readers[n]
                 and (in_one_kernel(n) or n not in early
                      and _backward_makes_it(n, sources, late, written))}
    return unwritten | {product for total, product in sums.items()
                        if (total in late) == (product in late)}


def written_for(node: fx.Node, unwritten: Set[fx.Node], images: Set[fx.Node]) -> int:
    """Bytes of what is written only for a library, which reads rows from memory.

    ``unwritten``: what no kernel writes. ``images``: what has its channels last.
    """
    if not private_kernels.has_library_for_sum(node):
        return 0
    total_bytes = 0
    for operand in (node.args[2], node.args[3]):
        source = _behind(operand, lambda view: private_ops.makes_view(view.target))
        total_bytes += _bytes_of(operand) * ((operand in unwritten) + (source in images))
    return total_bytes


def _readers(nodes: Sequence[fx.Node], views: Set[fx.Node]) -> Dict[fx.Node, List[fx.Node]]:
    """The readers of each node's value, also through views: through two views twice."""
    readers: Dict[fx.Node, List[fx.Node]] = {}
    for node in reversed(nodes):
        found: List[fx.Node] = []
        for user in node.users:
            found += readers[user] if user.op == "call_function" and user in views else [user]
        readers[node] = found
    return readers


def _behind(operand: Any, is_view: Callable[[fx.Node], bool]) -> fx.Node:
    """The node whose value is read through views."""
    while is_view(operand):
        operand = operand.all_input_nodes[0]
    return operand


def _computed_again(nodes: Sequence[fx.Node], views: Set[fx.Node], late: Set[fx.Node],
                    unread: Set[fx.Node], readers: Dict[fx.Node, List[fx.Node]], most: int
                    ) -> Dict[fx.Node, FrozenSet[fx.Node]]:
    """The values that each of their readers computes for itself, with the buffers they are of.

    ``most``: buffers that a value with several readers is made of.
    """
    sources: Dict[fx.Node, FrozenSet[fx.Node]] = {}
    behind: Dict[fx.Node, FrozenSet[fx.Node]] = {}
    costly: Set[fx.Node] = set()
    for node in nodes:
        made_of = frozenset().union(*(behind[i] for i in node.all_input_nodes))
        if node in views:  # what an operator gives more than one of are several buffers
            behind[node] = frozenset([node]) if node.target is operator.getitem else made_of
            continue
        if _is_costly(node) or any(i in costly for i in node.all_input_nodes):
            costly.add(node)
        in_backward = sum(r in late for r in readers[node])
        alone = max(in_backward, len(readers[node]) - in_backward) <= 1  # in each half
        few = alone or len(made_of) <= most and node not in costly
        simple = private_kernels.is_pointwise(node) or not node.all_input_nodes  # a constant
        if node in unread and simple and few:
            sources[node] = behind[node] = made_of
        else:
            behind[node] = frozenset([node])
            costly.discard(node)
    return sources


def _sums_over_batch(node: fx.Node) -> bool:
    """Whether the node sums up over the first of several dimensions, as gradients of weights do.

    All kernels that read the sum come behind the one that makes it, which reads far more.
    """
    summed = private_ops.named_arguments(node).get("dim") if reduces(node) else None
    if not isinstance(summed, (list, tuple)):
        return False
    count = node.all_input_nodes[0].meta["val"].dim()
    dimensions = {int(d) % count for d in summed}
    return 0 in dimensions and len(dimensions) < count


def _for_sums_over_batch(nodes: Sequence[fx.Node], unread: Set[fx.Node],
                         readers: Dict[fx.Node, List[fx.Node]]) -> Set[fx.Node]:
    """Sums over a batch with the values that only such sums read, which are of their kernels."""
    found: Set[fx.Node] = set()
    for node in reversed(nodes):
        if _sums_over_batch(node) or node in unread and readers[node] and \
                found.issuperset(readers[node]):
            found.add(node)
    return found


def _is_costly(node: fx.Node) -> bool:
    return str(getattr(node.target, "overloadpacket", "")) in _COSTLY_ON_CPU and \
        node.meta["val"].device.type == "cpu"


def _backward_makes_it(node: fx.Node, sources: Dict[fx.Node, FrozenSet[fx.Node]],
                       late: Set[fx.Node], written: Set[fx.Node]) -> bool:
    """Whether a forward value is never kept for backward: it is a constant, or made of one buffer
    of its size, beside small ones, or of small ones alone, and PyTorch rather keeps those. Random
    numbers are drawn once.
    """
    if node not in sources or node in late or not written.isdisjoint(sources[node]):
        return False
    made_bytes = _bytes_of(node)
    large = [size for size in map(_bytes_of, sources[node]) if _SMALL * size >= made_bytes]
    of_buffers = sources[node].issuperset(node.all_input_nodes) and \
        not private_kernels.is_random(node)
    return not sources[node] or large == [made_bytes] or not large and of_buffers


def reduces(node: fx.Node) -> bool:
    """Whether the node sums up, or the like, and is part of a kernel.

    Each kernel sums in an order of its own, so that it gives other last bits when it runs again as
    part of another one.
    """
    read = sum(map(_bytes_of, node.all_input_nodes))
    return private_kernels.is_fusible(node) and not private_kernels.is_pointwise(node) and \
        _SMALL * _bytes_of(node) < read


def is_small_beside(part: fx.Node, node: fx.Node) -> bool:
    """Whether a node's part is kept when the node runs again.

    In another kernel a logarithm may give other last bits, as a sum does.
    """
    return reduces(part) or _SMALL * _bytes_of(part) < _bytes_of(node)


def _bytes_of(node: fx.Node) -> int:
    return sum(map(room_bytes, tensors(node.meta.get("val"))))


def sums_with_products(nodes: Sequence[fx.Node]) -> Dict[fx.Node, fx.Node]:
    """Sums that Inductor computes together with one of their operands, a matrix product.

    The gradient of a weight that two operators use is such a sum: what the first product reads
    lives until the second is there.
    """
    found: Dict[fx.Node, fx.Node] = {}
    for node in nodes:
        if node.target is not torch.ops.aten.add.Tensor or node.kwargs or _stays_apart(node):
            continue
        for product, other in (node.args, node.args[::-1]):
            if _is_product_for(node, product) and _fits(other, product):
                found[node] = product
                break
    return found


def _is_product_for(total: fx.Node, operand: Any) -> bool:
    return isinstance(operand, fx.Node) and operand.target is torch.ops.aten.mm.default \
        and list(operand.users) == [total]


def _fits(other: Any, product: Any) -> bool:
    """Whether the other operand can be what the product is added to."""
    theirs = other.meta.get("val") if isinstance(other, fx.Node) else None
    mine = product.meta["val"]
    return isinstance(theirs, torch.Tensor) and theirs.dtype == mine.dtype and all(
        n in (1, m) for n, m in zip(reversed(theirs.shape), reversed(mine.shape)))


def _stays_apart(total: fx.Node) -> bool:
    """On a GPU a sum that only pointwise operators read is part of their kernel instead."""
    return total.meta["val"].device.type != "cpu" and \
        all(map(private_kernels.is_fusible, total.users))
