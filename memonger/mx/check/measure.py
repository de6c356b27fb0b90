"""Measures what training takes: bytes allocated by the process, and step time.

Bytes of each symbol are measured in a process of its own, so that nothing else counts. Step times
are measured in one process, planned and unplanned steps in turn, so that their ratio is meaningful
on a busy machine.
"""
from __future__ import annotations

import statistics
from dataclasses import replace
from typing import Any, Dict, Mapping, Optional, Sequence

from ...plans.measurement import Measurement
from ...util.errors import MemongerError
from ...util.processes import ask_module
from ..capture.binding import GradReq, infer_arguments
from ..symbol.common_subexpressions import to_json
from .training_run import how_to_bind


def measure(symbol: Any, shapes: Mapping[str, Sequence[int]], ctx: Any = None, steps: int = 5,
            original: Any = None, type_dict: Optional[Mapping[str, Any]] = None,
            grad_req: GradReq = "write") -> Measurement:
    """Train for some steps and report bytes and time; parameters as for :func:`memonger.measure`.

    Raises MemongerError, with its last words, if the measured process fails (out of memory, say).
    """
    infer_arguments(symbol, shapes, type_dict, grad_req)  # refuses here, in one line
    request = _request(shapes, ctx, type_dict, grad_req)
    texts = [to_json(s) for s in (symbol, original) if s is not None]
    alone = [_child({**request, "symbols": [text], "steps": 1}) for text in texts]
    timed = _child({**request, "symbols": texts, "steps": steps})
    planned, *others = [
        Measurement(bytes_of["allocated_bytes"], statistics.median(times_s), tuple(times_s),
                    timed["device"]) for bytes_of, times_s in zip(alone, timed["steps_s"])]
    return replace(planned, original=others[0]) if others else planned


def allocated_bytes(symbol: Any, shapes: Mapping[str, Sequence[int]]) -> int:
    """Growth of the resident memory of a process that trains on a CPU."""
    answer = _child({**_request(shapes), "symbols": [to_json(symbol)], "steps": 2})
    return int(answer["allocated_bytes"])


def _request(shapes: Mapping[str, Sequence[int]], ctx: Any = None,
             type_dict: Optional[Mapping[str, Any]] = None,
             grad_req: GradReq = "write") -> Dict[str, Any]:
    """How the measured process binds, fit for JSON."""
    return {**how_to_bind(shapes, type_dict, grad_req),
            "device": [ctx.device_type, ctx.device_id] if ctx is not None else ["cpu", 0]}


def _child(request: Mapping[str, Any]) -> Dict[str, Any]:
    try:
        answer: Dict[str, Any] = ask_module("memonger.mx.check.measure_child", request)
        return answer
    except MemongerError as error:
        raise MemongerError("the measured process failed: %s" % error) from error
