"""Every call into PyTorch that is not public, with what is needed of it.

``custom_partitioner_fn``, which Inductor's mode needs, came with PyTorch 2.9, and descriptors of a
joint graph's inputs and outputs in the form read here with 2.11.
"""
from __future__ import annotations

import contextlib
import logging
import os
import traceback
import warnings
from collections import ChainMap
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Sequence, Set, Tuple

import torch
import torch.fx as fx
from torch.optim import optimizer as optimizers
from torch.utils import _python_dispatch, _pytree
from torch.utils.checkpoint import CheckpointPolicy
from torch.utils.flop_counter import (
    flop_registry,
    sdpa_backward_flop_count,
    sdpa_flop_count,
)

try:
    from torch._dynamo.backends.common import aot_autograd
    from torch._dynamo.exc import (
        BackendCompilerFailed,
        ObservedException,
        TorchDynamoException,
        TorchRuntimeError,
        Unsupported,
    )
    from torch._dynamo.utils import get_metrics_context
    from torch._functorch import partitioners
    from torch._functorch.compile_utils import fx_graph_cse
    from torch._inductor.custom_graph_pass import CustomPartitionerFn
    from torch._subclasses import FakeTensor, FakeTensorMode
except ImportError:  # another PyTorch than those tested: versions.py finds out before others do
    CustomPartitionerFn = object

#: Inductor's configuration under which a step holds what its values need and no more: otherwise it
#: holds a buffer from its last reader on until it has another value of the same size to put there.
LEAST_LIVE: Dict[str, Any] = {"allow_buffer_reuse": False}

#: PyTorch's word for no bound is just below 1 << 63.
_UNBOUNDED = 1 << 62

#: Names of functions that log, or tell whether they would.
_LEVELS = ("debug", "info", "warning", "warn", "error", "exception", "critical", "fatal", "log",
           "isEnabledFor")
#: Marks nodes that no partitioner is to compute again.
_ONCE = "memonger_once"
#: More compilations than any process has.
_MANY = 1 << 30

#: Leaves of tuples, lists and dictionaries.
pytree = _pytree
#: Sees every operator that runs in it.
DispatchMode = _python_dispatch.TorchDispatchMode
Modules = Tuple[fx.GraphModule, fx.GraphModule]


# ------------------------------------------------------------------ backends of torch.compile
def run_aot(module: fx.GraphModule, inputs: Sequence[Any], compiler: Callable[..., Any],
            partition: Callable[..., Modules],
            inference: Callable[..., Any]) -> Callable[..., Any]:
    """The callable of a Dynamo graph whose ATen graphs ``compiler`` runs.

    ``compiler(graph, inputs)`` gives a function of one list of arguments, :func:`boxed`, and so
    does ``inference`` of a graph in which no gradient is taken.
    """
    with torch._functorch.config.patch(enable_autograd_cache=False), _step_by_step(module):
        return aot_autograd(fw_compiler=compiler, bw_compiler=compiler,
                            inference_compiler=inference, partition_fn=partition)(module, inputs)


def boxed(function: Callable[[List[Any]], Any]) -> Callable[[List[Any]], Any]:
    """The function, said to take one list of arguments: AOTAutograd looks at the function itself.
    """
    function._boxed_call = True  # type: ignore[attr-defined]
    return function


def run_inductor(module: fx.GraphModule, inputs: Sequence[Any],
                 patches: Mapping[str, Any], tried: bool = False) -> Callable[..., Any]:
    """The same, compiled by Inductor with ``patches`` of its configuration.

    ``tried``: the compilation that goes on will run a step. Backward is then compiled at once: on a
    GPU autograd runs it in a thread of its own, which would wait for this compilation to end.
    """
    from torch._inductor.compile_fx import compile_fx, compile_fx_inner

    def compile_half(graph: fx.GraphModule, arguments: Sequence[Any], **kwargs: Any) -> Any:
        alike = tried and kwargs.get("is_backward", False) and _has_no_layouts_unplanned(graph)
        with torch._inductor.config.patch({"layout_optimization": False} if alike else {}):
            return compile_fx_inner(graph, arguments, **kwargs)

    # A hit in AOTAutograd's cache would leave out the partitioner; Inductor's own cache stays.
    with torch._functorch.config.patch(enable_autograd_cache=False,
                                       force_non_lazy_backward_lowering=tried), \
            _step_by_step(module):
        return compile_fx(module, inputs, inner_compile=compile_half,
                          config_patches=dict(patches))


