"""The control of a comparison: a network against itself, with another number of threads.

Sums are split among threads, so their number changes last bits. The control runs in a process of
its own, which is stock MXNet: the number is read once, and the plugin is not loaded.
Run as a module, this is that process.
"""
from __future__ import annotations

import os
import tempfile
from typing import Any, Dict, Mapping, Tuple

import numpy as np

from ...util.errors import InputError, MemongerError
from ...util.processes import answer, ask_module
from ..capture.binding import first_line
from ..plugin.environment import mxnet
from ..rewrite.load import is_numpy, of_kind
from ..symbol.common_subexpressions import to_json
from .training_run import Results, Training, Types, Values, how_to_bind

#: Files in the folder that both processes share.
_START, _FOUND = "start.npz", "found.npz"


def operator_threads() -> int:
    """How many threads an operator of MXNet has: by default one for every two processors."""
    processors = len(os.sched_getaffinity(0))
    return int(os.environ.get("OMP_NUM_THREADS") or min(processors, int(
        os.environ.get("MXNET_OMP_MAX_THREADS") or max(1, processors // 2))))


def results_with(symbol: Any, training: Training, start: Values,
                 types: Types) -> Tuple[Tuple[int, int], Results]:
    """This process's number of threads and another one, and what the network gives with that.

    ``training``, ``start``, ``types``: as for the run in this process.
    Raises InputError on a GPU, MemongerError if the process fails.
    """
    if training.ctx is not None and training.ctx.device_type != "cpu":
        raise InputError("the control changes the number of a CPU's threads; it is not for %s"
                         % training.ctx)
    here = operator_threads()
    other = 1 if here > 1 else 2
    with tempfile.TemporaryDirectory(prefix="memonger") as folder:
        names = sorted(start)
        np.savez(os.path.join(folder, _START), *[start[name] for name in names])
        request = {
            **how_to_bind(training.shapes, types, training.grad_req),
            "folder": folder, "names": names, "symbol": to_json(symbol), "numpy": is_numpy(symbol),
            "steps": training.steps, "seed": training.seed, "rate": training.learning_rate}
        try:
            steps = ask_module(__name__, request, {
                "OMP_NUM_THREADS": str(other), "MXNET_OMP_MAX_THREADS": str(other)})
        except MemongerError as error:
            raise MemongerError("the control failed: %s" % error) from error
        with np.load(os.path.join(folder, _FOUND)) as arrays:
            values = iter([arrays["arr_%d" % i] for i in range(len(arrays.files))])
            return (here, other), [{name: next(values) for name in step} for step in steps]


def _run(request: Mapping[str, Any]) -> Any:
    """Train, write all values, and return the names of each step's."""
    symbol = of_kind(mxnet().sym.load_json(request["symbol"]), request["numpy"])
    training = Training(request["shapes"], request["steps"], None, request["grad_req"],
                        request["seed"], request["rate"])
    with np.load(os.path.join(request["folder"], _START)) as arrays:
        start: Dict[str, np.ndarray] = {name: arrays["arr_%d" % i]
                                        for i, name in enumerate(request["names"])}
    results = training.run(symbol, start, request["types"] or None)
    np.savez(os.path.join(request["folder"], _FOUND),
             *[value for step in results for value in step.values()])
    return [list(step) for step in results]


if __name__ == "__main__":
    answer(_run, first_line)
