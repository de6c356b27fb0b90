"""Every call into what is not public of PyTorch's compilers: Dynamo, AOTAutograd, Inductor.

``custom_partitioner_fn``, which Inductor's mode needs, came with PyTorch 2.9.
"""
from __future__ import annotations

import contextlib
import copy
import functools
import logging
import os
import traceback
import warnings
from types import MappingProxyType
from typing import Any, Callable, Dict, FrozenSet, Iterator, List, Mapping, Sequence, Set

import torch
import torch.fx as fx

from . import private_scheduler
from .private_joint import Modules, copied, is_backward
from .private_ops import arranges_convolutions, arranging
from .sizes import hint

try:
    from torch._dynamo.backends.common import aot_autograd
    from torch._dynamo.exc import (
        BackendCompilerFailed,
        ObservedException,
        TorchDynamoException,
        TorchRuntimeError,
        Unsupported,
    )
    from torch._dynamo.external_utils import wrap_inline
    from torch._dynamo.utils import get_metrics_context
    from torch._inductor.custom_graph_pass import CustomPartitionerFn
except ImportError:  # another PyTorch than those tested: versions.py finds out before others do
    CustomPartitionerFn = object

#: Inductor's configuration under a plan. Without this Inductor keeps a dead buffer until another
#: value of its size can use it.
LEAST_LIVE: Dict[str, Any] = {"allow_buffer_reuse": False}

#: Names of functions that log, or tell whether they would.
_LEVELS = ("debug", "info", "warning", "warn", "error", "exception", "critical", "fatal", "log",
           "isEnabledFor")
#: More compilations than any process has.
_MANY = 1 << 30


def run_aot(module: fx.GraphModule, inputs: Sequence[Any], forward: Callable[..., Any],
            backward: Callable[..., Any], partition: Callable[..., Modules],
            inference: Callable[..., Any]) -> Callable[..., Any]:
    """The callable of a Dynamo graph whose ATen graphs ``forward`` and ``backward`` run.

    ``forward(graph, inputs)`` gives a function of one list of arguments, :func:`boxed`, and so
    does ``inference`` of a graph in which no gradient is taken.
    """
    with torch._functorch.config.patch(enable_autograd_cache=False), _step_by_step(module):
        return aot_autograd(fw_compiler=forward, bw_compiler=backward,
                            inference_compiler=inference, partition_fn=partition)(module, inputs)


def boxed(function: Callable[[List[Any]], Any]) -> Callable[[List[Any]], Any]:
    """The function, marked for AOTAutograd as one that takes a list of arguments.
    """
    function._boxed_call = True  # type: ignore[attr-defined]
    return function


def run_inductor(module: fx.GraphModule, inputs: Sequence[Any],
                 patches: Mapping[str, Any], tried: bool = False,
                 lowering: Mapping[str, Any] = MappingProxyType({})) -> Callable[..., Any]:
    """The same, compiled by Inductor with ``patches`` of its configuration.

    ``tried``: the compilation that goes on will run a step. Backward is then compiled at once: on a
    GPU autograd runs it in a thread of its own, which would wait for this compilation to end.
    ``lowering``: configuration for both halves, known when the graph is divided.
    """
    from torch._inductor.compile_fx import compile_fx, compile_fx_inner

    def compile_half(graph: fx.GraphModule, arguments: Sequence[Any], **kwargs: Any) -> Any:
        alike = tried and kwargs.get("is_backward", False) and \
            not arranging().items() <= lowering.items() and \
            has_no_layouts_unplanned(graph)
        # The halves are what the partitioner made: caches need not know what it is.
        with torch._inductor.config.patch({
                **lowering, "custom_partitioner_fn": None,
                **({"layout_optimization": False} if alike else {})}), \
                private_scheduler.fusing(lowering):
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


def has_no_layouts_unplanned(backward: fx.GraphModule) -> bool:
    """Whether Inductor leaves the layouts of this graph, or of the backward half of a joint one,
    alone without a plan.

    It arranges a graph for the convolutions in it, from 2.15 on for their gradients, too. So it
    is asked about this graph without those that run again: gradients would be rounded otherwise
    for their sake. Where filters have one channel they may: without that arrangement their
    gradients copy what they read. Not if one of these has no kernel of its own: that of larger
    filters fills blocks of 256 numbers for each of the filter's, only with that arrangement.
    """
    unplanned = copied(backward)
    for node in unplanned.graph.find_nodes(op="call_function",
                                           target=torch.ops.aten.convolution.default):
        if not is_backward(node):
            node.target = torch.ops.aten.clone.default
    pairs = [[node.args[place].meta["val"].shape for place in (1, 2)]
             for node in backward.graph.find_nodes(
                 op="call_function", target=torch.ops.aten.convolution_backward.default)]
    have_kernels = [all(hint(n) <= min(3, hint(most)) for n, most in zip(filters[2:], pictures[2:]))
                    for pictures, filters in pairs if filters[1] == 1]
    return not arranges_convolutions(unplanned) and not (have_kernels and all(have_kernels))


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
    if type(module).__call__ is torch.nn.Module.__call__:
        if called == module.__call__:
            setattr(compiled, name, compiled.dynamo_ctx(module._call_impl))
        elif getattr(called, "__wrapped__", None) is module:  # of PyTorch's own classes
            setattr(compiled, name, compiled.dynamo_ctx(wrap_inline(module._call_impl)))
    return compiled.forward