@contextlib.contextmanager
def _step_by_step(module: fx.GraphModule) -> Iterator[None]:
    """In the block PyTorch traces an LSTM as the operators of each of its steps.

    Otherwise it may take oneDNN's layer as it is for inference, without the memory that backward
    reads, and no backend can train that.
    """
    before = torch._C._get_mkldnn_enabled()
    recurrent = any(getattr(node.target, "__name__", "") == "lstm" for node in module.graph.nodes)
    torch._C._set_mkldnn_enabled(before and not recurrent)
    try:
        yield
    finally:
        torch._C._set_mkldnn_enabled(before)


def _has_no_layouts_unplanned(backward: fx.GraphModule) -> bool:
    """Whether Inductor leaves the layouts of this graph alone without a plan.

    It arranges a graph for the convolutions in it, from 2.15 on for their gradients, too. So it
    is asked about this graph without those that run again: gradients would be rounded otherwise
    for their sake. Where a filter has one channel they may: without that arrangement its gradient
    copies what it reads.
    """
    unplanned = copied(backward)
    for node in unplanned.graph.find_nodes(op="call_function",
                                           target=torch.ops.aten.convolution.default):
        if not is_backward(node):
            node.target = torch.ops.aten.clone.default
    gradients = backward.graph.find_nodes(
        op="call_function", target=torch.ops.aten.convolution_backward.default)
    return not arranges_convolutions(unplanned) and all(
        node.args[2].meta["val"].shape[1] != 1 for node in gradients)


class Partitioner(CustomPartitionerFn):
    """A function as Inductor's ``custom_partitioner_fn``.

    ``key`` names in compile caches all that decides the function's result; None: no cache.
    """

    def __init__(self, function: Callable[..., Modules], key: Any = None):
        self.function, self.key = function, key

    def __call__(self, gm: fx.GraphModule, joint_inputs: Sequence[object],
                 **kwargs: Any) -> Modules:
        kwargs.pop("compiler", None)
        return self.function(gm, joint_inputs, **kwargs)

    def uuid(self) -> Any:
        return self.key

    def __deepcopy__(self, memo: Any) -> "Partitioner":
        return self  # Inductor copies its configuration; graphs and plans are not part of it

    def __reduce__(self) -> Any:
        return Partitioner, (None, self.key)  # caches pickle the configuration


def compiled_call(module: Any, **options: Any) -> Callable[..., Any]:
    """What runs ``torch.compile(module, **options)``, whether or not it is compiled in place, too.
    """
    compiled = torch.compile(module, **options)
    if not isinstance(module, torch.nn.Module):
        return compiled
    name = "_forward" if "_forward" in vars(compiled) else "forward"  # of lazy modules
    called = getattr(vars(compiled)[name], "_torchdynamo_orig_callable", None)
    if called == module.__call__ and type(module).__call__ is torch.nn.Module.__call__:
        setattr(compiled, name, compiled.dynamo_ctx(module._call_impl))
    return compiled.forward


def compile_in_place(module: torch.nn.Module, call: Callable[..., Any]) -> None:
    """``call`` runs where the module is called, as after ``module.compile()``."""
    module._compiled_call_impl = call


def call_itself(module: torch.nn.Module) -> Callable[..., Any]:
    """The module's call with its hooks, even where it is compiled in place."""
    return module._call_impl


def whole_graphs() -> Any:
    """A context in which Dynamo does not cut the graph of a module inside a
    DistributedDataParallel at its buckets, as a budget is for a whole step, nor at recurrent
    layers and at messages to the user, which are left out. There may be as many compilations as
    there are sizes, and modules of one class.
    """
    config = torch._dynamo.config
    return config.patch(optimize_ddp=False, allow_rnn=True, ignore_logging_functions={
        *config.ignore_logging_functions, *_messages()}, recompile_limit=_MANY,
        accumulated_recompile_limit=_MANY)


