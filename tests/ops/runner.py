"""Runs operators in processes of their own, in which MKLDNN is off, or on.

MXNet reads ``MXNET_MKLDNN_ENABLED`` once in a process, and "bit for bit" is promised without
MKLDNN. Only numbers travel between the processes.
"""
from __future__ import annotations

import os
import re
import zlib
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from multiprocessing import get_context
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple, Union

import numpy as np

Arrays = Dict[str, np.ndarray]
#: An operator and its attributes, or several in a row.
Chain = Sequence[Tuple[str, Mapping[str, Any]]]


@dataclass(frozen=True)
class Case:
    """One training bind: the chain of operators, its data, and what is asked of it."""

    chain: Chain
    shape: Tuple[int, ...]
    dtype: str = "float32"
    grad_req: str = "write"
    #: "normal", "ties" (small integers), "special" (with infinities and NaN), "positive".
    values: str = "normal"
    steps: int = 1
    seed: int = 0
    train: bool = True
    #: Overrides of arguments by name.
    arguments: Mapping[str, Any] = field(default_factory=dict)
    #: Whether the first operator may overwrite its input (a temporary in front of it).
    inner: bool = True
    device: str = "cpu"
    #: The gradient of the output; random numbers by default.
    head: Optional[np.ndarray] = None


def data(case: Case) -> np.ndarray:
    random = np.random.RandomState(case.seed)
    values = random.randn(*case.shape) * 2
    if case.values == "ties":
        values = random.randint(-3, 4, case.shape).astype("float64")
    elif case.values == "special":
        values.flat[::3] = 0
        values.flat[1::7] = -np.inf
        values.flat[2::11] = np.inf
        values.flat[3::13] = np.nan
    elif case.values == "positive":
        values = np.abs(values) + 0.1
    return values


def parameter(case: Case, name: str, shape: Sequence[int]) -> np.ndarray:
    """A value that depends on what the name says behind the op's: op0_gamma, op2_gamma, ..."""
    role = name.split("_", 1)[-1]
    random = np.random.RandomState([case.seed + 1, zlib.crc32(role.encode())])
    if role in ("beta", "bias", "weight"):
        return random.randn(*shape) * 0.3
    return random.uniform(0.5, 1.5, shape)


def build(chain: Chain, inner: bool = False):
    import mxnet as mx
    symbol = mx.sym.Variable("x") * 1.0 if inner else mx.sym.Variable("x")
    for index, (name, attributes) in enumerate(chain):
        symbol = getattr(mx.sym, name)(symbol, name="op%d" % index, **attributes)
    return symbol


def run(case: Case) -> Union[Arrays, str]:
    """Outputs, gradients, auxiliary states and the inference output; or MXNet's error text."""
    import mxnet as mx
    load_plugin()
    try:
        return _train(build(case.chain, case.inner), case)
    except (mx.base.MXNetError, RuntimeError) as error:
        _forget_errors()
        return str(error)


def load_plugin() -> None:
    """Load memonger's operators; in tests of GPU code, data in CPU memory goes there, too."""
    from memonger.mx.plugin import loading as native
    native.load()
    if os.environ.get("MEMONGER_TEST_GPU_CODE"):  # with the pretended driver of tests/gpu
        native._plugin.memonger_gpu_stand_in()


def gpu_gaps() -> List[str]:
    """Operators of ours, and gradients, that cannot run on a GPU."""
    import ctypes

    from mxnet.base import _LIB, py_str

    from memonger.mx.plugin import loading as native
    native.load()
    count, names = ctypes.c_uint(), ctypes.POINTER(ctypes.c_char_p)()
    _LIB.MXListAllOpNames(ctypes.byref(count), ctypes.byref(names))
    ours = [name for name in map(py_str, names[:count.value])
            if name.startswith(("memonger_", "_backward_memonger_"))]
    assert len(ours) > 20
    return [name for name in ours if not native._plugin.memonger_gpu_serves(name.encode())]


def _forget_errors() -> None:
    """An error of one asynchronous op comes back from those behind it; wait for all of them."""
    import mxnet as mx
    for _ in range(10):
        try:
            mx.nd.waitall()
        except mx.base.MXNetError:
            continue
        return


