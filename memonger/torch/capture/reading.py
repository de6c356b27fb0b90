"""From AOTAutograd's joint graph to a :class:`memonger.graph.types.Graph`."""
from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Set, Tuple

import torch
import torch.fx as fx

from ...graph.types import DTYPES, Graph, Inplace, Op, Tensor
from ..pytorch import private_joint, private_kernels, private_ops
from ..pytorch.allocations import CUDA_GRANULE_BYTES
from ..pytorch.loss_layer import temporary_bytes
from ..pytorch.sizes import hint, resized, tensors
from .captured import BUFFER, INPUT, PARAMETER, TANGENT, TEMPORARY, Captured
from .concatenations import laid_in_wholes
from .costs import ROOFLINES, roofline_for, signature, times_s
from .fusion import in_order, in_registers, reduces, written_for
from .halves import moved_to_forward, of_backward
from .layouts import has_channels_last, is_arranged, is_convolution, with_channels_last
from .operators import kept_results, repeat_reason
from .padding import is_padded_in_place, room_bytes
from .storages import Held, Storage, storages, views
from .transfers import is_copy, is_to_host, is_wait
from .written import written

#: Identities of the storages of copies begin at these and go down; those of temporaries are above.
_COPY, _COPY_FOR_BACKWARD = -(1 << 32), -(1 << 40)


def read(joint: fx.GraphModule, num_forward_outputs: int, categories: Sequence[str] = (),
         fused: bool = False, measured_s: Optional[Mapping[str, float]] = None,
         temporary_bytes: Optional[Mapping[str, int]] = None, costs: str = "auto",
         name: str = "", labels: Sequence[str] = (),
         rates: Mapping[str, float] = MappingProxyType({})) -> Captured:
    """Read a joint graph.

    ``categories``: of the forward inputs, in order; parameters where there is none.
    ``fused``: times are those under Inductor.
    ``measured_s``, ``temporary_bytes``: what was measured, by :func:`.costs.signature`: seconds
    of ops, and bytes that they take besides their outputs while they run.
    ``costs``: one of :data:`.costs.ROOFLINES` for other ops; "auto" goes by the device.
    ``labels``: what the forward inputs are called, in order; "" for PyTorch's own name.
    ``rates``: of the roofline that are another device's, by their names there.
    """
    known_bytes = {} if temporary_bytes is None else temporary_bytes
    return _Reader(joint, num_forward_outputs, categories, known_bytes, labels).read(
        name, fused, measured_s or {}, costs, rates)


def node_name(node: fx.Node) -> str:
    """The node's name after the path of its module: ``layer1.0.conv1/convolution_3``."""
    stack = node.meta.get("nn_module_stack") or node.meta.get("fwd_nn_module_stack")
    path = str(list(stack.values())[-1][0]) if stack else ""
    path = path.partition(".")[2] if path.startswith("L[") else path
    path = path[len("__self__"):] if path.startswith("__self__") else path  # PyTorch's own classes
    for old, new in (("'", ""), ('"', ""), ("[", "."), ("]", ""), ("_modules.", "")):
        path = path.replace(old, new)
    return "%s/%s" % (path.strip("."), node.name) if path.strip(".") else node.name


