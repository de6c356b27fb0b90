"""A module with its example inputs: how it is called, and what it holds."""
from __future__ import annotations

import contextlib
import copy
import itertools
from typing import Any, Callable, Dict, Iterable, Iterator, List, Mapping, Tuple

import torch

from ...util.argument_checks import shown
from ...util.errors import InputError
from .private_ops import dense_parts, pytree, storage_key

Inputs = Any


def arguments(inputs: Inputs) -> Tuple[Tuple[Any, ...], Dict[str, Any]]:
    """Positional and named arguments: a tuple, a dictionary, or one tensor.

    Raises InputError for anything else, and for sizes in the place of tensors.
    """
    sizes = pytree.tree_leaves(inputs)
    if isinstance(inputs, (tuple, list)) and sizes and all(type(size) is int for size in sizes):
        shape = next(filter(None, (i for i in inputs if isinstance(i, (tuple, list)))), sizes)
        raise InputError("the inputs %s are sizes, not tensors: for each input pass a tensor of "
                         "its type, such as (torch.empty(%s, device=\"meta\"),), which takes no "
                         "memory"
                         % (shown(inputs), ", ".join(map(str, shape))))
    if isinstance(inputs, Mapping):
        return (), dict(inputs)
    if isinstance(inputs, (tuple, list)):
        return tuple(inputs), {}
    if isinstance(inputs, torch.Tensor):
        return (inputs,), {}
    raise InputError("inputs must be a tuple of tensors, a dictionary of keyword arguments or one "
                     "tensor, not %s" % shown(inputs))


def check_module(module: Any, by_blocks: bool = False) -> None:
    """Raise InputError unless ``module`` is a module or a function that can be planned.

    ``by_blocks``: its blocks are compiled each, and not what is around them.
    """
    if not by_blocks and isinstance(module, torch.nn.Module) and any(
            hasattr(part, "_get_fsdp_state") for part in module.modules()):
        raise InputError("fully_shard (FSDP2) is planned by blocks, as its gathered parameters "
                         "come and go in hooks that no graph shows: memonger.torch.compile(module, "
                         "budget=..., blocks=\"layers.*\", in_place=True), with the path of what "
                         "was sharded")
    if isinstance(module, type):  # torch.compile would compile all modules of this class
        raise InputError("the module must be an instance, and this is the class %s: plan %s(...)"
                         % (module.__name__, module.__name__))
    if not callable(module):
        raise InputError("the module must be a torch.nn.Module or a function, not %s"
                         % shown(module))


def in_eval(module: Any) -> bool:
    """Whether a module is in eval mode."""
    return isinstance(module, torch.nn.Module) and not module.training


def parameters_of(module: Any) -> List[torch.Tensor]:
    """The parameters that are trained."""
    if not isinstance(module, torch.nn.Module):
        return []
    return [p for p in module.parameters() if p.requires_grad]


def device_of(module: Any, inputs: Inputs) -> torch.device:
    """Where the step runs: the first device of parameters and inputs that is not "meta"."""
    held = list(module.parameters()) if isinstance(module, torch.nn.Module) else []
    for tensor in [*held, *pytree.tree_leaves(arguments(inputs))]:
        if isinstance(tensor, torch.Tensor) and not tensor.is_meta:
            return tensor.device
    return torch.device("cpu")


def bytes_before(module: Any, inputs: Inputs) -> int:
    """Bytes of parameters, buffers and inputs, each storage once."""
    held: List[Any] = []
    if isinstance(module, torch.nn.Module):
        held += [*module.parameters(), *module.buffers()]
    held += [t for t in pytree.tree_leaves(arguments(inputs)) if isinstance(t, torch.Tensor)]
    return storage_bytes(held)


def storage_bytes(tensors: Iterable[torch.Tensor]) -> int:
    """What tensors take in this process, each storage once."""
    parts = [part for tensor in tensors for part in dense_parts(tensor)]
    return sum({storage_key(p): p.untyped_storage().nbytes() for p in parts}.values())


