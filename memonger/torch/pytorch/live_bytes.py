"""Bytes of tensors that are alive while code runs, counted as they come and go."""
from __future__ import annotations

import weakref
from typing import Any, Dict, Iterable, List, Mapping, Optional, Sequence

import torch

from . import private_ops


class LiveBytes(private_ops.DispatchMode):
    """A context that counts storages of one kind of device, of real tensors and of fake ones.

    What an operator allocates for itself while it runs is not seen. Tensors that existed before
    count from :meth:`note` on.

    ``fakes``: makes the tensors that code in the context creates, where they have more than one
    element; numbers are real, so code may look at them. A number that is read out of a fake tensor
    is 1; a truth value raises, as what comes next would depend on it.
    """

    def __init__(self, device: torch.device, granule_bytes: int = 1, fakes: Any = None):
        super().__init__()
        self.device, self.granule_bytes, self.fakes = device, granule_bytes, fakes
        self.now_bytes = self.most_bytes = 0
        self._known: Dict[int, Any] = {}

    def note(self, tensors: Iterable[torch.Tensor]) -> None:
        """Count the storages of tensors, each once, until they are gone."""
        for part in (part for tensor in tensors for part in private_ops.dense_parts(tensor)):
            storage, key = part.untyped_storage(), private_ops.storage_key(part)
            if key in self._known or part.device.type != self.device.type:
                continue
            size_bytes = -(-storage.nbytes() // self.granule_bytes) * self.granule_bytes
            self._known[key] = weakref.finalize(storage, self._gone, key, size_bytes)
            self._came(key, size_bytes, part)

    def _came(self, key: int, size_bytes: int, tensor: torch.Tensor) -> None:
        self.now_bytes += size_bytes
        self.most_bytes = max(self.most_bytes, self.now_bytes)

    def _gone(self, key: int, size_bytes: int) -> None:
        self._known.pop(key, None)
        self.now_bytes -= size_bytes

    def __torch_dispatch__(self, func: Any, types: Sequence[Any], args: Sequence[Any] = (),
                           kwargs: Optional[Mapping[str, Any]] = None) -> Any:
        kwargs = kwargs or {}
        given = tensors_in((args, kwargs))
        result = self._result(func, args, kwargs, given)
        self.note(tensors_in(result))
        return result

    def _result(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any],
                given: Sequence[torch.Tensor]) -> Any:
        """What an operator gives, which may be fake."""
        if func is torch.ops.aten._local_scalar_dense.default and \
                private_ops.is_fake(given[0]) and given[0].dtype != torch.bool:
            return 1.0 if given[0].is_floating_point() else 1
        if given or self.fakes is None:
            return func(*args, **kwargs)
        with self.fakes:
            result = func(*args, **kwargs)
        return func(*args, **kwargs) if isinstance(result, torch.Tensor) and is_number(result) \
            else result


def is_number(tensor: torch.Tensor) -> bool:
    """Whether it is one number on the host."""
    return tensor.device.type == "cpu" and tensor.numel() <= 1


def tensors_in(value: Any) -> List[torch.Tensor]:
    """Tensors in nested lists, tuples and dictionaries."""
    return [leaf for leaf in private_ops.pytree.tree_leaves(value)
            if isinstance(leaf, torch.Tensor)]