def compile_in_place(module: torch.nn.Module, call: Callable[..., Any]) -> None:
    """``call`` runs where the module is called, as after ``module.compile()``."""
    module._compiled_call_impl = call


def compiled_inside(module: torch.nn.Module, **options: Any) -> Dict[torch.nn.Module, Any]:
    """Compiled calls of PyTorch's own containers in a module.

    Dynamo compiles the calls in a function that it cannot read, but not those of PyTorch's own
    modules.
    """
    return {part: compiled_call(part, **options) for part in module.modules()
            if part is not module and type(part).__module__.startswith("torch.nn.")
            and type(part).forward is not torch.nn.Module.forward and any(part.children())
            and part._compiled_call_impl is None}


@contextlib.contextmanager
def called_so(calls: Mapping[torch.nn.Module, Any]) -> Iterator[None]:
    """In the block these modules are called in other ways."""
    before = {module: module.__dict__.get("_compiled_call_impl") for module in calls}
    for module, call in calls.items():
        compile_in_place(module, call)
    try:
        yield
    finally:
        for module, call in before.items():
            compile_in_place(module, call)


def call_itself(module: torch.nn.Module) -> Callable[..., Any]:
    """The module's call with its hooks, even where it is compiled in place."""
    return module._call_impl


def whole_graphs() -> Any:
    """A context in which Dynamo does not cut the graph of a module inside a
    DistributedDataParallel at its buckets, as a budget is for a whole step, nor at recurrent
    layers and at messages to the user, which are left out. There may be as many compilations as
    there are sizes, and modules of one class.
    """
    return _patch(frozenset(torch._dynamo.config.ignore_logging_functions),
                  len(vars(logging.Logger)))


def these_sizes() -> Any:
    """A context in which sizes are numbers, whatever other ones a module was compiled for before,
    but where the user marks a dimension as dynamic.
    """
    return torch._dynamo.config.patch(automatic_dynamic_shapes=False)


@functools.lru_cache(maxsize=None)
def _patch(ignored: FrozenSet[Any], _: int) -> Any:
    """The context, made once, as each call of a compiled module is in it.

    ``ignored``: functions that the user leaves out; ``_``: how many a logger has.
    """
    return torch._dynamo.config.patch(
        optimize_ddp=False, allow_rnn=True, ignore_logging_functions={*ignored, *_messages()},
        recompile_limit=_MANY, accumulated_recompile_limit=_MANY)


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


def no_one_graph(error: BaseException) -> bool:
    """Whether Dynamo may read the module as several graphs.

    Of a class whose calls it left alone before, it looks at no other module.
    """
    return of_dynamo(error) and not is_own_failure(error) or \
        type(error).__name__ == "GuardOnDataDependentSymNode" or "no compiled frames" in str(error)


def is_own_failure(error: BaseException) -> bool:
    """Whether the module itself raised the error, or one of its operators did."""
    return isinstance(error, TorchRuntimeError) or isinstance(error.__cause__, ObservedException)


def traced_frames(error: BaseException) -> Sequence[traceback.FrameSummary]:
    """Where Dynamo's tracing was in the module's code, from the outside in."""
    return getattr(error, "real_stack", None) or ()


def is_of_pytorch(path: str) -> bool:
    """Whether a file is one of PyTorch's."""
    return path.startswith(os.path.dirname(torch.__file__) + os.sep)


def copied_graph(module: fx.GraphModule) -> fx.GraphModule:
    """A copy of a Dynamo graph that still says where its inputs come from.

    Without that nobody knows which of them are parameters, and Inductor decides otherwise.
    """
    made = copy.deepcopy(module)
    if hasattr(module, "_param_name_to_source"):
        made._param_name_to_source = module._param_name_to_source
        for known, node in zip(module.graph.find_nodes(op="placeholder"),
                               made.graph.find_nodes(op="placeholder")):
            node._dynamo_source = known._dynamo_source
    return made


def input_names(module: fx.GraphModule) -> List[str]:
    """Source expressions of a Dynamo graph's inputs: ``L['self']._parameters['weight']``, ..."""
    names = []
    for node in module.graph.find_nodes(op="placeholder"):
        source = getattr(node.meta.get("grapharg"), "source", None)
        name = getattr(source, "name", node.name)
        names.append(name() if callable(name) else str(name))
    return names
