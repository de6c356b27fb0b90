"""Memory of MKLDNN's operators while they run: copies in other layouts.

MKLDNN's operators write arrays in layouts of their own. A convolution converts its weight, and
whatever comes in another layout, in temporary space; FullyConnected converts its data to MXNet's.
All ops of an executor share that space, and it stays as large as its largest use. In a planned
network our operators stand between MKLDNN's, and write in MXNet's layout. Which of them do is not
known before there is a plan, so there each array that a convolution reads is counted, and each that
an operator other than MKLDNN's reads. Gradients of MKLDNN's other operators convert that of the
output to the layout of the data; those that write where they read do so through a copy, and so do
all that add to a gradient. MXNet asks for twice what it needs; the half that it never touches is
not counted. Operators that are not MKLDNN's share a space of their own beside it.

Stock executors keep a copy of each array that an operator other than MKLDNN's reads in another
layout; in planned networks copies end with the operator's run (``plugins/mxnet/layouts.h``).

Not counted: what MKLDNN keeps for each convolution (about its weight for every further thread).
What it keeps for ``RNN`` is in :mod:`memonger.mx.memory.recurrent`.
"""
from __future__ import annotations

from typing import AbstractSet, List, Mapping, Sequence, Set, Tuple

from ...graph.types import Graph, Op
from .convolutions import IN_PARTS, WEIGHT
from .native_workspaces import native_bytes

#: Operators that write in a layout of their own, and those that keep the layout of their data.
_MAKE = ("Convolution", "Deconvolution", "memonger_split_convolution",
         "memonger_split_convolution_data", IN_PARTS)
_KEEP = ("BatchNorm", "Activation", "relu", "LeakyReLU", "Pooling", "Concat", "concat", "add_n",
         "elemwise_add", "_plus", "broadcast_add", "_grad_add", "_copy", "LRN")
#: Operators whose gradient wants all it reads in one layout, and those that write it in place.
_ONE_LAYOUT = ("Activation", "LeakyReLU", "BatchNorm", "Pooling")
_IN_PLACE = ("Activation", "LeakyReLU")
#: Data with fewer channels are read as they are.
_CHANNELS = 8
#: Operators that convert their weight, and where it is.
_WEIGHT = {**WEIGHT, "Deconvolution": (1, 2)}
#: Sums of two arrays with at most so many axes.
_SUMS = ("elemwise_add", "_grad_add")
_SUM_AXES = 4
#: MXNet's number of that kind of resource.
_TEMP_SPACE = 1
#: Operators whose gradient is made beside those whose memory it takes.
_SOFTMAX = ("softmax", "log_softmax")


def mkldnn_workspaces(graph: Graph, attributes: Sequence[Mapping[str, str]],
                      planned: bool = True, added: AbstractSet[int] = frozenset()
                      ) -> Tuple[int, ...]:
    """Bytes for each op of the graph with MKLDNN on a CPU.

    ``attributes``: those of each op, as in the symbol.
    ``planned``: whether the network gets a plan, or is MXNet's alone.
    ``added``: gradients that are added to what lies in their arrays.
    """
    in_layout = _in_mkldnn_layout(graph)
    native = max([native_bytes(graph, index, attributes[index], added)
                  for index, op in enumerate(graph.ops)
                  if not _converts_weight(graph, op, attributes[index])] or [0])
    return tuple(max(op.workspace_bytes, native
                     + _made_beside(graph, index, attributes[index], added)
                     + _bytes(graph, op, attributes[index], in_layout, planned))
                 for index, op in enumerate(graph.ops))


