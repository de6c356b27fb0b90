"""A module's training graph without a run, and errors of PyTorch's compiler in plain words."""
from __future__ import annotations

import copy
import functools
import logging
from dataclasses import replace
from typing import Any, Callable, Mapping, Optional, Sequence, Type

import torch

from ...util.errors import InputError, MemongerError
from ..pytorch import private, private_ops
from ..pytorch.module_step import Inputs, arguments, check_module, in_eval, on_device
from ..step.backend import Backend, OnlyPlanning
from ..step.compilation import PlannedGraph, Seen
from ..step.parts import StepInParts, in_step
from ..step.read_once import Forms, ReadOnce
from ..step.request import Request
from . import versions
from .dynamo_errors import in_one_error
from .twin import original

logger = logging.getLogger("memonger.torch")
#: Makes the call of a module that a backend compiles.
Compile = Callable[[Any, Backend], Callable[..., Any]]


def traced(module: Any, inputs: Inputs, request: Request, normalize: bool = True,
           in_parts: Optional[Compile] = None) -> PlannedGraph:
    """The training graph of a module, planned as ``request`` says; nothing runs.

    ``in_parts``: how the module is compiled, where that is as several graphs.
    """
    check_module(module)
    versions.check(request.mode)
    return _traced(module, inputs, request, normalize, in_parts).graphs[0]


def sizes_of(module: Any, inputs: Inputs, request: Request) -> Seen:
    """The sizes of a training graph's inputs, which the first plan is for; nothing runs."""
    asked = replace(request, budget=None, unplanned=True)
    seen = _traced(module, inputs, asked).seen
    seen.must_fit = True
    return seen


def read_once(module: Any, inputs: Inputs, request: Request, batch: int) -> Optional[ReadOnce]:
    """The training graph of a module that is one graph, to be planned with any batch.

    None for another module, and where sizes are no numbers. ``batch``: that of the inputs; see
    :class:`ReadOnce`.
    """
    check_module(module)
    versions.check(request.mode)
    found = _traced(module, inputs, request, kind=Forms)
    if not isinstance(found, Forms) or not found.forms or found.forms[0].dynamic:
        return None
    return ReadOnce(found.forms, found.request, batch)


def _traced(module: Any, inputs: Inputs, request: Request, normalize: bool = True,
            in_parts: Optional[Compile] = None, kind: Type[Backend] = Backend) -> Backend:
    """The backend with the training graph of a module."""
    module = given = original(module)
    module, inputs = on_device(module, inputs)
    if module is not given and request.optimizer is not None:
        request = replace(request, optimizer=request.optimizer.of_copy(
            list(given.parameters()), list(module.parameters())))
    backend = kind(replace(request, in_eval=in_eval(module)), only_plan=True, normalize=normalize)
    args, named = arguments(inputs)
    if in_parts is not None:
        return _traced_in_parts(module, args, named, backend.request, in_parts)
    try:
        with private.whole_graphs(), private.these_sizes(), private_ops.quiet_fakes():
            private.compiled_call(module, backend=backend, fullgraph=True)(*args, **named)
    except Exception as error:
        inner = private.inner_error(error)
        if isinstance(inner, OnlyPlanning):
            return backend
        if private.no_one_graph(inner):
            return backend if isinstance(backend, Forms) else \
                _traced_in_parts(module, args, named, backend.request, _as_a_whole)
        raise in_words(error) from (None if isinstance(inner, MemongerError) else error)
    raise InputError("PyTorch found nothing to compile in the module")


def _as_a_whole(module: Any, backend: Backend) -> Callable[..., Any]:
    return in_step(backend, module, private.compiled_call(module, backend=backend),
                   backend=backend)


def _traced_in_parts(module: Any, args: Sequence[Any], named: Mapping[str, Any],
                     request: Request, in_parts: Compile) -> Backend:
    """The backend with the graphs of a module's step as one.

    What is between the graphs runs once, of a copy of the module that shares its parameters.
    """
    if isinstance(module, torch.nn.Module):
        module = copy.deepcopy(module, {id(p): p for p in module.parameters()})
    backend = StepInParts(request, module, only_plan=True)
    call = in_parts(module, backend)
    try:
        with private.whole_graphs(), private.these_sizes(), private_ops.quiet_fakes(), \
                torch.random.fork_rng():
            call(*args, **named)
    except OnlyPlanning:
        return backend
    except Exception as error:
        raise in_words(error) from None
    raise InputError("PyTorch found nothing to compile in the module")


def in_words(error: Exception) -> BaseException:
    """What a user is to see of an error inside a compilation.

    memonger's own errors without the frames of PyTorch's compiler, which the logger
    ``memonger.torch`` has.
    """
    inner = private.inner_error(error)
    if isinstance(inner, MemongerError):
        logger.debug("the error in full", exc_info=inner)
        return inner.with_traceback(None)
    return in_one_error(error) if private.of_dynamo(inner) else error


def clear_errors(call: Callable[..., Any], module: Any,
                 in_parts: Optional[Callable[[], Callable[..., Any]]] = None) -> Callable[..., Any]:
    """The compiled call of a module or function, with its name and its parameters.

    memonger's own errors come without those of PyTorch's compiler around them. ``in_parts``: makes
    the call of a module that PyTorch cannot read as one graph; None: that is an error.
    """
    calls = [call]

    @functools.wraps(module.forward if isinstance(module, torch.nn.Module) else module)
    def run(*args: Any, **named: Any) -> Any:
        if torch.compiler.is_compiling():  # part of a larger module that is traced
            return module(*args, **named)
        try:
            with private.whole_graphs():
                return calls[-1](*args, **named)
        except Exception as error:
            if in_parts is None or len(calls) > 1 or \
                    not private.no_one_graph(private.inner_error(error)):
                shown = in_words(error)
                if shown is error and not isinstance(error, MemongerError):
                    raise
                raise shown from None
        calls.append(in_parts())
        return run(*args, **named)
    return run
