"""Launches of every kernel with what must come out, computed by NumPy.

All values are exact but gelu's, which are compared with float64 within the limits that
docs/OPERATORS.md states.
"""
from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Dict, Iterable, Iterator, List, Mapping, Sequence, Tuple

import numpy as np

from .sources import BITS, blocks, constants, divider, structs

NULL, WRITE, ADD = 0, 1, 3
#: Element counts around the edges of bytes, vectors, warps and blocks.
EDGES = (1, 7, 8, 31, 33, 255, 256, 257, 2047, 2049, 65537)


@dataclass(frozen=True)
class Out:
    """Memory that a kernel writes: what is there before and after, and how far off it may be."""

    before: np.ndarray
    after: np.ndarray
    absolute: float = 0.0


@dataclass(frozen=True)
class Case:
    """One launch."""

    kernel: str
    dtype: str
    blocks: int
    #: By parameter: an array to read, an :class:`Out`, or a scalar. A name stands for the memory of
    #: another parameter.
    arguments: Mapping[str, Any]
    #: What is special about it.
    label: str = ""

    def __str__(self) -> str:
        return "%s %s %s" % (self.kernel, self.dtype, self.label)


def values(count: int, dtype: str, seed: int = 0) -> np.ndarray:
    """Normal numbers with zeros of both signs, infinities, NaN and denormal numbers among them."""
    found = np.random.RandomState(seed).randn(count).astype(dtype)
    small = float(np.finfo(dtype).tiny) / 4
    for place, value in enumerate((0.0, -0.0, math.inf, -math.inf, math.nan, small, -small)):
        found[place::29 + place] = value
    return found


def _added(before: np.ndarray, result: np.ndarray, request: int) -> np.ndarray:
    if request == NULL:
        return before
    return before + result if request == ADD else result


def _bits(passes: np.ndarray) -> np.ndarray:
    return np.packbits(passes, bitorder="little")


def _elements(count: int) -> int:
    return blocks(count, constants()["kElements"])


def _garbage(count: int, dtype: str = "uint8") -> np.ndarray:
    return np.full(count * np.dtype(dtype).itemsize, 0xA5, np.uint8).view(dtype)


