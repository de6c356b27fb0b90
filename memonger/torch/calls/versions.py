"""Whether plans can be made with the PyTorch at hand.

Releases in :data:`memonger.util.version.TORCH_VERSIONS` ran all tests. A newer one is tried out
with a small module, in some seconds; that it passed is noted in the folder ``torch-probes`` of the
user's cache. Where it fails no plan is made, and modules train without one.
"""
from __future__ import annotations

import contextlib
import functools
import os
import warnings
from typing import List, Optional, Tuple

import torch
from torch import nn

from ...util.errors import InputError, MemongerError
from ...util.files import cache_folder, write_whole
from ...util.messages import one_line
from ...util.version import TORCH_VERSIONS, __version__
from ..check.measure import training_step
from ..pytorch import private
from ..pytorch.allocations import peak_bytes
from ..pytorch.module_step import seeded
from ..rewrite.apply import split
from ..step.backend import Backend, OnlyPlanning
from ..step.request import Request

#: What ``torch.compile`` calls the backend that runs what each mode runs.
_BACKENDS = {"eager": "aot_eager", "inductor": "inductor"}


def check(mode: str) -> None:
    """Raise InputError where no plan for a mode can be made with this PyTorch."""
    found = _shortcoming(mode)
    if found:
        raise InputError("no plan can be made: " + found)


def unplanned_backend(mode: str) -> Optional[str]:
    """The backend that runs a mode without a plan, and a warning; None where plans can be made."""
    found = _shortcoming(mode)
    if not found:
        return None
    warnings.warn("trains without a plan, and a budget is not kept: " + found, RuntimeWarning,
                  stacklevel=3)
    return _BACKENDS[mode]


def _shortcoming(mode: str) -> str:
    """Why no plan for a mode can be made; "" where it can.

    Raises InputError where this PyTorch is older than all that plans work with.
    """
    version = tuple(int(part) for part in torch.__version__.split("+")[0].split(".")[:2])
    if version < TORCH_VERSIONS[0]:
        raise InputError("memonger.torch works with PyTorch %d.%d and later, and this is %s" % (
            *TORCH_VERSIONS[0], torch.__version__))
    if version <= TORCH_VERSIONS[-1]:
        return ""
    found = _probed(torch.__version__, mode)
    return found and "PyTorch %s is newer than %d.%d, the newest that this memonger was tested " \
        "with, and its probe fails (%s); look for a newer memonger, or install an older PyTorch" % (
            torch.__version__, *TORCH_VERSIONS[-1], found)


@functools.lru_cache(maxsize=None)
def _probed(version: str, mode: str) -> str:
    """What is wrong with plans for a mode in this PyTorch; "" where the probe passes.

    Only passes are noted: what fails may do so for want of a compiler.
    """
    path = os.path.join(cache_folder("torch-probes"),
                        "torch-%s-memonger-%s-%s" % (version, __version__, mode))
    if os.path.exists(path):
        return ""
    try:
        with seeded(), torch.device("cpu"), torch.enable_grad(), \
                torch.autocast("cpu", enabled=False):
            _probe_eager()
            if mode == "inductor":
                _probe_inductor()
    except Exception as error:
        return one_line(error) or type(error).__name__
    with contextlib.suppress(MemongerError, OSError):
        os.makedirs(os.path.dirname(path), exist_ok=True)
        write_whole(path, "")
    return ""


class _Example(nn.Module):
    """Convolutions with BatchNorm, dropout, and a product with a transposed operand."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(*[layer for width in (3, 8) for layer in (
            nn.Conv2d(width, 8, 1), nn.BatchNorm2d(8), nn.Sigmoid(), nn.Dropout(0.5))])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows = self.layers(x).flatten(2)
        return (rows @ rows.mT).sigmoid().sum()


def _probe_eager() -> None:
    """Raise where a planned step has other numbers, or takes other bytes, than it should."""
    plain, planned = _Example(), _Example()
    planned.load_state_dict(plain.state_dict())
    x = torch.rand(8, 3, 16, 16)
    backend = Backend(Request(mode="eager", costs="cpu"))
    compiled = torch.compile(planned, backend=backend, fullgraph=True)
    step = training_step(lambda: compiled(x), list(planned.parameters()))
    for run in (training_step(lambda: plain(x), list(plain.parameters())), step):
        with seeded():
            run()
    for (name, wanted), (_, found) in zip(_numbers(plain), _numbers(planned)):
        _expect(torch.allclose(wanted, found, rtol=1e-4, atol=1e-6), "other values of " + name)
    plan = backend.graphs[-1].plan
    held = {"parameters": plain.parameters(), "aux": plain.buffers(), "inputs": [x]}
    for category, values in held.items():
        _expect(plan.fixed_bytes[category] == sum(value.nbytes for value in values),
                "other bytes of " + category)
    used_bytes = peak_bytes(step, torch.device("cpu"))
    _expect(abs(used_bytes - plan.pool_bytes) < plan.pool_bytes / 100, "%d bytes in place of %d" % (
        used_bytes, plan.pool_bytes))
    _expect(plan.pool_bytes < 0.6 * plan.baseline_pool_bytes, "a plan that saves little")


def _probe_inductor() -> None:
    """Raise where Inductor does not ask for a partition, or nothing of one is computed again."""
    backend = Backend(Request(costs="cpu"), only_plan=True)
    try:
        torch.compile(_Example(), backend=backend, fullgraph=True)(torch.rand(8, 3, 16, 16))
    except Exception as error:
        if not isinstance(private.inner_error(error), OnlyPlanning):
            raise
    captured, schedule = backend.graphs[-1].captured, backend.graphs[-1].plan.schedule
    again = set(schedule.recomputed())
    _, backward = split(captured, schedule, True)
    kinds = {str(node.target) for node in backward.graph.nodes}
    _expect(bool(again) and all(captured.graph.ops[op].kind in kinds for op in again),
            "what is to run again does not")


def _numbers(module: nn.Module) -> List[Tuple[str, torch.Tensor]]:
    """Gradients and buffers after a step."""
    return [*((name, value.grad) for name, value in module.named_parameters()),
            *module.named_buffers()]


def _expect(met: bool, otherwise: str) -> None:
    if not met:
        raise AssertionError(otherwise)
