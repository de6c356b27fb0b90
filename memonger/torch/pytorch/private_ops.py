"""Every call into what is not public of PyTorch's tensors and operators."""
from __future__ import annotations

import contextlib
import logging
from collections import ChainMap
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Tuple

import torch
import torch.fx as fx
from torch.multiprocessing.reductions import StorageWeakRef
from torch.optim import optimizer as optimizers
from torch.utils import _python_dispatch, _pytree
from torch.utils.flop_counter import (
    flop_registry,
    sdpa_backward_flop_count,
    sdpa_flop_count,
)

try:
    from torch._C import _profiler as profiler
    from torch._subclasses import FakeTensor, FakeTensorMode
    from torch._subclasses.fake_tensor import (
        DataDependentOutputException,
        DynamicOutputShapeException,
    )

    #: What fake tensors raise where code looks at values.
    DEPENDS_ON_VALUES = (DataDependentOutputException, DynamicOutputShapeException)
except ImportError:  # another PyTorch than those tested: versions.py finds out before others do
    pass

#: PyTorch's word for no bound is just below 1 << 63.
_UNBOUNDED = 1 << 62

#: Leaves of tuples, lists and dictionaries.
pytree = _pytree
#: Sees every operator that runs in it.
DispatchMode = _python_dispatch.TorchDispatchMode


def fake_tensors() -> Any:
    """A context in which tensors are made without memory; such tensors may meet real ones."""
    return FakeTensorMode(allow_non_fake_inputs=True)


def is_fake(tensor: torch.Tensor) -> bool:
    """Whether it has no memory."""
    return isinstance(tensor, FakeTensor)


def stand_in(tensor: torch.Tensor, fakes: Any, device: torch.device) -> torch.Tensor:
    """A tensor like this one without memory; of whole numbers that are there a copy."""
    if not tensor.is_meta and not tensor.is_floating_point() and not tensor.is_complex():
        return tensor.detach().clone()
    with fakes:
        made = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype,
                                   device=device if tensor.is_meta else tensor.device)
    return torch.nn.Parameter(made, tensor.requires_grad) \
        if isinstance(tensor, torch.nn.Parameter) else made.requires_grad_(tensor.requires_grad)


@contextlib.contextmanager
def outside_autocast(device: torch.device) -> Iterator[None]:
    """The block runs behind the one of autocast that it is in, whose copies are gone."""
    torch.clear_autocast_cache()
    with torch.autocast(device.type, enabled=False):
        yield


@contextlib.contextmanager
def quiet_fakes() -> Iterator[None]:
    """In the block PyTorch does not log what operators say of fake tensors; it raises it, too."""
    logger = logging.getLogger("torch._subclasses.fake_tensor")
    before, logger.disabled = logger.disabled, True
    try:
        yield
    finally:
        logger.disabled = before


@contextlib.contextmanager
def steps_of_stand_ins() -> Iterator[None]:
    """Optimizers in the block treat fake tensors as they treat real ones (``foreach`` is the
    default for real ones on a GPU), and no hook that is registered for all optimizers runs.
    """
    hooks: List[Any] = [optimizers._global_optimizer_pre_hooks,
                        optimizers._global_optimizer_post_hooks]
    saved = [dict(registered) for registered in hooks]
    for registered in hooks:
        registered.clear()
    optimizers._foreach_supported_types.append(FakeTensor)
    try:
        yield
    finally:
        optimizers._foreach_supported_types.remove(FakeTensor)
        for registered, before in zip(hooks, saved):
            registered.update(before)


def known_sizes(shapes: Any) -> Mapping[Any, Any]:
    """The value of each symbol of an environment of shapes in the traced example."""
    return shapes.backed_var_to_val if hasattr(shapes, "backed_var_to_val") else shapes.var_to_val


def most(size: torch.SymInt) -> Optional[int]:
    """The most that a size can be which depends on values; None where that is not known."""
    shapes = size.node.shape_env
    bound = shapes.bound_sympy(size.node.expr.xreplace(dict(known_sizes(shapes)))).upper
    return int(bound) if bound.is_Integer and bound < _UNBOUNDED else None


