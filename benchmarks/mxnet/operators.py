"""``python -m benchmarks operators``: frugal operators beside MXNet's own: bytes kept, error, time.

For each variant and each of a few shapes it prints what backward keeps (both counted from the
bound graph), the largest error of outputs, gradients and states against the float64 run of MXNet's
ops, relative to the largest value, and the time of forward and backward: the median of runs in
which both take turns. A ratio below 1 means that ours is faster. Errors of a percent behind a ReLU
are single values next to zero that have another sign in float32 than in float64, in both operators.
Threads that wait for each other blur the times on a busy machine; ``OMP_NUM_THREADS=1`` helps.
"""
from __future__ import annotations

import json
import statistics
import time
from dataclasses import asdict, dataclass
from typing import Any, Dict, List, Mapping, Sequence, Tuple

from memonger.mx.plugin import loading as native
from memonger.mx.plugin.environment import mxnet
from memonger.mx.symbol.swap import swap_json
from memonger.report.formatting import markdown, shape_words
from memonger.util.errors import InputError
from memonger.util.units import format_bytes

#: Runs that a time is the median of, at least, and how long they go on, at least: short operators
#: run often.
REPEAT, SECONDS = 9, 0.6


@dataclass(frozen=True)
class Subject:
    """A variant on the chain of ops that it replaces."""

    variant: str
    #: Operator and attributes, first to last.
    chain: Tuple[Tuple[str, Mapping[str, Any]], ...]
    shapes: Tuple[Tuple[int, ...], ...]
    #: What tells it from other subjects of the variant.
    note: str = ""


_MAPS = ((8, 64, 56, 56), (8, 512, 7, 7))
_NORM = ("BatchNorm", {"fix_gamma": False})

SUBJECTS = (
    Subject("mask_relu", (("Activation", {"act_type": "relu"}),), _MAPS),
    Subject("mask_leaky_relu", (("LeakyReLU", {"slope": 0.1}),), _MAPS),
    Subject("mask_clip", (("clip", {"a_min": 0, "a_max": 6}),), _MAPS),
    Subject("mask_dropout", (("Dropout", {"p": 0.5}),), ((64, 4096), (8, 128, 768))),
    Subject("max_pool", (("Pooling", {"kernel": (3, 3), "stride": (2, 2), "pad": (1, 1),
                                      "pool_type": "max"}),),
            ((8, 64, 112, 112), (8, 192, 56, 56), (8, 832, 14, 14)), "3x3"),
    Subject("max_pool", (("Pooling", {"kernel": (2, 2), "stride": (2, 2), "pool_type": "max"}),),
            ((8, 512, 8, 8), (8, 256, 28, 28)), "2x2"),
    Subject("max_pool", (("Pooling", {"global_pool": True, "kernel": (1, 1),
                                      "pool_type": "max"}),), ((8, 64, 56, 56),), "global"),
    Subject("batch_norm_relu", (_NORM, ("Activation", {"act_type": "relu"})), _MAPS),
    Subject("bn_relu_convolution",
            (_NORM, ("Activation", {"act_type": "relu"}),
             ("Convolution", {"kernel": (3, 3), "pad": (1, 1), "num_filter": 64,
                              "no_bias": True})),
            ((8, 64, 56, 56), (8, 256, 14, 14))),
    *(Subject("bn_relu_convolution",
              (_NORM, ("Activation", {"act_type": "relu"}),
               ("Convolution", dict(window, num_filter=64, no_bias=True))),
              ((8, 256, 14, 14), (32, 512, 7, 7)), note)
      for note, window in (("1x1", {"kernel": (1, 1)}),
                           ("3x3 in steps of 2", {"kernel": (3, 3), "stride": (2, 2),
                                                  "pad": (1, 1)}))),
    Subject("split_convolution",
            (("Convolution", {"kernel": (3, 3), "pad": (1, 1), "num_filter": 64,
                              "no_bias": True}),),
            ((8, 64, 56, 56), (8, 256, 14, 14))),
    Subject("inplace_batch_norm", (_NORM,), _MAPS),
    Subject("inplace_batch_norm_leaky", (_NORM, ("LeakyReLU", {"slope": 0.1})), _MAPS),
    Subject("layer_norm", (("LayerNorm", {}),), ((8, 128, 768), (4, 256, 1024))),
    *(Subject("output_" + name, (("Activation", {"act_type": name}),), _MAPS)
      for name in ("sigmoid", "tanh")),
    Subject("output_gelu", (("LeakyReLU", {"act_type": "gelu"}),), _MAPS),
    Subject("concat", (("Concat", {"dim": 1}),), _MAPS),
    Subject("avg_pool", (("Pooling", {"kernel": (2, 2), "stride": (2, 2), "pool_type": "avg"}),),
            ((8, 64, 56, 56), (8, 1024, 14, 14))),
)


@dataclass(frozen=True)
class Row:
    """One line of the table; pairs are (MXNet's, ours)."""

    variant: str
    shape: Tuple[int, ...]
    kept_bytes: Tuple[int, int]
    errors: Tuple[float, float]
    forward_s: Tuple[float, float]
    backward_s: Tuple[float, float]
    note: str = ""


def build(subject: Subject) -> Tuple[Any, Any]:
    """MXNet's symbol and ours, on an input that both may overwrite."""
    mx = mxnet()
    symbol = mx.sym.Variable("data") * 1.0
    for place, (kind, attributes) in enumerate(subject.chain):
        inputs = [symbol, symbol + 1.0] if kind == "Concat" else [symbol]
        symbol = getattr(mx.sym, kind)(*inputs, name="op%d" % place, **attributes)
    last = "op%d" % (len(subject.chain) - 1)
    return symbol, mx.sym.load_json(
        swap_json(symbol.tojson(), {last: subject.variant}))


