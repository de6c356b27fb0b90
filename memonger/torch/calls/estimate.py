"""What a training step takes without a plan, and which of its modules take it."""
from __future__ import annotations

import contextlib
import copy
import time
from typing import Any, Dict, Iterator, List, Mapping, Optional, Tuple

import torch

from ...graph.schedule import expand
from ...memory.storage import plan_storage
from ...plans.by_module import StepEstimate
from ...plans.footprint import Footprint, Footprints
from ...plans.parts import Outcome, Status, Terms
from ...plans.plan import Plan
from ...report import memory_snapshot as report
from ...util.errors import InputError, MemongerError
from ...util.messages import listed, one_line
from ...util.units import format_bytes
from ..capture.captured import BUFFER, INPUT, PARAMETER
from ..capture.costs import call_signature
from ..capture.optimizer_moment import graph_with_step
from ..capture.recorded import Named, by_module, graph_of, operators
from ..check.measure import loss_of, with_gradients
from ..pytorch import private_ops
from ..pytorch.allocations import CUDA_GRANULE_BYTES
from ..pytorch.live_bytes import tensors_in
from ..pytorch.module_step import (
    Inputs,
    arguments,
    check_module,
    device_of,
    in_eval,
    seeded,
    storage_bytes,
)
from ..pytorch.optimizer import Optimizer, optimizer_named
from ..pytorch.plain_step import PlainStep
from ..step.network import IN_EVAL
from ..step.request import Request, requested
from ..times import stored_profiles
from ..times.profile import Profile, measured_bytes
from .tracing import traced
from .twin import original

_BESIDE = ("backward begins at the sum of the outputs: a loss outside the module, and the "
           "gradients of the outputs (%s), are not counted")
_UNCOUNTED = "what these allocate while they run is not known, and not counted: %s"
_RAN = "one step of the module ran, as it cannot run without values: %s"


def estimate(module: Any, inputs: Inputs, mode: Optional[str] = None, optimizer: Any = None,
             optimizer_params: Optional[Mapping[str, Any]] = None) -> Plan:
    """Bytes of one unplanned training step: of the module as it is written.

    Without a mode the step is that of plain PyTorch, whether or not the module is one graph, from
    its call to the end of backward and, with an optimizer, its step. It runs on tensors
    without memory, so inputs and module may be on "meta". On a device each kind of operator of
    which it is not known what it allocates while it runs is tried, once and alone. Code that looks
    at values which are not there, as ``if x.isnan().any()`` does, needs a module with memory: of
    that one step runs, after which buffers, gradients and random states are what they were.

    Gradients that there are already count, and the step adds to them. Of a
    DistributedDataParallel buckets count, too, and inside ``torch.autocast`` its copies.

    Parameters
    ----------
    module, inputs, optimizer, optimizer_params
        As for :func:`plan`.
    mode : str, optional
        "inductor" or "eager": the step that plans are compared with, of one graph.

    Returns
    -------
    Plan
        ``total_bytes``, ``pool_bytes``, ``fixed_bytes`` by category, and :meth:`timeline`. Without
        a mode also ``modules``, what each takes, ``moment``, when the step takes most, and both as
        its text.

    Raises
    ------
    InputError
        If the input cannot be used, or the module looks at values on "meta".
    """
    if mode is not None or not isinstance(module, torch.nn.Module):
        return traced(module, inputs, requested(
            Request(mode=mode or "inductor", unplanned=True), "auto", optimizer,
            optimizer_params)).plan
    check_module(module)
    started_s = time.perf_counter()
    made = None if optimizer is None else optimizer_named(optimizer, optimizer_params)
    module = original(module)
    inner, bucket_bytes = _without_buckets(module)
    has_memory = not any(t.is_meta for t in tensors_in([list(inner.parameters()), inputs]))
    step, named, output_bytes, why_run = _gone_through(inner, inputs, has_memory)
    notes = [_RAN % why_run] if why_run else []
    if in_eval(module):
        notes.append(IN_EVAL)
    if output_bytes:
        notes.append(_BESIDE % format_bytes(output_bytes))
    known, unknown = _temporary_bytes(step, has_memory)
    graph = graph_of(step, named, known)
    fixed = {"parameters": 0, "aux": 0, "inputs": 0}
    categories = {PARAMETER: "parameters", BUFFER: "aux", INPUT: "inputs"}
    for number, (category, _, _) in named.outside.items():
        name = "gradients" if number in named.gradients else categories[category]
        fixed[name] = fixed.get(name, 0) + step.memories[number].size_bytes
    if bucket_bytes:
        fixed["buckets"] = bucket_bytes
    if unknown:
        notes.append(_UNCOUNTED % listed(unknown))
    else:
        fixed["workspace"] = 0
    held: Dict[str, int] = {}
    if made is not None:
        takes = made.bytes_of([p for p in inner.parameters() if p.requires_grad])
        fixed["optimizer"] = takes.held_bytes
        if takes.temporary_bytes:
            graph = graph_with_step(graph, takes.temporary_bytes)
        held = _held_by_module(inner, made, takes.held_bytes)
    modules, moment = by_module(graph, step, named, [p for p, _ in inner.named_modules()], held)
    schedule = expand(graph, {})
    takes_all = Footprint(plan_storage(graph, schedule, "live").pool_bytes, fixed)
    return StepEstimate(
        Terms(options={"torch": torch.__version__}, storage="live"), graph, schedule,
        Footprints(takes_all, takes_all),
        Outcome(Status.NOT_NEEDED, "none", notes=tuple(notes),
                planning_s=time.perf_counter() - started_s), modules=modules, moment=moment)


