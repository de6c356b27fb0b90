"""Op times of this CPU: each kind of op measured once, in a small network of common layers."""
from __future__ import annotations

import json
import os
from dataclasses import replace
from typing import Any, Dict, List, Optional

from ...plans.plan import NOT_OF_THIS_MACHINE
from ...report.formatting import counted
from ...util import machine
from ...util.devices import DEVICES
from ...util.errors import MemongerError
from ...util.files import write_whole
from ..costs.models import Roofline, op_class, roofline
from ..costs.profile_files import default_path
from ..costs.work import TensorType
from ..plugin.environment import logger, mxnet
from .run import circumstances, step_times

_KIND, _SCHEMA = "memonger calibration", 3
#: Shapes of small and of large tensors, and how often they run: the least time counts, which other
#: work on the machine disturbs least.
_SIZES = (((2, 32, 56, 56), 5), ((4, 32, 64, 64), 4))
_LIMIT_S = 40.0
#: Classes that take less in total are left out: noise hides their times.
_LEAST_S = 1e-4


def calibrated(ctx: Any = None) -> Roofline:
    """The roofline model with the share of its speed that each kind of op reaches on this CPU.

    Measured in a few seconds, and stored beside the profiles for the same CPU, threads, switches
    and versions. On a busy machine threads wait for each other, and ops seem to take up to fifty
    times their time: then the ``cpu`` preset is used, and the next process on an idle machine
    measures.
    """
    from ...util.version import __version__
    facts = {**circumstances(ctx), "memonger": __version__}
    folder, name = os.path.split(default_path(facts))
    path = os.path.join(folder, "calibration-" + name)
    factors = _stored(path, facts)
    if factors is None:
        if machine.is_busy():
            logger.info("other programs keep this CPU busy; it is not measured now")
            return replace(roofline("cpu"), name="a common CPU" + NOT_OF_THIS_MACHINE[0],
                           stands_in=True)
        factors = _measured(ctx)
        try:
            os.makedirs(folder, exist_ok=True)
            write_whole(path, json.dumps({"kind": _KIND, "schema": _SCHEMA, "facts": facts,
                                          "factors": factors}, indent=1, sort_keys=True) + "\n")
        except (OSError, MemongerError) as error:
            logger.info("the measured speed of this CPU cannot be stored: %s", error)
    return _model(factors, facts)


def _model(factors: Dict[str, float], facts: Dict[str, Any]) -> Roofline:
    return Roofline(DEVICES["cpu"], factors, "this CPU, " + counted(facts["threads"], "thread"))


def _stored(path: str, facts: Dict[str, Any]) -> Optional[Dict[str, float]]:
    """The factors stored for these circumstances; None where there are none, or damaged ones."""
    try:
        with open(path, encoding="utf-8") as file:
            data = json.load(file)
        factors = {str(name): float(value) for name, value in data["factors"].items()}
        if data["kind"] == _KIND and data["schema"] == _SCHEMA and data["facts"] == facts and all(
                0 < value < float("inf") for value in factors.values()):
            return factors
    except (OSError, UnicodeDecodeError, ValueError, KeyError, TypeError, AttributeError):
        pass
    return None


def _measured(ctx: Any) -> Dict[str, float]:
    """Measured by expected time of each class of ops, variants included."""
    logger.info("measuring the speed of this CPU, once; it takes some seconds")
    times: Dict[str, float] = {}
    for shape, runs in _SIZES:
        times.update(step_times(_network(), {"data": shape}, ctx, _LIMIT_S, runs))
    fused = {key: seconds for key, seconds in times.items() if "bn_relu_convolution" in key}
    cpu = DEVICES["cpu"]
    plain = _factors({key: times[key] for key in set(times) - set(fused)}, Roofline(cpu))
    return {**_factors(fused, Roofline(cpu, plain)), **plain}


def _factors(times: Dict[str, float], expected: Roofline) -> Dict[str, float]:
    """Measured by expected time of each class of ops; convolutions inside have theirs."""
    sums: Dict[str, List[float]] = {}
    for key, seconds in times.items():
        kind, attributes, inputs, outputs, wanted = json.loads(key)
        read, made = ([TensorType(tuple(shape), dtype) for shape, dtype in tensors]
                      for tensors in (inputs, outputs))
        names = op_class(kind, attributes, read + made)
        inside_s, guess_s = expected.parts_s(kind, attributes, read, made,
                                             [w == "1" for w in wanted])
        for name in [n for n in names if n.endswith(" large")] or names:
            total = sums.setdefault(name, [0.0, 0.0])
            total[0] += max(seconds - inside_s, seconds / 10)
            total[1] += guess_s
    return {name: float("%.3g" % (seconds / guess_s))
            for name, (seconds, guess_s) in sorted(sums.items()) if guess_s > _LEAST_S}


def _network() -> Any:
    """Layers as convolutional networks have them; variants that they allow are measured, too."""
    sym = mxnet().sym

    def convolution(x: Any, kernel: int, filters: int = 32, **options: Any) -> Any:
        return sym.Convolution(x, kernel=(kernel, kernel), pad=(kernel // 2, kernel // 2),
                               num_filter=filters, no_bias=True, **options)

    def norm_relu(x: Any) -> Any:
        return sym.Activation(sym.BatchNorm(x, fix_gamma=False), act_type="relu")

    with mxnet().name.NameManager():
        value = norm_relu(convolution(norm_relu(convolution(sym.var("data"), 3)), 3))
        value = norm_relu(convolution(value, 1))
        value = sym.relu(value + sym.BatchNorm(convolution(value, 3), fix_gamma=False))
        value = sym.concat(value, norm_relu(convolution(norm_relu(value), 1)), dim=1)
        value = sym.relu(sym.Convolution(value, kernel=(3, 3), pad=(1, 1), num_filter=32))
        value = sym.clip(sym.BatchNorm(convolution(value, 3, num_group=32)), a_min=0, a_max=6)
        value = sym.Pooling(sym.LeakyReLU(convolution(value, 1), slope=0.1), kernel=(3, 3),
                            pad=(1, 1), stride=(2, 2), pool_type="max")
        value = sym.Pooling(norm_relu(convolution(value, 3, 64)), kernel=(2, 2), stride=(2, 2),
                            pool_type="avg")
        value = sym.FullyConnected(sym.Flatten(value), num_hidden=256)
        value = sym.FullyConnected(sym.Dropout(sym.relu(value)), num_hidden=10)
        return sym.SoftmaxOutput(value, name="softmax")
