"""An optimizer of the same kind over other tensors, which may have no memory."""
from __future__ import annotations

import copy
from collections import OrderedDict, defaultdict
from fractions import Fraction
from typing import Any, Callable, Collection, Dict, Mapping, Sequence

import torch

from . import private_ops
from .live_bytes import is_number, tensors_in

#: What stands for each parameter, by its id.
StandIns = Mapping[int, torch.Tensor]
#: Gives parameters new gradients.
Gradients = Callable[[Sequence[torch.Tensor]], None]


def twin_of(optimizer: Any, stand_ins: StandIns, trained: Collection[int], fakes: Any) -> Any:
    """The optimizer with stand-ins for its parameters, without hooks; the optimizer is not changed.

    ``trained``: ids of the stand-ins whose state it has, in fake tensors; without ``fakes`` it has
    none.
    """
    kind: Any = type(optimizer)
    twin = kind.__new__(kind)
    memo: Dict[int, Any] = {**stand_ins, id(optimizer): twin}
    fields = {name: value for name, value in vars(optimizer).items()
              if name not in ("state", "step") and not name.endswith("_hooks")}
    state = {parameter: kept for parameter, kept in optimizer.state.items()
             if fakes is not None and id(stand_ins.get(id(parameter))) in trained}
    for tensor in tensors_in([list(state.values()), list(fields.values())]):
        memo.setdefault(id(tensor), _stand_in(tensor, fakes))
    vars(twin).update(copy.deepcopy(fields, memo))
    vars(twin).update({name: OrderedDict() for name in vars(optimizer) if name.endswith("_hooks")})
    twin.state = defaultdict(dict, {stand_ins[id(parameter)]: copy.deepcopy(kept, memo)
                                    for parameter, kept in state.items()})
    return twin


def _stand_in(tensor: torch.Tensor, fakes: Any) -> torch.Tensor:
    if fakes is None or is_number(tensor):
        return tensor.detach().clone()
    with fakes:
        return torch.empty_like(tensor, device=tensor.device)


def fake_parameter(fakes: Any, parameter: torch.Tensor, device: torch.device) -> torch.Tensor:
    """A parameter like this one, or like this process's shard of it, without memory."""
    part = next(private_ops.dense_parts(parameter))
    with fakes:
        return torch.nn.Parameter(torch.empty_strided(
            part.shape, part.stride(), dtype=part.dtype, device=device),
            requires_grad=parameter.requires_grad)


def small(parameter: torch.Tensor, device: torch.device, share: Fraction) -> torch.Tensor:
    """A parameter with as many dimensions and a share of the elements: longer ones are cut."""
    shape, most = list(parameter.shape), max(1, int(share * parameter.numel()))
    while torch.Size(shape).numel() > most:
        longest = max(range(len(shape)), key=shape.__getitem__)
        others = torch.Size(shape).numel() // shape[longest]
        shape[longest] = max(1, min(shape[longest] // 2, most // others)) \
            if others > most else max(1, most // others)
    return torch.nn.Parameter(torch.randn(shape, device=device).to(parameter.dtype),
                              requires_grad=parameter.requires_grad)


def dense(parameters: Sequence[torch.Tensor]) -> None:
    """Gradients of a function with one minimum, which takes a while to find."""
    for parameter in parameters:
        parameter.grad = None
        value = parameter.detach()
        parameter.grad = value.pow(3).add_(value)


def sparse(parameters: Sequence[torch.Tensor]) -> None:
    """The same for optimizers of embeddings: sparse, with all rows."""
    dense(parameters)
    for parameter in parameters:
        assert parameter.grad is not None
        parameter.grad = parameter.grad.to_sparse(1).coalesce()
