"""What has bytes in a joint graph: storages, not nodes.

Views share a storage, and an operator's outputs may. A run of the graph on fake tensors tells the
storage of each value. Where all sizes are numbers, a call that looks like one before it is not run
again: steps have equal blocks.
"""
from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Set, Tuple, Union

import torch
import torch.fx as fx

from ..pytorch import private_joint, private_ops
from ..pytorch.sizes import tensors
from . import collectives, transfers

#: One storage: its identity, and its bytes: a number, or a symbol or function of the sizes.
Storage = Tuple[int, Union[int, torch.SymInt, Callable[[], int]]]
#: The storages of a node's value; None for what is no tensor.
Held = List[Optional[Storage]]


def storages(joint: fx.GraphModule) -> Dict[fx.Node, Held]:
    """The storages of each node's value, by a run of the joint graph on fake tensors."""
    values = [n.meta["val"] for n in joint.graph.find_nodes(op="placeholder")]
    # Of a graph without tensors among its inputs the mode is that of what it makes.
    mode = next((v.fake_mode for v in [*values, *(
        v for n in joint.graph.nodes for v in tensors(n.meta.get("val")))]
        if isinstance(v, torch.Tensor)), None)
    if mode is None:
        return {n: [None] for n in joint.graph.nodes if n.op != "output"}
    with mode, private_ops.sizes_of_its_own(mode):
        fresh = [torch.empty_strided(v.shape, v.stride(), dtype=v.dtype, device=v.device)
                 if isinstance(v, torch.Tensor) else v for v in values]
        if all(map(_has_numbers_for_sizes, joint.graph.nodes)):
            try:
                return _Forms(joint).run(fresh)
            except _NoForm:
                pass
        run = _Run(joint)
        run.run(*fresh)
    return run.held


def views(held: Mapping[fx.Node, Held]) -> Set[fx.Node]:
    """Nodes all of whose storages are older than they are; ``held`` is in the graph's order."""
    seen: Set[int] = set()
    found = set()
    for node, storages_of in held.items():
        mine = {s[0] for s in storages_of if s is not None}
        if node.op == "call_function" and mine <= seen:
            found.add(node)
        seen |= mine
    return found


class _Run(fx.Interpreter):
    """A run of each node."""

    def __init__(self, joint: fx.GraphModule):
        super().__init__(joint)
        self.held: Dict[fx.Node, Held] = {}
        self.alive: List[Any] = []  # a storage's identity is its address

    def run_node(self, n: fx.Node) -> Any:
        value = self.env[n.args[0]] if _is_wait(n) else super().run_node(n)
        self.alive.append(value)
        if n.op != "output":
            self.held[n] = [storage for leaf in private_ops.pytree.tree_leaves(value)
                            for storage in _storages(leaf)]
        return value


class _NoForm(Exception):
    """A value of which more counts than its form."""


@dataclass(frozen=True, eq=False)
class _Placed:
    """A tensor by what operators see of it, and where it lies."""

    #: Shape, strides, dtype, device, whether it is conjugate, offset, bytes of the storage.
    form: Tuple[Any, ...]
    storage: Storage