def stock_copies(graph: Graph, default_layout: Sequence[bool],
                 inplace_index: Mapping[Tuple[int, int], int]) -> List[int]:
    """Bytes that stock MXNet copies for each operator that is not MKLDNN's.

    MXNet copies each array in a layout of MKLDNN that such an operator reads, and where the
    operator writes into such an array copies the result back. An executor, and a CachedOp with
    static memory and shapes, keeps all of these copies (``StorageFallbackOpExecutor``); else they
    end with the operator's run. Arrays with three to five axes of float32 are counted.

    Parameters
    ----------
    graph : Graph
        Of the network without a plan, in the order in which its executor runs.
    default_layout : sequence of bool
        Whether each op is given its arrays in the default layout.
    inplace_index : mapping
        Op and position of an output to the position of the input whose memory it takes.

    Returns
    -------
    list of int
        One for each op.
    """
    in_layout: Set[int] = set()
    copies: List[int] = []
    for index, op in enumerate(graph.ops):
        copies.append(0)
        if not default_layout[index]:
            kind = _base(op)
            if kind in _MAKE or kind in _KEEP and not in_layout.isdisjoint(op.inputs):
                in_layout.update(t for t in op.outputs[:1] if _may_have_layout(graph, t))
            continue
        copies[-1] = sum(graph.tensors[t].size_bytes for t in op.inputs if t in in_layout)
        for position, tensor in enumerate(op.outputs):
            source = inplace_index.get((index, position), -1)
            if source >= 0 and op.inputs[source] in in_layout:
                in_layout.add(tensor)
                copies[-1] += graph.tensors[tensor].size_bytes
    return copies


def planned_copies(graph: Graph, default_layout: Sequence[bool],
                   resources: Sequence[Sequence[int]]) -> List[int]:
    """Bytes that operators copy beside all else in a planned network, while they run.

    An operator that is not MKLDNN's reads copies in the default layout. They lie in the temporary
    space where the operator asks for some, else in arrays that end with its run.

    Parameters
    ----------
    graph : Graph
        In the order in which its executor runs.
    default_layout : sequence of bool
        Whether each op is given its arrays in the default layout.
    resources : sequence of sequences of int
        Kinds of resource that each op asks for.

    Returns
    -------
    list of int
        One for each op.
    """
    in_layout: Set[int] = set()
    copies: List[int] = []
    for op, in_default, asks in zip(graph.ops, default_layout, resources):
        copied = in_default and _TEMP_SPACE not in asks
        copies.append(sum(graph.tensors[t].size_bytes for t in op.inputs if t in in_layout)
                      if copied else 0)
        if not in_default and _writes_layout(graph, op, op.inputs, in_layout):
            in_layout.update(t for t in op.outputs[:1] if _may_have_layout(graph, t))
    return copies


def _may_have_layout(graph: Graph, tensor: int) -> bool:
    return graph.tensors[tensor].dtype == "float32" and \
        len(graph.tensors[tensor].shape) in (3, 4, 5)


def _base(op: Op) -> str:
    return op.kind[len("_backward_"):] if op.kind.startswith("_backward_") else op.kind


def _in_mkldnn_layout(graph: Graph) -> Set[int]:
    """Tensors in MKLDNN's layouts in the network without a plan."""
    found: Set[int] = set()
    for op in graph.ops:
        made = [t for t in op.outputs[:1] if _may_have_layout(graph, t)]
        # ``relu`` is not MKLDNN's: its result is copied to where its first input lies.
        read = op.inputs[:1] if _base(op) == "relu" else op.inputs
        if _writes_layout(graph, op, read, found):
            found.update(made)
    return found


def _writes_layout(graph: Graph, op: Op, read: Sequence[int], in_layout: AbstractSet[int]) -> bool:
    """Whether an op of MKLDNN's writes in a layout of its own."""
    if op.kind == "_backward_Pooling" and graph.tensors[op.inputs[0]].shape[2:3] == (1,):
        return False  # pooled rows: their gradient has a layout of its own, or none
    kind = _base(op)
    return kind in _MAKE or kind in _KEEP and not in_layout.isdisjoint(read)