class _Reader:
    """One reading of one joint graph."""

    def __init__(self, joint: fx.GraphModule, num_forward_outputs: int,
                 categories: Sequence[str], temporary_bytes: Mapping[str, int],
                 labels: Sequence[str]):
        self.labels = labels
        self.joint, self.num_forward_outputs = joint, num_forward_outputs
        self.categories, self.temporary_bytes = categories, temporary_bytes
        self.held: Dict[fx.Node, Held] = storages(joint)
        self.tensors: List[Tensor] = []
        #: Bytes of each tensor, and of what each op takes while it runs, at the sizes in force.
        self.sizes: List[Callable[[], int]] = []
        self.temporaries: Dict[int, Callable[[], int]] = {}
        self.ops: List[Op] = []
        self.nodes: List[Optional[fx.Node]] = []
        self.tensor_of: Dict[int, int] = {}
        self.tensors_of: Dict[fx.Node, List[Optional[int]]] = {}
        self.views: Set[fx.Node] = set()
        self.fused = False
        #: Nodes that read inputs which the step writes into.
        self.once: Set[fx.Node] = set()
        #: Nodes that are part of the ops that read them; see :mod:`.fusion`.
        self.inlined: Set[fx.Node] = set()
        #: Concatenations with the part that is made first; see :mod:`.concatenations`.
        self.wholes: Dict[fx.Node, fx.Node] = {}
        self.channels_last: Set[fx.Node] = set()
        #: For each node what its readers read, and the nodes that are part of them.
        self.reads_of: Dict[fx.Node, List[int]] = {}
        self.parts: Dict[fx.Node, Dict[fx.Node, None]] = {}
        self.parts_of_op: List[List[fx.Node]] = []
        #: Copies of tensors that exist before the step: in another layout, and as they were.
        self.copies: Dict[int, int] = {}
        self.copies_for_backward: Dict[int, int] = {}
        values = [v for n in self.held for v in tensors(n.meta.get("val"))]
        devices = [v.device.type for v in values]
        self.device = next((d for d in devices if d != "cpu"), devices[0] if devices else "cpu")
        self.granule_bytes = CUDA_GRANULE_BYTES if self.device == "cuda" else 1

    def read(self, name: str, fused: bool, measured_s: Mapping[str, float],
             costs: str, rates: Mapping[str, float]) -> Captured:
        self.fused = fused
        nodes = list(self.held)
        late = of_backward(self.joint, nodes, self.num_forward_outputs)
        if fused:
            self.held.update({n: self.held[n.all_input_nodes[0]] for n in nodes
                              if is_padded_in_place(n)})
        self.views = views(self.held)
        self.written = written(self.joint, self.held, self.views, late)
        self.once = set(self.written.readers)
        usually_late: Set[str] = set()
        if fused:
            usually_early, usually_late = private_joint.usual_halves(
                self.joint, self.num_forward_outputs, True,
                [k for k, category in enumerate(self.categories) if category != INPUT])
            early = moved_to_forward(nodes, late, usually_early - usually_late,
                                     self.written.values)
            late -= early
            nodes = in_order(nodes, early, late)
            self.inlined = in_registers(nodes, self.views, late, self.written.inputs, early)
            self.wholes = laid_in_wholes(nodes, late, self.views, self.held)
            self.channels_last = with_channels_last(nodes)
        for position, node in enumerate(n for n in nodes if n.op == "placeholder"):
            label = self.labels[position] if position < len(self.labels) else ""
            self._outside(node, TANGENT if node in late else self.categories[position]
                          if position < len(self.categories) else PARAMETER, label)
        running = [node for node in nodes if node.op != "placeholder"]
        for node in running:
            if node not in late:
                if private_ops.writes(node.target):
                    self._copies_for_backward()
                self._op(node, False)
        self._copies_for_backward()
        self._write_back()
        for node in running:
            if node in late:
                self._op(node, True)
        outputs = self._results(range(len(self.joint.graph.output_node().args[0])),
                                skip_written=True)
        costs = roofline_for(costs, self.device)
        times = times_s(self.nodes, self.parts_of_op, ROOFLINES[costs]._replace(**rates), fused,
                        measured_s)
        graph = Graph(tuple(self.tensors), tuple(self.ops), tuple(outputs), name=name) \
            .with_times(times)
        graph.check()
        dynamic = any(private_joint.is_symbolic(n) for n in nodes)
        return Captured(graph, self.joint, self.num_forward_outputs, self.nodes, self.tensors_of,
                        self.views, self.parts_of_op, self.written, dynamic, self.device,
                        "roofline: " + ("this CPU" if costs == "cpu" else costs), self.sizes,
                        self.temporaries, usually_late)

    def _new(self, storage: Storage, producer: int, label: str, category: str,
             value: Any, on_host: bool = False) -> int:
        def bytes_now() -> int:
            size_bytes = storage[1]() if callable(storage[1]) else resized(hint(storage[1]))
            if self.fused and isinstance(value, torch.Tensor) and size_bytes:
                size_bytes = max(size_bytes, room_bytes(value))
            return -(-size_bytes // self.granule_bytes) * self.granule_bytes

        size_bytes = bytes_now()
        self.sizes.append(bytes_now)
        dtype = "uint8"
        shape: Tuple[int, ...] = (size_bytes,)
        if isinstance(value, torch.Tensor):
            whole = hint(value.numel()) * value.element_size() == size_bytes
            word = str(value.dtype).split(".")[-1]
            if word in DTYPES and whole:
                dtype, shape = word, tuple(map(hint, value.shape))
        self.tensor_of[storage[0]] = len(self.tensors)
        space = "outside" if producer < 0 else "host" if on_host else "device"
        self.tensors.append(Tensor(label, size_bytes, producer, category, space, shape, dtype))
        return len(self.tensors) - 1

    def _outside(self, node: fx.Node, category: str, label: str = "") -> None:
        for storage in self.held[node]:
            if storage is not None and storage[0] not in self.tensor_of:
                self._new(storage, -1, label or node.name, category, node.meta.get("val"))
        self._holds(node)

    def _holds(self, node: fx.Node) -> None:
        """Note the tensors that a node's value lies in."""
        held = [self.tensor_of.get(s[0]) if s else None for s in self.held[node]]
        self.tensors_of[node] = held
        self.reads_of[node] = [t for t in held if t is not None]
        self.parts[node] = {}

    def _op(self, node: fx.Node, late: bool) -> None:
        if node.op == "get_attr":
            self._outside(node, BUFFER)
            return
        behind = node.all_input_nodes
        kept = self.copies_for_backward if late and not private_ops.writes(node.target) else {}
        reads = list(dict.fromkeys(kept.get(t) or self._arranged(t, a, node) for a in behind
                                   for t in self.reads_of[a]))
        parts = dict.fromkeys(part for a in behind for part in self.parts[a])
        mutates = private_ops.writes(node.target)
        if node in self.inlined or node in self.views and parts and not mutates:
            self.inlined.add(node)
            self.views.discard(node)
            self.tensors_of[node] = [None] * len(self.held[node])
            self.reads_of[node], self.parts[node] = reads, {**parts, node: None}
        elif node in self.views and not mutates and not is_wait(node):
            self._holds(node)
        else:
            self.views.discard(node)
            self._running(node, late, reads, list(parts))

    def _running(self, node: fx.Node, late: bool, reads: Sequence[int],
                 parts: List[fx.Node]) -> None:
        """A node that is an op of its own, with the nodes that are part of it."""
        if not late and self._joined(node, reads):
            return
        op, label = len(self.ops), node_name(node)
        values = private_ops.pytree.tree_leaves(node.meta.get("val"))
        made, places = [], []
        for place, storage in enumerate(self.held[node]):
            if storage is not None and storage[0] not in self.tensor_of:
                places.append(place)
                made.append(self._new(storage, op, label + (":%d" % place if place else ""),
                                      "activation", values[place] if place < len(values) else None,
                                      is_to_host(node)))
        kept = kept_results(node, places, [self.tensors[t].size_bytes for t in made])
        extra = self._temporary(node, label)
        reason = next(filter(None, map(repeat_reason, [node, *parts])), "")
        if private_ops.writes(node.target):
            reason = reason or "writes into its input"
        if not late and not self.once.isdisjoint([node, *parts]):
            reason = reason or "reads an input that the step writes into"
        if self.fused and reduces(node):
            reason = reason or "another kernel would sum in another order"
        if self.fused and any(map(private_kernels.is_drawn_by_kernel, [node, *parts])):
            reason = reason or "another kernel would draw other random numbers"
        self._made_once(node)
        self._add(node, parts, Op.of(
            label, str(node.target), tuple(reads), (*made, *extra), late,
            inplace=self._inplace(node, parts, reads, made),
            not_recomputable_because="a backward op" if late else reason, kept_outputs=kept,
            stream="copy" if is_copy(node) else "compute"))
        self._holds(node)

    def _joined(self, node: fx.Node, reads: Sequence[int]) -> bool:
        """Whether a node writes into what the op before it makes for it alone: they are one op."""
        into = private_ops.written_arguments(node)
        if not self.ops or into != [self.nodes[-1]] or list(into[0].users) != [node] \
                or self.tensors_of[into[0]] != list(self.ops[-1].outputs):
            return False
        made = self.ops[-1]
        self.views.discard(node)
        self._holds(node)
        self.nodes[-1] = node
        self.parts_of_op[-1] = [*self.parts_of_op[-1], into[0]]
        self.ops[-1] = made.changed(inputs=tuple(dict.fromkeys(
            (*made.inputs, *(t for t in reads if t not in made.outputs)))),
            not_recomputable_because=made.not_recomputable_because or repeat_reason(node))
        return True

    def _made_once(self, node: fx.Node) -> None:
        """What an op writes into is not made again, without what it wrote."""
        for written_into in private_ops.written_arguments(node):
            for tensor in self.tensors_of[written_into]:
                maker = -1 if tensor is None else self.tensors[tensor].producer
                if maker >= 0 and self.ops[maker].recomputable:
                    self.ops[maker] = replace(self.ops[maker], not_recomputable_because=
                                              "a later op writes into its result")

    def _arranged(self, tensor: int, operand: fx.Node, reader: fx.Node) -> int:
        """A tensor, or the copy of it in the layout in which an op reads it."""
        if not has_channels_last(reader) or self.tensors[tensor].producer >= 0 or \
                is_arranged(operand.meta.get("val")):
            return tensor
        if tensor not in self.copies:
            source, op = self.tensors[tensor], len(self.ops)
            label = source.name + ":channels_last"
            self.copies[tensor] = self._new((_COPY - tensor, self.sizes[tensor]), op, label,
                                            "activation", None)
            self._add(None, [], Op.of(label, "copy", (tensor,), (self.copies[tensor],),
                                      source.category == TANGENT,
                                      not_recomputable_because="Inductor copies once"))
        return self.copies[tensor]

    def _copies_for_backward(self) -> None:
        """Copies of inputs that backward reads, before forward writes into them."""
        for node in self.written.read_late:
            for tensor in self.tensors_of[node]:
                if tensor is None or tensor in self.copies_for_backward:
                    continue
                source, op = self.tensors[tensor], len(self.ops)
                label = source.name + ":copy"
                self.copies_for_backward[tensor] = self._new(
                    (_COPY_FOR_BACKWARD - tensor, self.sizes[tensor]), op, label, "activation",
                    None)
                self._add(None, [], Op.of(
                    label, "copy", (tensor,), (self.copies_for_backward[tensor],),
                    not_recomputable_because="the step writes into what it reads"))

    def _inplace(self, node: fx.Node, parts: Sequence[fx.Node], reads: Sequence[int],
                 made: Sequence[int]) -> Tuple[Inplace, ...]:
        """Inductor's kernels write into an input of the same size that nobody else reads.

        Not where its elements lie in another order: a gradient of a flattened image does.
        """
        if node in self.wholes:
            return (Inplace(reads.index(self.tensors_of[self.wholes[node]][0]), 0),)
        if not self.fused or not all(map(private_kernels.is_fusible, [node, *parts])):
            return ()
        pairs = [(i, o, self.tensors[read], self.tensors[output])
                 for o, output in enumerate(made) for i, read in enumerate(reads)]
        return tuple(Inplace(i, o) for i, o, mine, its in pairs
                     if mine.pooled and mine.size_bytes == its.size_bytes
                     and not (node in self.channels_last and len(mine.shape) < len(its.shape)))

    def _temporary(self, node: fx.Node, label: str) -> List[int]:
        """A tensor for what the op takes only while it runs."""
        def bytes_now() -> int:
            size_bytes = hint(temporary_bytes(node.target, [
                a.meta.get("val") for a in node.args if isinstance(a, fx.Node)]))
            if self.fused:
                size_bytes += written_for(node, self.inlined, self.channels_last)
            if not self.temporary_bytes or self.fused and not is_convolution(node):
                return size_bytes
            return self.temporary_bytes.get(signature(node), size_bytes)

        op = len(self.ops)
        self.temporaries[op] = bytes_now
        return [self._new((-1 - op, bytes_now), op, label + TEMPORARY, "activation", None)] \
            if bytes_now() else []

    def _results(self, places: Sequence[int], skip_written: bool = False) -> List[int]:
        values = self.joint.graph.output_node().args[0]
        written = private_joint.written_back(self.joint)
        return sorted({t for k in places if isinstance(values[k], fx.Node)
                       and not (skip_written and written[k]) for t in self.tensors_of[values[k]]
                       if t is not None and self.tensors[t].pooled})

    def _write_back(self) -> None:
        """PyTorch copies new values into their buffers when forward is over."""
        written = private_joint.written_back(self.joint)
        reads = self._results([k for k in range(self.num_forward_outputs) if written[k]])
        if reads:
            self._add(None, [], Op.of("write_back", "copy", tuple(reads), (),
                                      not_recomputable_because="writes into buffers"))

    def _add(self, node: Optional[fx.Node], parts: List[fx.Node], op: Op) -> None:
        self.ops.append(op)
        self.nodes.append(node)
        self.parts_of_op.append(parts)