def sizes_of_its_own(mode: Any) -> Any:
    """In the block sizes that depend on values get symbols that nobody else need know."""
    return mode.shape_env.ignore_fresh_unbacked_symbols() if mode.shape_env is not None else \
        contextlib.nullcontext()


def depends_on_values(node: fx.Node) -> bool:
    """Whether the sizes of a node's value depend on other values: those of ``x[mask]``."""
    return bool(node.meta.get("unbacked_bindings"))


def parts(tensor: torch.Tensor) -> List[torch.Tensor]:
    """The tensors in whose memory a tensor lies: itself, or those that make up a sparse one."""
    if tensor.layout is torch.strided:
        return [tensor]
    if tensor.layout is torch.sparse_coo:
        return [tensor._indices(), tensor._values()]
    if tensor.layout in (torch.sparse_csr, torch.sparse_bsr):
        return [tensor.crow_indices(), tensor.col_indices(), tensor.values()]
    if tensor.layout in (torch.sparse_csc, torch.sparse_bsc):
        return [tensor.ccol_indices(), tensor.row_indices(), tensor.values()]
    return []


def storage_key(tensor: torch.Tensor) -> int:
    """Names the storage of a tensor, as long as it lives; fake tensors have one, too."""
    return tensor.untyped_storage()._cdata


def storage_reference(value: Any) -> Any:
    """What names the storage of a tensor even when that is gone, and does not keep it.

    None for what is no tensor, and for one of several storages.
    """
    if not isinstance(value, torch.Tensor) or value.layout is not torch.strided or \
            _python_dispatch.is_traceable_wrapper_subclass(value):
        return None
    return StorageWeakRef(value.untyped_storage())


def dense_parts(tensor: torch.Tensor) -> Iterator[torch.Tensor]:
    """The tensors with storages that one is made of: of a DTensor this process's shard."""
    if _python_dispatch.is_traceable_wrapper_subclass(tensor):
        parts = [getattr(tensor, name) for name in tensor.__tensor_flatten__()[0]]
        for part in parts:
            if isinstance(part, torch.Tensor):  # a DTensor names its mesh, too
                yield from dense_parts(part)
    elif tensor.layout == torch.sparse_coo:
        yield from (tensor._indices(), tensor._values())
    else:
        yield tensor


def made_in_graph(tensor: torch.Tensor) -> bool:
    """Whether a compiled graph made a tensor, or nothing that takes gradients."""
    made_by = tensor.grad_fn
    return made_by is None or type(made_by).__name__.startswith("CompiledFunction")


def gradient_number(tensor: Optional[torch.Tensor] = None) -> int:
    """By which PyTorch counts the operators with gradients; without a tensor that of the next."""
    return torch.autograd._get_sequence_nr() if tensor is None else tensor.grad_fn._sequence_nr()


def is_profiled() -> bool:
    """Whether a profiler of PyTorch runs."""
    return torch._C._autograd._profiler_enabled()


@contextlib.contextmanager
def memory_events() -> Iterator[List[Tuple[int, int]]]:
    """Time and bytes of each allocation in the block; the list is filled when it is over.

    ``torch.profiler`` also records operators, and where the block is over while one of these runs
    that writes its end into memory which is free by then. So none are recorded here.
    """
    config = profiler.ProfilerConfig(profiler.ProfilerState.KINETO, False, True, False, False,
                                     False, profiler._ExperimentalConfig())
    activities, found = {profiler.ProfilerActivity.CPU}, []  # type: ignore[var-annotated]
    torch._C._autograd._prepare_profiler(config, activities)
    torch._C._autograd._enable_profiler(config, activities,
                                        {profiler.RecordScope.STATIC_RUNTIME_MODEL})
    try:
        yield found
    finally:
        found += [(event.start_ns(), event.nbytes())
                  for event in torch._C._autograd._disable_profiler().events()
                  if event.name() == "[memory]"]


def keeps_graph() -> bool:
    """Whether the backward that runs was asked to keep its graph for another one."""
    return torch._C._autograd._get_current_graph_task_keep_graph()


def autograd_number() -> int:
    """Nodes of autograd's graph that are made from now on have at least this number."""
    return torch.autograd._get_sequence_nr()


