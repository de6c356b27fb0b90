"""Measures what training takes: bytes allocated by the process, and step time.

Bytes of each symbol are measured in a process of its own, so that nothing else counts. Step times
are measured in one process, planned and unplanned steps in turn, so that their ratio is meaningful
on a busy machine.
"""
from __future__ import annotations

import json
import logging
import os
import statistics
import subprocess
import tempfile
from dataclasses import asdict, dataclass
from typing import Any, Dict, List, Mapping, Optional, Sequence

from ..util.errors import MemongerError
from ..util.files import write_whole
from ..util.processes import run_module
from ..variants.common_subexpressions import to_json
from .binding import GradReq, infer_arguments


@dataclass(frozen=True)
class Measurement:
    """One symbol, measured.

    Attributes
    ----------
    allocated_bytes : int
        Growth of the process's resident memory (of the device's used memory on a GPU) from
        before binding to the largest value during the steps: parameters, gradients, pool and
        operator workspaces.
    step_s : float
        Median time of forward and backward, seconds.
    steps_s : tuple of float
        All of them, in order.
    """

    allocated_bytes: int
    step_s: float
    steps_s: Sequence[float]
    device: str
    original: Optional["Measurement"] = None

    @property
    def overhead(self) -> Optional[float]:
        """Extra step time over the original measured in turn; None without one."""
        if self.original is None:
            return None
        ratios = [a / b for a, b in zip(self.steps_s, self.original.steps_s)]
        return statistics.median(ratios) - 1.0

    def to_dict(self) -> Dict[str, Any]:
        """All numbers, fit for JSON."""
        return {**asdict(self), "overhead": self.overhead}

    def __str__(self) -> str:
        from ..report.text import measurement_table
        return measurement_table(self)


def measure(symbol: Any, shapes: Mapping[str, Sequence[int]], ctx: Any = None, steps: int = 5,
            original: Any = None, type_dict: Optional[Mapping[str, Any]] = None,
            grad_req: GradReq = "write", seed: int = 0,
            environment: Optional[Mapping[str, str]] = None) -> Measurement:
    """Train for some steps and report bytes and time.

    Parameters
    ----------
    symbol : mx.sym.Symbol
    original : mx.sym.Symbol, optional
        Another symbol, measured in turn with ``symbol``; its result is ``.original``.
    ctx : mx.Context, optional
        Default ``mx.cpu()``.
    environment : mapping, optional
        Environment variables for the measured process.

    Raises
    ------
    MemongerError
        If the measured process fails (out of memory, say), with its last words.
    """
    if steps < 1:
        raise MemongerError("measure needs at least one step, not %r" % steps)
    infer_arguments(symbol, shapes, type_dict, grad_req)  # refuses here, in one line
    symbols = [symbol] + ([original] if original is not None else [])
    common = {"shapes": {n: list(s) for n, s in shapes.items()}, "steps": steps, "seed": seed,
              "types": {n: str(t) for n, t in (type_dict or {}).items()},
              "grad_req": grad_req if isinstance(grad_req, (str, dict)) else list(grad_req),
              "device": [ctx.device_type, ctx.device_id] if ctx is not None else ["cpu", 0]}
    texts = [to_json(s) for s in symbols]
    alone = [_child({**common, "symbols": [text], "steps": 1}, environment) for text in texts]
    timed = _child({**common, "symbols": texts}, environment)
    results: List[Measurement] = []
    for index in reversed(range(len(symbols))):
        times_s = timed["steps_s"][index]
        results.append(Measurement(alone[index]["allocated_bytes"], statistics.median(times_s),
                                   tuple(times_s), timed["device"],
                                   results[0] if index == 0 and results else None))
    return results[-1]


def allocated_bytes(symbol: Any, shapes: Mapping[str, Sequence[int]]) -> int:
    """Growth of the resident memory of a process that trains on a CPU."""
    found = _child({"symbols": [to_json(symbol)], "shapes": {n: list(s) for n, s in shapes.items()},
                    "steps": 2, "seed": 0, "types": {}, "grad_req": "write",
                    "device": ["cpu", 0]}, None)
    return int(found["allocated_bytes"])


def _child(specification: Mapping[str, Any],
           environment: Optional[Mapping[str, str]]) -> Dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="memonger") as folder:
        request, answer = os.path.join(folder, "request"), os.path.join(folder, "answer")
        write_whole(request, json.dumps(specification))
        child = run_module("memonger.mx.measure_child", request, answer,
                           stderr=subprocess.STDOUT, environment=environment)
        if child.returncode != 0 or not os.path.exists(answer):
            logging.getLogger("memonger").info("the measured process said:\n%s", child.stdout)
            said = child.stdout.strip().splitlines()
            raise MemongerError("the measured process failed: %s" % (
                "it was killed, perhaps because memory ran out" if child.returncode == -9
                else said[-1] if said else "it ended with status %d" % child.returncode))
        with open(answer) as file:
            return json.load(file)