def _messages() -> Set[Any]:
    """Functions that tell the user something, with those that libraries add to loggers."""
    places = vars(logging.Logger), vars(logging)
    told = {place[name] for place in places for name in _LEVELS if name in place}
    return told | {print, warnings.warn} | {
        function for function in vars(logging.Logger).values()
        if callable(function) and getattr(function, "__module__", "logging") != "logging"}


def inside_ddp() -> bool:
    """Whether a DistributedDataParallel is calling its module."""
    if not torch.distributed.is_available():
        return False
    return torch.nn.parallel.DistributedDataParallel._get_active_ddp_module() is not None


@contextlib.contextmanager
def outside_compilation() -> Iterator[None]:
    """Code in the block runs as if no compilation were going on."""
    metrics = get_metrics_context()._metrics  # a compilation in the block has metrics of its own
    saved = dict(metrics)
    metrics.clear()
    compiling, torch.compiler._is_compiling_flag = torch.compiler._is_compiling_flag, False
    with torch._guards.tracing(None), torch._guards.compile_context(None):
        try:
            yield
        finally:
            torch.compiler._is_compiling_flag = compiling
            metrics.clear()
            metrics.update(saved)


@contextlib.contextmanager
def eager_kernels() -> Iterator[None]:
    """Operators that are called in the block run, in a compilation, too, and on what they get."""
    with torch.utils._python_dispatch._disable_current_modes(), torch._C._DisableAutocast():
        yield


def inner_error(error: BaseException) -> BaseException:
    """What a backend raised inside a compilation; other errors as they are."""
    while isinstance(error, BackendCompilerFailed):
        error = error.inner_exception
    return error


def graph_break(error: BaseException) -> bool:
    """Whether Dynamo could not read the module as one graph."""
    return isinstance(error, Unsupported)


def of_dynamo(error: BaseException) -> bool:
    """Whether Dynamo's tracing ended with the error."""
    return isinstance(error, TorchDynamoException)


def is_own_failure(error: BaseException) -> bool:
    """Whether the module itself raised the error, or one of its operators did."""
    return isinstance(error, TorchRuntimeError) or isinstance(error.__cause__, ObservedException)


def traced_frames(error: BaseException) -> Sequence[traceback.FrameSummary]:
    """Where Dynamo's tracing was in the module's code, from the outside in."""
    return getattr(error, "real_stack", None) or ()


def is_of_pytorch(path: str) -> bool:
    """Whether a file is one of PyTorch's."""
    return path.startswith(os.path.dirname(torch.__file__) + os.sep)


def input_names(module: fx.GraphModule) -> List[str]:
    """Source expressions of a Dynamo graph's inputs: ``L['self']._parameters['weight']``, ..."""
    names = []
    for node in module.graph.find_nodes(op="placeholder"):
        source = getattr(node.meta.get("grapharg"), "source", None)
        name = getattr(source, "name", node.name)
        names.append(name() if callable(name) else str(name))
    return names


# ------------------------------------------------------------------ the joint graph
def normalize(joint: fx.GraphModule) -> None:
    """Drop what nothing reads and merge what is computed twice, as PyTorch's partitioner does."""
    joint.graph.eliminate_dead_code()
    joint.graph = fx_graph_cse(joint.graph)
    joint.recompile()


def is_tangent(node: fx.Node) -> bool:
    return partitioners._is_tangent(node)


def is_backward(node: fx.Node) -> bool:
    """Traced while autograd ran backward."""
    return partitioners._has_tag_is_backward(node) or \
        partitioners._has_tag_must_be_in_backward(node)


def is_forward(node: fx.Node) -> bool:
    """Traced before autograd ran backward."""
    return partitioners._has_tag_is_forward(node) or partitioners._has_tag_must_be_in_forward(node)


def is_symbolic(node: fx.Node) -> bool:
    """A size, not a tensor."""
    return isinstance(node.meta.get("val"), (torch.SymInt, torch.SymFloat, torch.SymBool))


