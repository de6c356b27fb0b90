"""A module's training graph without a run, and errors of PyTorch's compiler in plain words."""
from __future__ import annotations

import functools
from dataclasses import replace
from typing import Any, Callable, Optional

import torch

from ...util.errors import InputError, MemongerError
from ..pytorch import private
from ..pytorch.module_step import Inputs, arguments, check_module, in_eval, on_device
from ..step.backend import Backend, OnlyPlanning
from ..step.compilation import PlannedGraph, Seen
from ..step.request import Request
from . import versions
from .dynamo_errors import in_one_error
from .twin import original


def traced(module: Any, inputs: Inputs, request: Request,
           normalize: bool = True) -> PlannedGraph:
    """The training graph of a module, planned as ``request`` says; nothing runs."""
    check_module(module)
    versions.check(request.mode)
    return _traced(module, inputs, request, normalize).graphs[0]


def sizes_of(module: Any, inputs: Inputs, request: Request) -> Seen:
    """The sizes of a training graph's inputs, which the first plan is for; nothing runs."""
    asked = replace(request, budget=None, unplanned=True)
    seen = _traced(module, inputs, asked, dynamic=False).seen
    seen.must_fit = True
    return seen


def _traced(module: Any, inputs: Inputs, request: Request, normalize: bool = True,
            dynamic: Optional[bool] = None) -> Backend:
    """The backend with the training graph of a module."""
    module = given = original(module)
    module, inputs = on_device(module, inputs)
    if module is not given and request.optimizer is not None:
        request = replace(request, optimizer=request.optimizer.of_copy(
            list(given.parameters()), list(module.parameters())))
    backend = Backend(replace(request, in_eval=in_eval(module)), only_plan=True,
                      normalize=normalize)
    args, named = arguments(inputs)
    try:
        with private.whole_graphs():
            private.compiled_call(module, backend=backend, fullgraph=True,
                                  dynamic=dynamic)(*args, **named)
    except Exception as error:
        inner = private.inner_error(error)
        if isinstance(inner, OnlyPlanning):
            return backend
        raise in_words(error) from (None if isinstance(inner, MemongerError) else error)
    raise InputError("PyTorch found nothing to compile in the module")


def in_words(error: Exception) -> BaseException:
    """What a user is to see of an error inside a compilation."""
    inner = private.inner_error(error)
    if isinstance(inner, MemongerError):
        return inner
    return in_one_error(error) if private.of_dynamo(inner) else error


def clear_errors(call: Callable[..., Any], module: Any) -> Callable[..., Any]:
    """The compiled call of a module or function, with its name and its parameters.

    memonger's own errors come without those of PyTorch's compiler around them.
    """
    @functools.wraps(module.forward if isinstance(module, torch.nn.Module) else module)
    def run(*args: Any, **named: Any) -> Any:
        if torch.compiler.is_compiling():  # part of a larger module that is traced
            return module(*args, **named)
        try:
            with private.whole_graphs():
                return call(*args, **named)
        except Exception as error:
            shown = in_words(error)
            if shown is error:
                raise
            raise shown from None
    return run