class _Forms:
    """A run of each form of a call."""

    def __init__(self, joint: fx.GraphModule):
        self.joint = joint
        self.values: Dict[fx.Node, Any] = {}
        #: By target and arguments: the leaves of the result, and their structure. A leaf is a form
        #: with the number of the argument that it lies in, or that of a new storage, below 0.
        self.calls: Dict[Any, Tuple[List[Any], Any]] = {}
        self.count = 0

    def run(self, inputs: List[Any]) -> Dict[fx.Node, Held]:
        given = iter(inputs)
        known: Dict[int, Storage] = {}
        for node in self.joint.graph.nodes:
            if node.op == "placeholder":
                self.values[node] = self._new(next(given), known)
            elif node.op == "get_attr":
                self.values[node] = self._new(
                    operator.attrgetter(node.target)(self.joint), known)
            elif node.op == "call_function":
                self.values[node] = self.values[node.args[0]] if _is_wait(node) else \
                    self._called(node)
        return {node: [leaf.storage if isinstance(leaf, _Placed) else None
                       for leaf in private_ops.pytree.tree_leaves(value)]
                for node, value in self.values.items()}

    def _new(self, value: Any, known: Dict[int, Storage]) -> Any:
        """A value that no call makes."""
        if not isinstance(value, torch.Tensor):
            return value
        return self._placed(_form(value), -1 - private_ops.storage_key(value), [], known)

    def _called(self, node: fx.Node) -> Any:
        args, kwargs = fx.node.map_arg((node.args, dict(node.kwargs)), self.values.__getitem__)
        if node.target is operator.getitem:
            return args[0][args[1]]
        read: List[_Placed] = []
        key = (node.target, _key((args, kwargs), read))
        if key not in self.calls:
            stand_ins = [_stand_in(placed.form) for placed in read]
            self.calls[key] = _result(node.target, stand_ins, *_filled((args, kwargs),
                                                                       iter(stand_ins)))
        leaves, structure = self.calls[key]
        own: Dict[int, Storage] = {}
        return structure.unflatten([
            self._placed(leaf[0], leaf[1], read, own) if type(leaf) is tuple else leaf
            for leaf in leaves])

    def _placed(self, form: Tuple[Any, ...], place: int, read: List[_Placed],
                own: Dict[int, Storage]) -> _Placed:
        if place < 0 and place not in own:
            self.count += 1
            own[place] = (self.count, form[-1])
        return _Placed(form, own[place] if place < 0 else read[place].storage)


def _result(target: Any, stand_ins: List[torch.Tensor], args: Any,
            kwargs: Any) -> Tuple[List[Any], Any]:
    """The result of a call, as :attr:`_Forms.calls` has it."""
    leaves, structure = private_ops.pytree.tree_flatten(target(*args, **kwargs))
    places = {private_ops.storage_key(t): number for number, t in enumerate(stand_ins)}
    found = []
    for leaf in leaves:
        if isinstance(leaf, torch.Tensor):
            form = _form(leaf)
            leaf = form, places.setdefault(private_ops.storage_key(leaf), -1 - len(places))
        found.append(leaf)
    return found, structure


def _form(tensor: torch.Tensor) -> Tuple[Any, ...]:
    if tensor.layout is not torch.strided or tensor.is_neg():
        raise _NoForm
    return (tuple(tensor.shape), tensor.stride(), tensor.dtype, tensor.device, tensor.is_conj(),
            tensor.storage_offset(), tensor.untyped_storage().nbytes())


def _stand_in(form: Tuple[Any, ...]) -> torch.Tensor:
    shape, strides, dtype, device, conjugate, offset, size_bytes = form
    made = torch.empty(size_bytes // dtype.itemsize, dtype=dtype, device=device).as_strided(
        shape, strides, offset)
    return made.conj() if conjugate else made


def _key(value: Any, read: List[_Placed]) -> Any:
    """What tells calls apart; the tensors that one reads are added to ``read``."""
    if isinstance(value, _Placed):
        read.append(value)
        return value.form
    if isinstance(value, (list, tuple)):
        return tuple(_key(each, read) for each in value)
    if isinstance(value, dict):
        return tuple((name, _key(each, read)) for name, each in value.items())
    if value.__hash__ is None:
        raise _NoForm
    return type(value), value


def _filled(value: Any, stand_ins: Iterator[torch.Tensor]) -> Any:
    """The arguments of a call with tensors, in the order of :func:`_key`."""
    if isinstance(value, _Placed):
        return next(stand_ins)
    if isinstance(value, (list, tuple)):
        return type(value)(_filled(each, stand_ins) for each in value)
    if isinstance(value, dict):
        return {name: _filled(each, stand_ins) for name, each in value.items()}
    return value


def _has_numbers_for_sizes(node: fx.Node) -> bool:
    return not private_joint.is_symbolic(node) and not private_ops.depends_on_values(node) and all(
        type(size) is int for value in tensors(node.meta.get("val")) for size in value.shape)


def _is_wait(node: fx.Node) -> bool:
    """On fake tensors it makes a new one."""
    return collectives.is_wait(node) or transfers.is_wait(node)


def _storages(leaf: Any) -> Iterator[Optional[Storage]]:
    """Where a value lies; of a sparse tensor what it consists of lies somewhere."""
    if not isinstance(leaf, torch.Tensor):
        yield None
        return
    for part in private_ops.parts(leaf):
        yield private_ops.storage_key(part), part.untyped_storage().nbytes()