def written_inputs(joint: fx.GraphModule, backward: bool = False) -> List[fx.Node]:
    """Inputs that forward writes into, by its operators or where it ends.

    ``backward``: also those that backward writes into.
    """
    inputs = [n for n in joint.graph.nodes if n.op in ("placeholder", "get_attr")]
    backs = {_of_tensor(item).mutated_input for item, written in zip(
        joint.graph.output_node().meta.get("desc") or (), written_back(joint)) if written}
    into = {value for node in joint.graph.nodes if backward or not is_backward(node)
            for value in written_arguments(node)}
    return [n for n in inputs if n in into or _of_tensor(n.meta.get("desc")) in backs]


def input_positions(nodes: Sequence[fx.Node]) -> List[Optional[int]]:
    """For each input of a joint graph which argument of the Dynamo graph it is; None for others.

    Arguments that lie in one memory, of which the step writes into one, are one input.
    """
    descriptors = (_of_tensor(node.meta.get("desc")) for node in nodes)
    return [getattr(getattr(d, "base_of", d), "idx", None) for d in descriptors]


def written_back(joint: fx.GraphModule) -> List[bool]:
    """For each output whether it is the new value of an input (running statistics)."""
    output = joint.graph.output_node()
    descriptors = output.meta.get("desc") or [None] * len(output.args[0])
    return ["InputMutation" in type(_of_tensor(item)).__name__ for item in descriptors]


def _of_tensor(descriptor: Any) -> Any:
    """The descriptor of a tensor; of a part of one that consists of several, that one's."""
    while "SubclassGetAttr" in type(descriptor).__name__:
        descriptor = descriptor.base
    return descriptor


def extract(module: fx.GraphModule, saved: List[fx.Node], num_forward_outputs: int) -> Modules:
    """Forward and backward of a joint graph whose nodes say where they must be."""
    forward, backward = partitioners._extract_fwd_bwd_modules(
        module, [node for node in saved if not is_symbolic(node)],
        [node for node in saved if is_symbolic(node)], num_fwd_outputs=num_forward_outputs)
    return partitioners.raise_getitems(forward), partitioners.raise_getitems(backward)


def place(node: fx.Node, in_backward: bool) -> None:
    """Say where a node must be, for :func:`extract`."""
    node.meta = {**node.meta, "partitioner_tag":
                 "must_be_in_backward" if in_backward else "must_be_in_forward"}


def default_partition(joint: fx.GraphModule, inputs: Sequence[Any],
                      again: Optional[Sequence[fx.Node]], **kwargs: Any) -> Modules:
    """PyTorch's own split, with the nodes ``again`` recomputed in backward.

    None: those that the module's own checkpoints name.
    """
    _mark(joint, again)
    return partitioners.default_partition(joint, inputs, **kwargs)


def min_cut(joint: fx.GraphModule, inputs: Sequence[Any], again: Optional[Sequence[fx.Node]],
            **kwargs: Any) -> Modules:
    """Inductor's usual split: what makes the least traffic between forward and backward.

    The nodes ``again`` are recomputed in backward in any case; None: those that the module's own
    checkpoints name.
    """
    _mark(joint, again)
    return partitioners.min_cut_rematerialization_partition(joint, inputs, **kwargs)


def _mark(joint: fx.GraphModule, again: Optional[Sequence[fx.Node]]) -> None:
    """Replace the marks of the module's own checkpoints, unless ``again`` is None."""
    if again is None:
        return
    for node in joint.graph.nodes:
        node.meta.pop("recompute", None)
        node.meta.pop("ac_graph_id", None)  # what one checkpoint reads of another one is kept
        if node.meta.get(_ONCE):
            run_once(node)
    for node in again:
        node.meta["recompute"] = CheckpointPolicy.MUST_RECOMPUTE


def run_once(node: fx.Node) -> None:
    """Keep the value of a forward node, in a checkpoint of the module, too."""
    node.meta.update({_ONCE: True, "recompute": CheckpointPolicy.MUST_SAVE})


def checkpoint_of(node: fx.Node) -> Optional[int]:
    """The number of the module's own checkpoint that computes a node again; None without one."""
    return node.meta.get("ac_graph_id", 0) if partitioners.must_recompute(node) else None