def _made_beside(graph: Graph, index: int, attributes: Mapping[str, str],
                 added: AbstractSet[int]) -> int:
    """What is made in temporary space, and then added or copied to its array."""
    op = graph.ops[index]
    kind = _base(op)
    if not op.outputs or graph.tensors[op.outputs[0]].dtype != "float32":
        return 0
    sizes = [graph.tensors[t].size_bytes for t in op.outputs]
    if op.kind in _SUMS:  # only the memory of the first operand is written where it is read
        first, second = (_ends_at(graph, t, index) for t in op.inputs)
        axes = len(graph.tensors[op.outputs[0]].shape)
        return sizes[0] * (second and not first and axes <= _SUM_AXES)
    if kind == op.kind:
        return 0
    if kind == "RNN":  # MKLDNN makes all gradients, of what has none asked for, too
        return sum(size for t, size in zip(op.outputs, sizes) if t in added or not (
            graph.consumers[t] or t in graph.output_set))
    if kind in _SOFTMAX:
        axes = len(graph.tensors[op.outputs[0]].shape)
        last = int(attributes.get("axis", -1)) in (-1, axes - 1)
        plain = attributes.get("temperature", "None") == "None"
        return sizes[0] * (last and plain and graph.tensors[op.outputs[0]].pooled)
    if kind in ("BatchNorm", "Pooling"):
        return sizes[0] * (op.outputs[0] in added)
    if kind not in ("FullyConnected", "Convolution"):
        return 0
    made = [size * (t in added) for t, size in zip(op.outputs, sizes)]
    if kind != "FullyConnected":
        if graph.tensors[op.inputs[WEIGHT[kind][True]]].shape[1] >= _CHANNELS:
            made[0] *= 2  # in its own layout, too
    elif graph.tensors[op.outputs[0]].pooled and _ends_at(graph, op.inputs[1], index):
        made[0] = sizes[0]  # it takes the memory of the data
    return sum(made)


def _ends_at(graph: Graph, tensor: int, index: int) -> bool:
    """Whether an op, the last that reads a tensor, may write where it lies."""
    return graph.tensors[tensor].pooled and max(graph.consumers[tensor]) == index


def _converts_weight(graph: Graph, op: Op, attributes: Mapping[str, str]) -> bool:
    """Whether it is a convolution that MKLDNN runs."""
    return _base(op) in _WEIGHT and graph.tensors[op.inputs[0]].dtype == "float32" and \
        attributes.get("layout", "None") in ("None", "NCW", "NCHW", "NCDHW")


def _bytes(graph: Graph, op: Op, attributes: Mapping[str, str], in_layout: Set[int],
           planned: bool) -> int:
    kind = _base(op)
    if kind in _ONE_LAYOUT and op.kind != kind:
        gradient = graph.tensors[op.inputs[0]]
        if gradient.dtype != "float32" or len(gradient.shape) > 4 + (kind in _IN_PLACE):
            return 0
        mixed = not in_layout.isdisjoint(op.inputs) and (
            planned or op.inputs[0] not in in_layout)
        return gradient.size_bytes * (mixed + (kind in _IN_PLACE))
    if kind not in _WEIGHT:
        converts = kind == "FullyConnected" or planned and kind not in _KEEP
        copied = in_layout.intersection(op.inputs) if converts else ()
        return sum(graph.tensors[t].size_bytes for t in copied)
    if not _converts_weight(graph, op, attributes):
        return 0
    backward = op.kind != kind or kind.endswith(("_weight", "_data"))
    weight_at = _WEIGHT[kind][backward]
    weight, first = graph.tensors[op.inputs[weight_at]], graph.tensors[op.inputs[0]]
    if kind == "Deconvolution" and min(weight.shape[:2]) < _CHANNELS:
        return 0  # all is read and written as it is
    part = _part(graph, op)

    def copy(position: int) -> int:
        tensor = op.inputs[position]
        other = planned or tensor not in in_layout
        return int(graph.tensors[tensor].size_bytes * part) * other

    few = weight.shape[1] < _CHANNELS and attributes.get("num_group", "1") == "1"
    if not backward:
        return weight.size_bytes + copy(0) * (not few)
    size = 2 * weight.size_bytes + copy(0)
    if not kind.endswith("_data"):
        size += copy(1) * (not few)
    data_gradient = op.outputs[0] in graph.output_set or bool(graph.consumers[op.outputs[0]])
    if few and data_gradient:  # its gradients read that of the output in different layouts
        size += int(first.size_bytes * part)
    if part < 1:  # the gradient of the output is converted as a whole, then again in parts
        size += first.size_bytes
    if kind == IN_PARTS:
        size = max(size, graph.tensors[op.outputs[0]].size_bytes)
    return size


def _part(graph: Graph, op: Op) -> float:
    """The share of the batch that a convolution takes at a time."""
    if _base(op) != IN_PARTS:
        return 1.0
    batch = max(1, (graph.tensors[op.inputs[0]].shape or (1,))[0])
    buffer = op.outputs[-1] if op.kind != _base(op) else op.outputs[3]  # for one part
    return graph.tensors[buffer].shape[0] / batch