class _Bound:
    """A training bind with fixed values."""

    def __init__(self, symbol: Any, shape: Sequence[int], dtype: str):
        import numpy as np
        mx = mxnet()
        self.executor = symbol.simple_bind(mx.cpu(), type_dict={"data": dtype}, data=tuple(shape))
        random = np.random.RandomState(0)
        for name, array in sorted(self.executor.arg_dict.items()):
            value = (random.randn(*array.shape) * 2 if name == "data"
                     else random.uniform(0.5, 1.5, array.shape))
            array[:] = mx.nd.array(value.astype("float32"), dtype=array.dtype)
        for name, array in self.executor.aux_dict.items():
            array[:] = 1 if name.endswith("var") else 0
        mx.random.seed(0)
        output = self.executor.forward(is_train=True)[0]
        head = np.random.RandomState(1).randn(*output.shape).astype("float32")
        self.head = mx.nd.array(head, dtype=output.dtype)
        self.executor.backward(self.head)
        self.first = {"output": output.asnumpy()}
        self.first.update({k: v.asnumpy() for k, v in self.executor.grad_dict.items()})
        self.first.update({k: v.asnumpy() for k, v in self.executor.aux_dict.items()})

    def step(self) -> Tuple[float, float]:
        """Seconds of one forward and one backward."""
        mx = mxnet()
        mx.nd.waitall()
        start = time.perf_counter()
        self.executor.forward(is_train=True)
        mx.nd.waitall()
        middle = time.perf_counter()
        self.executor.backward(self.head)
        mx.nd.waitall()
        return middle - start, time.perf_counter() - middle


def kept_bytes(symbol: Any, shape: Sequence[int]) -> int:
    """Bytes of what forward makes and backward reads; parameters, states and inputs apart.

    Counted on the graph that MXNet binds, each tensor once.
    """
    from memonger.mx.capture.record import read
    graph = read(symbol, shapes={"data": tuple(shape)}).graph
    kept = set()
    for op in graph.ops:
        if not op.is_backward:
            continue
        for position, tensor in enumerate(op.inputs):
            producer = graph.tensors[tensor].producer
            if position not in op.ignored_inputs and producer >= 0 and \
                    not graph.ops[producer].is_backward:
                kept.add(tensor)
    return sum(graph.tensors[tensor].size_bytes for tensor in kept)


def _error(found: Dict[str, Any], exact: Dict[str, Any]) -> float:
    import numpy as np
    return max(float(np.abs(found[name].astype("float64") - exact[name]).max() /
                     (np.abs(exact[name]).max() + 1e-300)) for name in exact)


def measure(subject: Subject, shape: Sequence[int], repeat: int = REPEAT,
            seconds: float = SECONDS) -> Row:
    """One row of the table."""
    stock, ours = build(subject)
    exact = _Bound(stock, shape, "float64").first
    pair = [_Bound(symbol, shape, "float32") for symbol in (stock, ours)]
    # Random streams differ between dtypes: dropout is compared with MXNet's float32.
    if subject.variant == "mask_dropout":
        exact = {name: value.astype("float64") for name, value in pair[0].first.items()}
    errors = (_error(pair[0].first, exact), _error(pair[1].first, exact))
    times: List[List[Tuple[float, float]]] = [[], []]
    end = time.perf_counter() + seconds
    while len(times[0]) < repeat or time.perf_counter() < end:
        for which in ((0, 1) if len(times[0]) % 2 == 0 else (1, 0)):
            times[which].append(pair[which].step())
    middle = [[statistics.median(t[part] for t in times[which]) for part in (0, 1)]
              for which in (0, 1)]
    return Row(subject.variant, tuple(shape), (kept_bytes(stock, shape), kept_bytes(ours, shape)),
               errors, (middle[0][0], middle[1][0]), (middle[0][1], middle[1][1]), subject.note)


def table(rows: Sequence[Row]) -> str:
    """The rows as Markdown."""
    lines: List[Sequence[str]] = []
    for row in rows:
        times = [words for theirs_s, ours_s in (row.forward_s, row.backward_s) for words in (
            "%.2f, %.2f" % (theirs_s * 1e3, ours_s * 1e3), "%.2f" % (ours_s / theirs_s))]
        lines.append((row.variant + (" " + row.note if row.note else ""), shape_words(row.shape),
                      *map(format_bytes, row.kept_bytes), *("%.1e" % e for e in row.errors),
                      *times))
    return markdown(("variant", "shape", "kept by MXNet", "by ours", "error of MXNet", "of ours",
                     "forward, ms", "ratio", "backward, ms", "ratio"), "<<>>>>>>>>", lines)


def main(names: Sequence[str], as_json: bool = False) -> int:
    """Print the table; ``names`` are variants, none: all."""
    known = list(dict.fromkeys(subject.variant for subject in SUBJECTS))
    for name in names:
        if name not in known:
            raise InputError("no variant %r in this table; there are %s"
                             % (name, ", ".join(known)))
    native.load()
    rows = [measure(subject, shape) for subject in SUBJECTS if subject.variant in (names or known)
            for shape in subject.shapes]
    print(json.dumps([asdict(row) for row in rows], indent=2) if as_json else table(rows))
    return 0