def _train(symbol, case: Case) -> Arrays:
    import mxnet as mx
    context = mx.Context(case.device)
    executor = symbol.simple_bind(context, grad_req=case.grad_req, type_dict={"x": case.dtype},
                                  x=case.shape)

    def fill(array, value) -> None:  # a copy: a pretended GPU cannot fill
        mx.nd.array(np.broadcast_to(value, array.shape), dtype=array.dtype).copyto(array)
    for name, array in sorted(executor.arg_dict.items()):
        value = data(case) if name == "x" else parameter(case, name, array.shape)
        fill(array, case.arguments.get(name, value))
    for name, array in executor.aux_dict.items():
        fill(array, 1 if name.endswith("var") else 0)
    if case.grad_req == "add":
        for array in executor.grad_dict.values():
            fill(array, 0.5)
    mx.random.seed(case.seed)
    result: Arrays = {}
    for step in range(case.steps):
        output = executor.forward(is_train=case.train)[0]
        head = case.head
        if head is None:
            head = np.random.RandomState(case.seed + 5 + step).randn(*output.shape)
        if case.grad_req != "null":
            executor.backward(mx.nd.array(head, dtype=output.dtype).as_in_context(context))
    result["output"] = output.asnumpy()
    for name, array in executor.grad_dict.items():
        if array is not None:
            result["gradient of " + name] = array.asnumpy()
    for name, array in executor.aux_dict.items():
        result["state " + name] = array.asnumpy()
    if not any("ropout" in name for name, _ in case.chain):
        result["inference"] = executor.forward(is_train=False)[0].asnumpy()
    return result


def _quiet(mkldnn: bool = False) -> None:
    os.environ["MXNET_MKLDNN_ENABLED"] = "1" if mkldnn else "0"
    os.environ["MXNET_STORAGE_FALLBACK_LOG_VERBOSE"] = "0"
    os.environ["MXNET_SUBGRAPH_BACKEND"] = "NONE"
    os.environ.setdefault("OMP_NUM_THREADS", "2")
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # others use the machine, too


_pools: Dict[bool, ProcessPoolExecutor] = {}


def call(function, *arguments, mkldnn: bool = False):
    """``function(*arguments)`` in the other process."""
    if mkldnn not in _pools:
        _pools[mkldnn] = ProcessPoolExecutor(1, mp_context=get_context("spawn"),
                                             initializer=_quiet, initargs=(mkldnn,))
    return _pools[mkldnn].submit(function, *arguments).result()


def same_bits(left: Arrays, right: Arrays) -> Optional[str]:
    """None, or what differs. NaN equals NaN; zeros have signs."""
    assert left.keys() == right.keys(), (sorted(left), sorted(right))
    for name in left:
        a, b = left[name], right[name]
        if a.dtype != b.dtype or a.shape != b.shape:
            return "%s: %s%s and %s%s" % (name, a.dtype, a.shape, b.dtype, b.shape)
        both_nan = np.isnan(a) & np.isnan(b)
        bits = "u%d" % a.dtype.itemsize
        wrong = (a.view(bits) != b.view(bits)) & ~both_nan
        if wrong.any():
            return "%s: %d of %d differ, such as %r and %r" % (name, wrong.sum(), a.size,
                                                               a[wrong][0], b[wrong][0])
    return None


def renamed(result: Arrays) -> Arrays:
    """Parameters are named after the op, which has another place in a fused chain."""
    return {re.sub("op[0-9]_", "op0_", name): value for name, value in result.items()}


def compare(stock: Chain, ours: Chain, mkldnn: bool = False, **fields) -> Optional[str]:
    """None, or what differs; both may be refused."""
    left, right = (call(run, Case(chain, **fields), mkldnn=mkldnn) for chain in (stock, ours))
    if isinstance(left, str) or isinstance(right, str):
        return None if type(left) is type(right) else "%s and %s" % (left, right)
    if ours[0][0] == "memonger_mask_relu":  # it passes the gradient of NaN, MXNet's makes it NaN
        passed = np.isnan(left["output"])
        for found in (left, right):
            if "gradient of x" in found:
                found["gradient of x"][passed] = 0
    return same_bits(renamed(left), renamed(right))


def error_against(result: Arrays, exact: Arrays) -> Dict[str, float]:
    """Largest error of each array relative to the exact one's largest value."""
    return {name: float(np.abs(result[name].astype("float64") - exact[name]).max() /
                        (np.abs(exact[name]).max() + 1e-300)) for name in exact}
