"""A training step of a module as plain PyTorch runs it, operator by operator.

It runs on fake tensors, so that nothing of it takes memory or time. Whole numbers, and the few
values that are made of them, are real: code may look at them.
"""
from __future__ import annotations

import contextlib
from bisect import bisect_right
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple

import torch

from . import private_ops
from .live_bytes import LiveBytes, tensors_in

#: Values of at most so many elements that depend on real ones alone are real.
_REAL_ELEMENTS = 1 << 16
#: Marks what view operators gave.
_VIEW = "_memonger_view"
_INDEXING = (torch.ops.aten.index, torch.ops.aten.index_put, torch.ops.aten.index_put_,
             torch.ops.aten._index_put_impl_)


@dataclass
class Ran:
    """One operator of the step."""

    target: Any
    #: The module that called it, or whose gradient it takes part in; "" for the outermost.
    path: str
    in_backward: bool
    #: Storages by number: those that it read, and those that it made.
    read: List[int]
    made: List[int] = field(default_factory=list)
    #: Of a sum of gradients the storage that it may lie in.
    into: Optional[int] = None
    #: What decides what it takes while it runs; "" where that is not known.
    signature: str = ""


@dataclass
class Memory:
    """One storage of the step."""

    size_bytes: int
    #: The operator that made it; -1 for what exists before.
    maker: int
    #: Of its first value, where that fills it.
    shape: Tuple[int, ...]
    dtype: str
    #: The last operator that ran while it was there; None: it is there to the end.
    last: Optional[int] = None