def memory_snapshot(plan: Plan) -> Dict[str, Any]:
    """A step by a plan in the form in which PyTorch records its allocator's events.

    Pickled into a file it is what https://pytorch.org/memory_viz shows, beside a recorded one.
    Addresses are those of one heap; times are numbers of steps.

    Parameters
    ----------
    plan : Plan
        Of :func:`plan` or :func:`estimate`.

    Returns
    -------
    dict
        As PyTorch's own snapshot of a GPU's memory, with the operator, and its module in the place
        of a file, as the frame of each event.
    """
    return report.memory_snapshot(plan)


def _without_buckets(module: torch.nn.Module) -> Tuple[torch.nn.Module, int]:
    """The module inside a DistributedDataParallel, and the bytes of that one's buckets."""
    if not isinstance(module, torch.nn.parallel.DistributedDataParallel):
        return module, 0
    inner = module.module
    return inner, 0 if module.gradient_as_bucket_view else storage_bytes(
        p.detach() for p in inner.parameters() if p.requires_grad)


def _gone_through(module: torch.nn.Module, inputs: Inputs,
                  has_memory: bool) -> Tuple[PlainStep, Named, int, str]:
    """What :func:`_recorded` gives; and why the step ran for real, "" where it did not."""
    try:
        return (*_recorded(module, inputs, True), "")
    except MemongerError:
        raise
    except Exception as error:  # of fake tensors, or of the module itself
        why = one_line(error) or type(error).__name__
        if not has_memory:
            raise InputError("the module cannot run without values: %s. Give a module and inputs "
                             "that have memory" % why) from error
    try:
        return (*_recorded(module, inputs, False), why)
    except (MemongerError, torch.OutOfMemoryError):
        raise
    except Exception as error:
        raise InputError("the module fails: %s" % (one_line(error) or type(error).__name__)) \
            from error