def running_gradient() -> Tuple[int, Any]:
    """The number of the node of autograd's graph that runs, and the leaf that it adds to.

    -1 where none does.
    """
    node = torch._C._current_autograd_node()
    return (-1, None) if node is None else (node._sequence_nr(), getattr(node, "variable", None))


def keep_cuda_busy(cycles: int) -> None:
    """A kernel that does nothing for so long."""
    torch.cuda._sleep(cycles)


def is_operator(target: Any) -> bool:
    """Of ATen, of PyTorch or of a library; no Python function such as getitem."""
    return isinstance(target, torch._ops.OpOverload)


def name_in(namespace: str, target: Any) -> str:
    """The name of an operator of one namespace, without its overload; "" of any other target."""
    return target._schema.name.partition("::")[2] \
        if is_operator(target) and target.namespace == namespace else ""


def writes(target: Any) -> bool:
    """Whether a node's target is an operator that writes into its inputs."""
    return is_operator(target) and target._schema.is_mutable


def makes_view(target: Any) -> bool:
    """Whether an operator of ATen's makes views of its first operand, and does nothing else."""
    return is_operator(target) and target.is_view and target.namespace == "aten"


def written_arguments(node: fx.Node) -> List[fx.Node]:
    """Nodes into whose values an operator writes."""
    if not writes(node.target):
        return []
    into = {a.name for a in node.target._schema.arguments if a.alias_info and a.alias_info.is_write}
    given = [value for name, value in named_arguments(node).items() if name in into]
    return [leaf for leaf in pytree.tree_leaves(given) if isinstance(leaf, fx.Node)]


def named_arguments(node: fx.Node) -> Dict[str, Any]:
    """What an operator is given, by the names of its schema."""
    names = (argument.name for argument in node.target._schema.arguments)
    return {**dict(zip(names, node.args)), **node.kwargs}


def _attention_on_cpu(query: Any, key: Any, value: Any, *args: Any, **kwargs: Any) -> int:
    return sdpa_flop_count(query.shape, key.shape, value.shape)


def _attention_backward_on_cpu(grad: Any, query: Any, key: Any, value: Any, *args: Any,
                               **kwargs: Any) -> int:
    return sdpa_backward_flop_count(grad.shape, query.shape, key.shape, value.shape)


#: Formulas of what runs in no kernel of Inductor's: PyTorch's own, behind them those that its table
#: lacks before 2.15.
FORMULAS: Mapping[Any, Callable[..., Any]] = ChainMap(flop_registry, {
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu: _attention_on_cpu,
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward: _attention_backward_on_cpu,
})


def is_mutable(function: Any) -> bool:
    """Whether an operator writes into its inputs."""
    return bool(function._schema.is_mutable)


def arranges_convolutions(module: fx.GraphModule) -> bool:
    """Whether Inductor gives convolutions of a graph operands with channels last."""
    from torch._inductor.graph import GraphLowering
    return GraphLowering.decide_layout_opt(module, is_inference=False)


def arranging() -> Dict[str, Any]:
    """Inductor's configuration under which it does in every graph."""
    return {"force_layout_optimization": True}


def cudnn_serves(given: List[Any], epsilon: float) -> bool:
    """Whether cuDNN serves a BatchNorm with parameters and statistics, all of one type.

    ``given``: data, weight, bias, mean and variance; None for those that it lacks.
    """
    return None not in given and len({value.dtype for value in given[1:]}) == 1 and \
        torch._C._select_batch_norm_backend(*given, True, epsilon) is \
        torch._C._BatchNormBackend.Cudnn


def configured(options: Mapping[str, Any]) -> Any:
    """In the block Inductor's configuration has these values."""
    from torch._inductor import config
    return config.patch(dict(options))


def flops(node: fx.Node, arguments: Tuple[Any, Any]) -> Any:
    """Multiplications and additions of matrix products and convolutions, as a number or, with
    dynamic shapes, a symbol; 0 for other nodes.
    """
    packet = getattr(node.target, "overloadpacket", None)
    if packet not in FORMULAS:
        return 0
    args, kwargs = arguments
    return FORMULAS[packet](*args, **kwargs, out_val=node.meta["val"])