# ---------------------------------------------------------------------- activations
def activations(count: int, dtype: str, request: int, in_place: bool) -> Iterator[Case]:
    """relu, leaky relu and clip, forward and backward."""
    x, slope, low, high = values(count, dtype), np.float32(0.25), np.float32(-0.5), np.float32(1)
    before = x if in_place else values(count, dtype, 1)
    label = "%d elements, request %d%s" % (count, request, ", in place" * in_place)
    low_, high_ = (np.asarray(v).astype(dtype) for v in (low, high))
    results = {
        "relu_forward": ((), ~(x <= 0), np.where(x <= 0, x.dtype.type(0), x)),
        "leaky_relu_forward": ((slope,), x > 0, np.where(
            x > 0, x, (x.astype("float32") * slope).astype(dtype))),
        "clip_forward": ((low, high), ~((x > high_) | (x < low_)), np.where(
            x > high_, high_, np.where(x < low_, low_, x))),
    }
    names = {"leaky_relu_forward": ("slope",), "clip_forward": ("low", "high")}
    for kernel, (scalars, passes, result) in results.items():
        y = Out(before, _added(before, result, request))
        yield Case(kernel, dtype, _elements(count), {
            "x": "y" if in_place else x, "y": y,
            "mask": Out(_garbage((count + 7) // 8), _bits(passes)), "count": count,
            "request": request, **dict(zip(names.get(kernel, ()), map(float, scalars)))}, label)
    open_ = np.random.RandomState(2).rand(count) < 0.5
    for kernel, extra, result in (
            ("leaky_relu_backward", {"slope": float(slope)},
             x * np.where(open_, 1, slope).astype(dtype)),
            ("leaky_relu_backward", {"slope": 0.0}, x * open_.astype(dtype)),
            ("clip_backward", {}, np.where(open_, x, x.dtype.type(0)))):
        yield Case(kernel, dtype, _elements(count), {
            "dy": "dx" if in_place else x, "mask": _bits(open_),
            "dx": Out(before, _added(before, result, request)), "count": count,
            "request": request, **extra}, label)


# ---------------------------------------------------------------------- dropout
STATE = np.dtype([("counter", "u4", 4), ("output", "u4", 4), ("key", "u4", 2), ("used", "u4"),
                  ("flags", "i4", 2), ("spare_float", "f4"), ("spare_double", "f8")])
_LOW = np.uint64(0xFFFFFFFF)


def philox(counter: np.ndarray, key: np.ndarray) -> np.ndarray:
    """Philox 4x32-10 (Salmon et al., 2011) of counters (n, 4) and keys (n, 2)."""
    c, k = counter.astype(np.uint64), key.astype(np.uint64)
    for _ in range(10):
        first = np.uint64(0xD2511F53) * c[:, 0]
        second = np.uint64(0xCD9E8D57) * c[:, 2]
        c = np.stack([second >> np.uint64(32) ^ c[:, 1] ^ k[:, 0], second & _LOW,
                      first >> np.uint64(32) ^ c[:, 3] ^ k[:, 1], first & _LOW], axis=1)
        k = k + np.array([0x9E3779B9, 0xBB67AE85], np.uint64) & _LOW
    return c.astype(np.uint32)


def states(count: int, seed: int, skipped: Any) -> np.ndarray:
    """What ``curand_init(seed, i, 0, states + i)`` makes, ``skipped`` numbers later.

    The sequence number is in the counter, whose lower half is just below a carry.
    """
    found = np.zeros(count, STATE)
    found["counter"][:, 2], found["key"][:, 0] = np.arange(count), seed
    low = 0xFFFFFFFE + np.asarray(skipped, "int64") // 4
    found["counter"][:, 0], found["counter"][:, 1] = low & 0xFFFFFFFF, low >> 32
    found["used"] = skipped % 4
    found["output"] = philox(found["counter"], found["key"])
    return found


def _uniform(words: np.ndarray, dtype: str) -> np.ndarray:
    """In [0, 1): one minus cuRAND's number, whose product and sum are rounded once."""
    if dtype == "float64":
        # Exact in long double but for a last bit that the rounding to float32 does not see.
        unit = np.longdouble(2.3283064365386963e-10)
        return (1 - (words * unit + unit).astype("float64")).astype("float32")
    unit = np.float32(2.3283064e-10)
    number = (words.astype("float32").astype("float64") * float(unit)
              + float(unit / np.float32(2))).astype("float32")
    return np.float32(1) - number


def dropout(count: int, dtype: str, request: int, in_place: bool) -> Iterator[Case]:
    """Forward with cuRAND's numbers, backward, and forward in inference."""
    shape = constants()
    keep, skipped = np.float32(0.7), count % 4
    used = min(-(-count // 64), 32768)
    step = -(-count // used)
    used = -(-count // step)
    x = values(count, dtype)
    before = x if in_place else values(count, dtype, 1)
    label = "%d elements, request %d%s" % (count, request, ", in place" * in_place)
    first = states(used, 5, skipped)
    drawn = np.minimum(step, count - step * np.arange(used))
    # Numbers of all states: whole blocks of four from each counter on, without those skipped.
    depth = (skipped + step + 3) // 4
    low = first["counter"][:, :1].astype(np.uint64) + np.arange(depth, dtype=np.uint64)
    counters = np.repeat(first["counter"][:, None, :], depth, axis=1)
    counters[:, :, 0], carry = low & _LOW, low >> np.uint64(32)
    counters[:, :, 1] += carry.astype(np.uint32)
    words = philox(counters.reshape(-1, 4), np.repeat(first["key"], depth, axis=0))
    words = words.reshape(used, -1)[:, skipped:skipped + step].reshape(-1)[:count]
    last = states(used, 5, skipped + drawn)
    passes = _uniform(words, dtype) <= keep
    factors = (np.asarray(np.float32(1) / keep).astype(dtype), np.asarray(0, dtype))
    mask = np.concatenate([np.ones(1, np.uint8), _bits(passes)])
    result = x * np.where(passes, *factors)
    pointwise = {"count": count, "request": request}
    scalars = {"kept_factor": float(factors[0]), "dropped_factor": 0.0}
    if request != NULL:
        yield Case("dropout_forward", dtype, -(-used // shape["kStatesOfBlock"]), {
            **pointwise, **scalars, "x": "y" if in_place else x,
            "y": Out(before, _added(before, result, request)),
            "mask": Out(_garbage(len(mask)), mask), "keep": float(keep), "step": step,
            "states": Out(first.view(np.uint64), last.view(np.uint64))}, label)
    for kept, passed in ((mask, result), (np.concatenate([[np.uint8(0)], mask[1:]]), x)):
        yield Case("dropout_backward", dtype, _elements(count), {
            **pointwise, **scalars, "dy": "dx" if in_place else x, "mask": kept,
            "dx": Out(before, _added(before, passed, request))}, label)
    left = _garbage(len(mask))
    yield Case("dropout_pass", dtype, _elements(count), {
        **pointwise, "x": "y" if in_place else x, "y": Out(before, _added(before, x, request)),
        "mask": Out(left, np.concatenate([[np.uint8(0)], left[1:]]))}, label)


# ---------------------------------------------------------------------- gelu
#: How far the derivative may be off, and y.
_GELU = {"float32": (6e-7, 2e-7), "float64": (4e-7, 5e-8), "float16": (4e-3, 1e-3)}


def gelu(count: int, dtype: str, request: int, in_place: bool) -> Iterator[Case]:
    """Forward, then backward from what the formulas say that forward keeps."""
    x = np.linspace(-9, 5, count).astype(dtype)
    x[count // 2:] = (-0.7517915 + np.linspace(-1e-3, 1e-3, count - count // 2)).astype(dtype)
    exact = x.astype("float64")
    erf = np.array([math.erf(v / math.sqrt(2)) for v in exact])
    of_slope, of_y = _GELU[dtype]
    y = (exact * (1 + erf) / 2).astype(dtype)
    slope = (1 + erf) / 2 + exact * np.exp(-exact * exact / 2) / math.sqrt(2 * math.pi)
    before = x if in_place else values(count, dtype, 1)
    label = "%d elements%s" % (count, ", in place" * in_place)
    # What a byte holds is known to the formulas alone: backward reads forward's memory.
    yield Case("gelu_forward", dtype, _elements(count), {
        "x": "y" if in_place else x, "y": Out(before, y, of_y * (1 + np.abs(y).max())),
        "bytes": Out(_garbage(count), _garbage(count), 255), "count": count}, label)
    ones = np.ones(count, dtype)
    old = ones if in_place else np.linspace(-1, 1, count).astype(dtype)
    yield Case("gelu_backward", dtype, _elements(count), {
        "dy": "dx" if in_place else ones, "y": ("gelu_forward", "y"),
        "bytes": ("gelu_forward", "bytes"),
        "dx": Out(old, _added(old, slope.astype(dtype), request), of_slope), "count": count,
        "request": request}, label + ", request %d" % request)


# ---------------------------------------------------------------------- max pooling
@dataclass(frozen=True)
class Pooling:
    """Sizes of a pooling: three axes, absent ones of size and window 1."""

    rows: int
    size: Tuple[int, int, int]
    window: Tuple[int, int, int]
    stride: Tuple[int, int, int]
    pad: Tuple[int, int, int] = (0, 0, 0)
    channels: int = 1
    #: Numbers in words, as for windows of more than 255 elements, and where MXNet asks for their
    #: type before it knows the window.
    words: bool = False

    @property
    def output(self) -> Tuple[int, int, int]:
        d, h, w = ((s + 2 * p - k) // t + 1 for s, p, k, t in
                   zip(self.size, self.pad, self.window, self.stride))
        return d, h, w

    @property
    def row_size(self) -> int:
        return math.prod(self.output) * self.channels

    def struct(self) -> Any:
        """The kernels' argument."""
        shape, kinds = constants(), structs()
        pool, volume = kinds["Pool"](), math.prod(self.window)
        for axis in range(3):
            pool.size[axis], pool.window[axis] = self.size[axis], self.window[axis]
            pool.pad[axis], pool.output[axis] = self.pad[axis], self.output[axis]
            pool.stride[axis] = divider(self.stride[axis])
            pool.outputs[axis] = divider(self.output[axis])
            pool.sizes[axis] = divider(self.size[axis])
        pool.channels = divider(self.channels)
        pool.groups = divider(-(-self.row_size // shape["kOutputsOfThread"]))
        pool.segments = divider(-(-self.size[2] * self.channels // shape["kInputsOfThread"]))
        pool.paired, pool.words = volume <= 15, self.words or volume > 255
        return pool


#: Windows that overlap and do not, padded, with gaps, one for a word, channels last, three axes.
POOLINGS: Sequence[Pooling] = (
    Pooling(3, (1, 8, 8), (1, 2, 2), (1, 2, 2)),
    Pooling(5, (1, 9, 11), (1, 3, 3), (1, 2, 2), (0, 1, 1)),
    Pooling(2, (1, 7, 7), (1, 7, 7), (1, 1, 1)),
    Pooling(2, (1, 10, 13), (1, 2, 2), (1, 3, 4)),
    Pooling(2, (1, 17, 16), (1, 16, 16), (1, 1, 1)),
    Pooling(3, (1, 3, 5), (1, 3, 5), (1, 1, 1), words=True),
    Pooling(3, (1, 5, 5), (1, 5, 5), (1, 1, 1), channels=3, words=True),
    Pooling(4, (1, 9, 11), (1, 3, 3), (1, 2, 2), (0, 1, 1), channels=7),
    Pooling(4, (5, 6, 7), (2, 3, 2), (2, 1, 2), (1, 1, 0), channels=4),
    Pooling(1, (1, 1, 40), (1, 1, 5), (1, 1, 3), (0, 0, 2)),
)


def random_poolings(count: int, seed: int = 0) -> List[Pooling]:
    """Poolings of any shape, some with padding, gaps between windows, channels last or words."""
    random = np.random.RandomState(seed)

    def three(least: Sequence[int], end: Sequence[int]) -> Tuple[int, int, int]:
        a, b, c = (int(random.randint(low, high)) for low, high in zip(least, end))
        return a, b, c

    found: List[Pooling] = []
    for _ in range(count):
        size = three((1, 1, 1), (4, 14, 20))
        window = three((1, 1, 1), [min(n, 6) + 1 for n in size])
        found.append(Pooling(int(random.randint(1, 6)), size, window, three((1, 1, 1), (5, 5, 5)),
                             three((0, 0, 0), [n // 2 + 1 for n in window]),
                             int(random.choice([1, 1, 2, 3, 5, 8])), bool(random.rand() < 0.2)))
    return found


def random_counts(count: int, seed: int = 0) -> Tuple[int, ...]:
    """Numbers of elements, small and large ones alike."""
    return tuple(int(n) for n in 2 ** np.random.RandomState(seed).uniform(0, 15, count))


def max_pool(pooling: Pooling, dtype: str, request: int) -> Iterator[Case]:
    """Forward and backward of one pooling."""
    s, smallest = pooling, np.finfo(dtype).min
    random = np.random.RandomState(0)
    x = random.randint(-3, 4, (s.rows, *s.size, s.channels)).astype(dtype)  # with ties
    flat = x.reshape(-1)
    flat[::13], flat[5::31], flat[7::37] = -math.inf, math.nan, smallest
    x[0, :, :, :s.window[2]], x[-1, :, :s.window[1]] = -math.inf, smallest
    x[1:-1, :, :1, :1] = -math.inf
    shape = (s.rows, *s.output, s.channels)
    y, number = np.full(shape, smallest, dtype), np.full(shape, -1, "int32")
    source = np.full(shape, -1, "int64")
    grid = np.meshgrid(*(np.arange(n) for n in s.output), indexing="ij")
    for again in (False, True):  # the second time: the smallest number itself
        for k, offset in enumerate(np.ndindex(*s.window)):
            at = [g * t - p + o for g, t, p, o in zip(grid, s.stride, s.pad, offset)]
            valid = np.logical_and.reduce([(a >= 0) & (a < n) for a, n in zip(at, s.size)])
            place = np.ravel_multi_index([np.clip(a, 0, n - 1) for a, n in zip(at, s.size)],
                                         s.size)
            found = x.reshape(s.rows, -1, s.channels)[:, place]
            with np.errstate(invalid="ignore"):
                better = (number < 0) & (found == smallest) if again else found > y
            better &= valid[None, ..., None]
            y[better], number[better] = found[better], k
            source = np.where(better, place[None, ..., None], source)
    numbers, struct = number.reshape(s.rows, -1), pooling.struct()
    if struct.paired:
        numbers = np.pad(numbers & 15, ((0, 0), (0, numbers.shape[1] % 2)))
        numbers = numbers[:, ::2] | numbers[:, 1::2] << 4
    kept = numbers.astype("int32" if struct.words else "uint8")
    before = values(y.size, dtype, 1)
    label = "%s, request %d" % (pooling, request)
    common: Dict[str, Any] = {"row_size": s.row_size, "request": request, "s": struct}
    yield Case("max_pool_forward", dtype, blocks(s.rows * struct.groups.by, 1), {
        **common, "x": x, "rows": s.rows, "kept": Out(_garbage(kept.nbytes).view(kept.dtype), kept),
        "y": Out(before, _added(before, y.reshape(-1), request))}, label)
    dy = random.randn(*shape).astype(dtype)
    old = values(x.size, dtype, 2)
    old[~np.isfinite(old)] = 1
    dx = old.copy() if request == ADD else np.zeros(x.size, dtype)
    row, _, _, _, channel = np.indices(shape)
    target = (row * math.prod(s.size) + source) * s.channels + channel
    np.add.at(dx, target[source >= 0], dy[source >= 0])  # one after the other, as outputs come
    lines = s.rows * s.size[0] * s.size[1]
    yield Case("max_pool_backward", dtype, blocks(lines * struct.segments.by, 1), {
        **common, "dy": dy, "kept": kept, "lines": lines, "dx": Out(old, dx)}, label)


def all_cases(counts: Sequence[int] = EDGES,
              dtypes: Iterable[str] = tuple(BITS),
              poolings: Sequence[Pooling] = POOLINGS) -> Iterator[List[Case]]:
    """Every kernel; cases of one list are run in order, and may read what the one before made."""
    with np.errstate(invalid="ignore", over="ignore"):  # infinity times 0
        for dtype in dtypes:
            for count in counts:
                for request, in_place in ((NULL, False), (WRITE, False), (WRITE, True),
                                          (ADD, False)):
                    for case in (*activations(count, dtype, request, in_place),
                                 *dropout(count, dtype, request, in_place)):
                        yield [case]
                    if request != NULL:
                        yield list(gelu(count, dtype, request, in_place))
            for pooling in poolings:
                for request in (WRITE, ADD):
                    for case in max_pool(pooling, dtype, request):
                        yield [case]