def gradient_bytes(tensors: Iterable[Any], in_flight: int = 0) -> int:
    """Bytes of the gradients that there are already, which a step adds to.

    Those of a pipeline's stage, with microbatches ``in_flight``, will be there.
    """
    leaves = [t for t in tensors if isinstance(t, torch.Tensor) and t.is_leaf]
    if in_flight:
        return storage_bytes(t for t in leaves if isinstance(t, torch.nn.Parameter)
                             and t.requires_grad)
    return storage_bytes(t.grad for t in leaves if t.grad is not None)


def on_device(module: Any, inputs: Inputs) -> Tuple[Callable[..., Any], Any]:
    """Module and inputs with memory instead of "meta", for tracing: no value is read or written.
    """
    device = device_of(module, inputs)
    if isinstance(module, torch.nn.Module) and any(p.is_meta for p in module.parameters()):
        module = copy.deepcopy(module).to_empty(device=device)

    def real(value: Any) -> Any:
        if isinstance(value, torch.Tensor) and value.is_meta:
            return torch.empty_like(value, device=device, requires_grad=value.requires_grad)
        return value
    return module, pytree.tree_map(real, inputs)


def batch_of(inputs: Inputs) -> int:
    """The first dimension of the first tensor.

    Raises InputError where that has none.
    """
    first = next((t for t in pytree.tree_leaves(arguments(inputs)) if isinstance(t, torch.Tensor)),
                 None)
    if first is None or not first.dim():
        raise InputError("max_batch needs an input whose first dimension is the batch")
    return int(first.shape[0])


def with_batch(inputs: Inputs, batch: int) -> Inputs:
    """The inputs on "meta" with another batch."""
    given = batch_of(inputs)

    def resized(value: Any) -> Any:
        if not isinstance(value, torch.Tensor) or value.shape[:1] != (given,):
            return value
        return torch.empty((batch, *value.shape[1:]), dtype=value.dtype, device="meta",
                           requires_grad=value.requires_grad)
    return pytree.tree_map(resized, inputs)


def prime_batch(module: Any, inputs: Inputs, least: int) -> int:
    """A batch of at least ``least`` that is a prime number and divides no other dimension."""
    held = [*module.parameters(), *module.buffers()] if isinstance(module, torch.nn.Module) else []
    given = [t for t in pytree.tree_leaves(arguments(inputs)) if isinstance(t, torch.Tensor)]
    others = {size for t in held for size in t.shape} | {
        size for t in given for size in t.shape[t.shape[:1] == (batch_of(inputs),):]}
    return next(n for n in itertools.count(least) if all(n % k for k in range(2, n))
                and not any(size and size % n == 0 for size in others))


@contextlib.contextmanager
def seeded(seed: int = 0) -> Iterator[None]:
    """A block with a fixed seed, after which random states are what they were."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        yield


def random_states() -> Tuple[torch.Tensor, List[torch.Tensor]]:
    """The states from which random numbers are drawn, on all devices."""
    return torch.get_rng_state(), torch.cuda.get_rng_state_all() \
        if torch.cuda.is_available() and torch.cuda.is_initialized() else []


def set_random_states(states: Tuple[torch.Tensor, List[torch.Tensor]]) -> None:
    """Go on from :func:`random_states`."""
    torch.set_rng_state(states[0])
    if states[1]:
        torch.cuda.set_rng_state_all(states[1])


def example_input(text: str) -> torch.Tensor:
    """``"8,512:int64"`` as a tensor: random numbers, or zeros where they are whole.

    Raises InputError for a type that PyTorch does not have.
    """
    shape, _, word = text.partition(":")
    dtype = getattr(torch, word or "float32", None)
    if not isinstance(dtype, torch.dtype):
        raise InputError("PyTorch has no type %r for the input %s" % (word, text))
    sizes = tuple(map(int, shape.split(",")))
    return torch.randn(sizes, dtype=dtype) if dtype.is_floating_point else \
        torch.zeros(sizes, dtype=dtype)