def _recorded(module: torch.nn.Module, inputs: Inputs,
              without_memory: bool) -> Tuple[PlainStep, Named, int]:
    """One step, with names of its storages, and bytes of the outputs where they are no loss."""
    device = device_of(module, inputs)
    fakes = private_ops.fake_tensors() if without_memory else None
    with _stand_ins(module, inputs, device, fakes) as (other, given):
        args, named_args = arguments(given)
        step = PlainStep(device, CUDA_GRANULE_BYTES if device.type == "cuda" else 1, fakes,
                         call_signature)
        named = Named()

        def note(tensor: torch.Tensor, category: str, path: str, name: str) -> None:
            before = len(step.memories)
            step.note([tensor])
            for number in range(before, len(step.memories)):
                named.outside[number] = category, path, name
        for path, part in other.named_modules():
            for name, parameter in part.named_parameters(recurse=False):
                note(parameter, PARAMETER, path, name)
                if parameter.grad is not None:
                    note(parameter.grad, INPUT, path, name)
            for name, buffer in part.named_buffers(recurse=False):
                note(buffer, BUFFER, path, name)
        for place, tensor in enumerate(tensors_in((args, named_args))):
            note(tensor, INPUT, "", "input%d" % (place + 1))
        with seeded(), torch.enable_grad(), private_ops.quiet_fakes(), step.watching(other), step:
            output = other(*args, **named_args)
            results = with_gradients(output)
            output_bytes = 0 if len(results) == results[0].numel() == 1 else storage_bytes(results)
            del results
            step.in_backward = True
            with private_ops.outside_autocast(device):
                loss_of(output).backward()
        step.is_over = True
        places = step.sum_in_place()
        for path, part in other.named_modules():
            for name, parameter in part.named_parameters(recurse=False):
                if parameter.grad is not None:
                    for number in step.number_of(parameter.grad):
                        named.gradients.setdefault(places.get(number, number), (path, name))
        del output
    return step, named, output_bytes


@contextlib.contextmanager
def _stand_ins(module: torch.nn.Module, inputs: Inputs, device: torch.device,
               fakes: Any) -> Iterator[Tuple[torch.nn.Module, Inputs]]:
    """The module and its inputs without memory; without ``fakes`` themselves, with gradients and
    buffers of their own in the block.
    """
    if fakes is not None:
        memo: Dict[int, Any] = {}

        def stand_in(value: Any) -> Any:
            if isinstance(value, torch.Tensor) and id(value) not in memo:
                memo[id(value)] = private_ops.stand_in(value, fakes, device)
            return memo.get(id(value), value)
        for tensor in [*module.parameters(), *module.buffers()]:
            other = stand_in(tensor)
            if tensor.grad is not None:
                other.grad = stand_in(tensor.grad)
        yield copy.deepcopy(module, dict(memo)), private_ops.pytree.tree_map(stand_in, inputs)
        return
    buffers = [(buffer, buffer.clone()) for buffer in module.buffers()]
    gradients = [(p, p.grad) for p in module.parameters()]
    for parameter, gradient in gradients:
        parameter.grad = None if gradient is None else gradient.clone()
    try:
        yield module, private_ops.pytree.tree_map(
            lambda v: v.detach().clone().requires_grad_(v.requires_grad)
            if isinstance(v, torch.Tensor) else v, inputs)
    finally:
        for parameter, gradient in gradients:
            parameter.grad = gradient
        with torch.no_grad():
            for buffer, value in buffers:
                buffer.copy_(value)


def _temporary_bytes(step: PlainStep, has_memory: bool) -> Tuple[Dict[str, int], List[str]]:
    """What operators take while they run, by signature, and those of which that is not known."""
    calls = operators(step)
    found = stored_profiles.stored(calls)
    known = dict(found.temporary_bytes)
    if has_memory:
        tried = measured_bytes(calls, known, ())
        known.update(tried)
        if tried:
            with contextlib.suppress(OSError, MemongerError):  # they are but tried again
                stored_profiles.keep(Profile(found.device, temporary_bytes=tried))
    return known, sorted({str(ran.target) for ran in step.ops if ran.signature not in known}
                         | set(step.unsized))


def _held_by_module(module: torch.nn.Module, optimizer: Optimizer,
                    held_bytes: int) -> Dict[str, int]:
    """What the optimizer holds for the parameters of each module, by its path.

    Of one that holds something for all of them together by shares of their bytes.
    """
    of_kind: Dict[Any, int] = {}
    found: Dict[str, List[int]] = {}
    for path, part in module.named_modules():
        for parameter in part.parameters(recurse=False):
            if parameter.requires_grad:
                kind = (parameter.shape, parameter.dtype)
                if kind not in of_kind:
                    of_kind[kind] = optimizer.bytes_of([parameter]).held_bytes
                found.setdefault(path, []).append(of_kind[kind])
    alone = sum(map(sum, found.values()))
    return {path: sum(sizes) * held_bytes // alone for path, sizes in found.items()} \
        if alone else {}