class PlainStep(LiveBytes):
    """A context that notes the operators of a step, and the storages that come and go.

    ``fakes``: makes tensors; None: the step runs on real ones.
    ``signature(func, args, kwargs)``: tells calls apart that may take different bytes.
    """

    def __init__(self, device: torch.device, granule_bytes: int, fakes: Any,
                 signature: Callable[..., str]):
        super().__init__(device, granule_bytes, fakes)
        self.signature = signature
        #: A call of each signature, on fake tensors of their own.
        self.calls: Dict[str, Tuple[Any, Any, Any]] = {}
        self._forms = fakes or private_ops.fake_tensors()
        #: What an operator keeps for its gradient, by the storage that stands for it; and those
        #: operators of which nobody knows how much that is.
        self._reserves: Dict[int, torch.Tensor] = {}
        self.unsized: List[str] = []
        self.ops: List[Ran] = []
        self.memories: List[Memory] = []
        self.in_backward = self.is_over = False
        self._number: Dict[int, int] = {}
        #: Modules that are running, and from which number of autograd's nodes on each did.
        self._running: List[str] = [""]
        self._since: List[Tuple[int, str]] = [(0, "")]
        self._accumulators: Dict[int, str] = {}
        self._first_of_node: Dict[int, int] = {}

    def number_of(self, tensor: torch.Tensor) -> List[int]:
        """The storages of a tensor."""
        keys = map(private_ops.storage_key, private_ops.dense_parts(tensor))
        return [self._number[key] for key in keys if key in self._number]

    def sum_in_place(self) -> Dict[int, int]:
        """Place sums of gradients in the memory of an operand whose last use they are.

        There autograd adds them up, except into views, and where a context like this one sees
        each operator. The storages that are none then, with those that have their place.
        """
        places: Dict[int, int] = {}
        for index, ran in enumerate(self.ops):
            if ran.into is None:
                continue
            place = places.get(ran.into, ran.into)
            memory = self.memories[place]
            if len(ran.made) == 1 and memory.last == index and memory.maker >= 0 and \
                    self.ops[memory.maker].in_backward and \
                    memory.size_bytes == self.memories[ran.made[0]].size_bytes:
                places[ran.made[0]] = place
                memory.last, self.memories[ran.made[0]].size_bytes = \
                    self.memories[ran.made[0]].last, 0
        return places

    @contextlib.contextmanager
    def watching(self, module: torch.nn.Module) -> Iterator[None]:
        """Note calls of the module and of its parts in the block."""
        handles = []
        for path, part in module.named_modules():
            handles += [part.register_forward_pre_hook(partial(self._enter, path), prepend=True),
                        part.register_forward_hook(self._leave, always_call=True)]
            self._accumulators.update((id(p), path) for p in part.parameters(recurse=False))
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def _enter(self, path: str, *_: Any) -> None:
        self._running.append(path)
        self._since.append((private_ops.autograd_number(), path))

    def _leave(self, *_: Any) -> None:
        self._running.pop()
        self._since.append((private_ops.autograd_number(), self._running[-1]))

    def _path(self) -> str:
        """The module that an operator belongs to; of one of backward that of forward's operator."""
        if len(self._running) > 1 or not self.in_backward:
            return self._running[-1]
        number, variable = private_ops.running_gradient()
        if number < 0:
            return ""
        if variable is not None:
            return self._accumulators.get(id(variable), "")
        return self._since[bisect_right(self._since, (number, "\U0010ffff")) - 1][1]

    def _came(self, key: int, size_bytes: int, tensor: torch.Tensor) -> None:
        super()._came(key, size_bytes, tensor)
        self._number[key] = len(self.memories)
        fills = tensor.numel() * tensor.element_size() == size_bytes
        self.memories.append(Memory(
            size_bytes, len(self.ops) - 1, tuple(tensor.shape) if fills else (size_bytes,),
            str(tensor.dtype).split(".")[-1] if fills else "uint8"))
        if self.ops:
            self.ops[-1].made.append(self._number[key])

    def _gone(self, key: int, size_bytes: int) -> None:
        super()._gone(key, size_bytes)
        number = self._number.pop(key)
        if not self.is_over:
            self.memories[number].last = len(self.ops) - 1

    def __torch_dispatch__(self, func: Any, types: Sequence[Any], args: Sequence[Any] = (),
                           kwargs: Optional[Mapping[str, Any]] = None) -> Any:
        if not func.is_view and func.namespace != "prim":  # what asks for a tensor's device
            given = tensors_in((args, kwargs))
            read = dict.fromkeys(n for tensor in given for n in self.number_of(tensor))
            self.ops.append(Ran(func, self._path(), self.in_backward, list(read)))
            if self.in_backward:
                self._place_of_sum(func, args)
            if all(tensor.layout is torch.strided for tensor in given):
                self.ops[-1].signature = key = self.signature(func, args, kwargs or {})
                if key not in self.calls:
                    self.calls[key] = (func, *private_ops.pytree.tree_map(
                        self._form, (args, kwargs or {})))
        result = super().__torch_dispatch__(func, types, args, kwargs)
        for view in tensors_in(result) if func.is_view else ():
            setattr(view, _VIEW, True)
        return result

    def _place_of_sum(self, func: Any, args: Sequence[Any]) -> None:
        """Note where autograd would add up two gradients: in the first that came, where nobody else
        holds that. A view holds what it is of, a node of autograd's graph what it is given.
        """
        index, node = len(self.ops) - 1, private_ops.running_gradient()[0]
        begun = self._first_of_node.setdefault(node, index)
        if func is torch.ops.aten.add.Tensor and not hasattr(args[0], _VIEW):
            first = next(iter(self.number_of(args[0])), None)
            if not any(first in ran.read for ran in self.ops[begun:index]):
                self.ops[index].into = first

    def _with_reserves(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any],
                       result: Any) -> Any:
        """The result with what an operator, as of recurrent layers, keeps for its gradient.

        Fake ones are empty, so the operator is asked: it runs once with zeros.
        """
        leaves, form = private_ops.pytree.tree_flatten(result)
        places = [place for place, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)
                  and leaf.dtype == torch.uint8 and not leaf.numel()]
        if not places or not any(tensor.numel() for tensor in tensors_in((args, kwargs))):
            return result
        try:
            real = private_ops.pytree.tree_leaves(
                func(*private_ops.pytree.tree_map(_zeros, args),
                     **private_ops.pytree.tree_map(_zeros, kwargs)))
        except (RuntimeError, AssertionError):
            self.unsized.append(str(func))
            return result
        with self.fakes:
            for place in places:
                leaves[place] = torch.empty(real[place].shape, dtype=torch.uint8,
                                            device=leaves[place].device)
                self._reserves[private_ops.storage_key(leaves[place])] = real[place]
        return private_ops.pytree.tree_unflatten(leaves, form)

    def _form(self, value: Any) -> Any:
        """A fake tensor like this one, in memory of its own; what is kept for a gradient itself."""
        if not isinstance(value, torch.Tensor):
            return value
        if private_ops.is_fake(value) and private_ops.storage_key(value) in self._reserves:
            return self._reserves[private_ops.storage_key(value)]
        with self._forms:
            return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype,
                                       device=value.device)

    def _result(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any],
                given: Sequence[torch.Tensor]) -> Any:
        if self.fakes is None:
            return func(*args, **kwargs)
        if any(map(private_ops.is_fake, given)):
            if func.overloadpacket in _INDEXING:
                args = (args[0], _positions(args[1]), *args[2:])
            return self._with_reserves(func, args, kwargs, func(*args, **kwargs))
        if not given or not private_ops.is_mutable(func):
            with self.fakes, contextlib.suppress(*private_ops.DEPENDS_ON_VALUES):
                result = func(*args, **kwargs)
                if not all(map(is_real, tensors_in(result))):
                    return result
        return func(*args, **kwargs)


def _zeros(value: Any) -> Any:
    return torch.zeros(value.shape, dtype=value.dtype, device=value.device) \
        if isinstance(value, torch.Tensor) else value


def _positions(indices: Sequence[Any]) -> List[Any]:
    """Indices with positions in the place of real masks, whose number fake tensors do not know."""
    return [position for index in indices for position in (
        index.nonzero().unbind(1) if isinstance(index, torch.Tensor) and
        index.dtype == torch.bool and not private_ops.is_fake(index) else (index,))]


def is_real(tensor: torch.Tensor) -> bool:
    """Whether a value that depends on real ones alone is real."""
    return not tensor.is_floating_point() or tensor.numel() <= _REAL_ELEMENTS