@contextlib.contextmanager
def undrawn() -> Iterator[None]:
    """Splits in the block are only looked at: they save no random states.

    Those are for what draws again, such as attention, even where its dropout is 0.
    """
    saved = partitioners.has_recomputable_rng_ops
    partitioners.has_recomputable_rng_ops = lambda joint: False
    try:
        yield
    finally:
        partitioners.has_recomputable_rng_ops = saved


def copied(joint: fx.GraphModule) -> fx.GraphModule:
    """A joint graph that a partitioner may change; nodes keep their names."""
    graph = fx.Graph()
    made = graph.output(graph.graph_copy(joint.graph, {}))
    made.meta = dict(joint.graph.output_node().meta)
    return fx.GraphModule(joint, graph)


# ------------------------------------------------------------------ tensors and operators
def fake_tensors() -> Any:
    """A context in which tensors are made without memory; such tensors may meet real ones."""
    return FakeTensorMode(allow_non_fake_inputs=True)


def is_fake(tensor: torch.Tensor) -> bool:
    """Whether it has no memory."""
    return isinstance(tensor, FakeTensor)


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


def most(size: torch.SymInt) -> Optional[int]:
    """The most that a size can be which depends on values; None where that is not known."""
    shapes = size.node.shape_env
    known = shapes.backed_var_to_val if hasattr(shapes, "backed_var_to_val") else shapes.var_to_val
    bound = shapes.bound_sympy(size.node.expr.xreplace(dict(known))).upper
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


def keeps_graph() -> bool:
    """Whether the backward that runs was asked to keep its graph for another one."""
    return torch._C._autograd._get_current_graph_task_keep_graph()


def keep_cuda_busy(cycles: int) -> None:
    """A kernel that does nothing for so long."""
    torch.cuda._sleep(cycles)


def is_operator(target: Any) -> bool:
    """Of ATen, of PyTorch or of a library; no Python function such as getitem."""
    return isinstance(target, torch._ops.OpOverload)


def writes(target: Any) -> bool:
    """Whether a node's target is an operator that writes into its inputs."""
    return is_operator(target) and target._schema.is_mutable


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
_FORMULAS: Mapping[Any, Callable[..., Any]] = ChainMap(flop_registry, {
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu: _attention_on_cpu,
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward: _attention_backward_on_cpu,
})
_FUSIBLE: Dict[str, Any] = {}


def is_random(node: fx.Node) -> bool:
    """Whether Inductor draws the node's value from a seed."""
    return str(getattr(node.target, "overloadpacket", "")) == "prims.inductor_random"


def is_fusible(node: fx.Node) -> bool:
    """Whether Inductor makes the node part of a neighbour's kernel."""
    if not _FUSIBLE:
        ops = partitioners.get_default_op_list()
        _FUSIBLE["ops"] = set(ops.fusible_ops) | set(ops.view_ops)
    packet = getattr(node.target, "overloadpacket", None)
    if is_random(node):  # made in registers from a seed
        return True
    return packet is not None and packet not in _FORMULAS and (
        torch.Tag.pointwise in node.target.tags or packet in _FUSIBLE["ops"])


def arranges_convolutions(module: fx.GraphModule) -> bool:
    """Whether Inductor gives convolutions of a graph operands with channels last."""
    from torch._inductor.graph import GraphLowering
    return GraphLowering.decide_layout_opt(module, is_inference=False)


def most_buffers_computed_again() -> int:
    """A value of at most so many buffers Inductor computes in each kernel that reads it."""
    from torch._inductor import config
    return config.realize_reads_threshold


def is_pointwise(node: fx.Node) -> bool:
    """Whether each element of the node's value depends on one element of each operand."""
    return torch.Tag.pointwise in getattr(node.target, "tags", ()) or is_random(node)


def flops(node: fx.Node, arguments: Tuple[Any, Any]) -> Any:
    """Multiplications and additions of matrix products and convolutions, as a number or, with
    dynamic shapes, a symbol; 0 for other nodes.
    """
    packet = getattr(node.target, "overloadpacket", None)
    if packet not in _FORMULAS:
        return 0
    args, kwargs = arguments
    return _FORMULAS[packet](*args, **kwargs, out_val=node.meta["val"])
