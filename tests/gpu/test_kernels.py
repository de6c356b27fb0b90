"""CUDA kernels without MXNet: they compile for every architecture, and agree with NumPy.

Emulated on the CPU, and with ``-m gpu`` on any device that has a driver, also on those that MXNet's
own kernels do not run on.
"""
from __future__ import annotations

import ctypes
import os
import re

import numpy as np
import pytest

from gpu import pretend
from gpu.nvrtc import SOURCES, TYPES, Device, architectures, compile_kernels, find_nvrtc

NVRTC = find_nvrtc()
FILES = sorted(path.name for path in SOURCES.glob("*.cu"))
NULL, WRITE, ADD = 0, 1, 3
LONG, INT, FLOAT, DOUBLE = ctypes.c_longlong, ctypes.c_int, ctypes.c_float, ctypes.c_double


@pytest.mark.skipif(NVRTC is None, reason="no NVRTC; pip install nvidia-cuda-nvrtc-cu11")
@pytest.mark.parametrize("bits", TYPES.values())
@pytest.mark.parametrize("file", FILES)
def test_compiles_for_every_architecture(file, bits):
    names = re.findall(r'extern "C" __global__ void (\w+)', (SOURCES / file).read_text())
    assert names
    found = architectures(NVRTC)
    assert 80 in found and 90 in found
    for architecture in found:
        code = compile_kernels(NVRTC, SOURCES / file, bits, architecture)
        assert code[:4] == b"\x7fELF"
        for name in names:
            assert name.encode() in code


@pytest.fixture(scope="module", params=["emulated", pytest.param("device",
                                                                 marks=pytest.mark.gpu)])
def device(request):
    if request.param == "device":
        if NVRTC is None:
            pytest.skip("no NVRTC; pip install nvidia-cuda-nvrtc-cu11")
        try:
            yield Device()
        except OSError:
            pytest.skip("no CUDA driver")
        return
    folder = request.getfixturevalue("driver_folder")
    before = os.environ.get("PRETEND_EMULATE")
    os.environ["PRETEND_EMULATE"] = pretend.environment(folder)["PRETEND_EMULATE"]
    yield Device(str(folder / "libcuda.so.1"), ctypes.CDLL(str(folder / "libnvrtc.so.11.2")))
    if before is None:
        del os.environ["PRETEND_EMULATE"]
    else:
        os.environ["PRETEND_EMULATE"] = before


def grid(count):
    return (count + 255) // 256, 256


def bits_of(passes):
    return np.packbits(passes, bitorder="little")


def dtype_of(value, like):
    return like.dtype.type(value)


@pytest.mark.parametrize("request_kind", [WRITE, ADD])
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("count", [1, 31, 32, 1000, 65537])
def test_gates(device, count, dtype, request_kind):
    random = np.random.RandomState(0)
    x, dy, old = (random.randn(count).astype(dtype) for _ in range(3))
    x[::5] = 0
    base = old if request_kind == ADD else 0 * old
    slope = np.float32(0.25)
    below = (x.astype("float32") * slope).astype(dtype)  # in float32 whatever the dtype
    cases = {
        "relu_forward": ((), x > 0, np.where(x > 0, x, 0)),
        "leaky_relu_forward": ((FLOAT(slope),), x > 0, np.where(x > 0, x, below)),
        "clip_forward": ((FLOAT(-0.5), FLOAT(1)), (x >= -0.5) & (x <= 1), np.clip(x, -0.5, 1)),
    }
    for name, (extra, passes, expected) in cases.items():
        kernel = device.kernel("gate.cu", name, TYPES[dtype])
        mask, target = device.put(np.zeros((count + 7) // 8, "uint8")), device.put(old)
        device.launch(kernel, *grid(count), device.put(x), target, mask, LONG(count),
                      INT(request_kind), *extra)
        assert np.array_equal(device.get(mask, [(count + 7) // 8], "uint8"), bits_of(passes)), name
        found = device.get(target, [count], dtype)
        assert np.allclose(found, base + expected, rtol=2e-3 if dtype == "float16" else 1e-6), name
    mask = device.put(bits_of(x > 0))
    for name, extra, factor in (("gate_backward", (FLOAT(slope),), slope),
                                ("clip_backward", (), 0)):
        target = device.put(old)
        device.launch(device.kernel("gate.cu", name, TYPES[dtype]), *grid(count),
                      device.put(dy), mask, target, LONG(count), INT(request_kind), *extra)
        expected = base + np.where(x > 0, dy, dy * dtype_of(np.float32(factor), x))
        assert np.allclose(device.get(target, [count], dtype), expected,
                           rtol=2e-3 if dtype == "float16" else 1e-6, atol=1e-3
                           if dtype == "float16" else 1e-7), name


# ---------------------------------------------------------------------- dropout
STATE = np.dtype([("counter", "u4", 4), ("output", "u4", 4), ("key", "u4", 2), ("used", "u4"),
                  ("flags", "i4", 2), ("spare_float", "f4"), ("spare_double", "f8")])


def philox(counter, key):
    """Philox 4x32-10 (Salmon et al., 2011)."""
    c, k = [int(v) for v in counter], [int(v) for v in key]
    for _ in range(10):
        p0, p1 = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(p1 >> 32) ^ c[1] ^ k[0], p1 & 0xFFFFFFFF, (p0 >> 32) ^ c[3] ^ k[1], p0 & 0xFFFFFFFF]
        k = [(k[0] + 0x9E3779B9) & 0xFFFFFFFF, (k[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return c


def seeded(count, seed):
    """What curand_init(seed, i, 0, states + i) makes: the sequence number is in the counter."""
    states = np.zeros(count, STATE)
    for i in range(count):
        states[i]["counter"], states[i]["key"] = [0, 0, i, 0], [seed, 0]
        states[i]["output"] = philox([0, 0, i, 0], [seed, 0])
    return states


def test_philox_known_answers():
    """The vectors that come with the authors' library."""
    ones = [0xFFFFFFFF] * 4
    assert philox([0] * 4, [0] * 2) == [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]
    assert philox(ones, ones[:2]) == [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("count", [1, 64, 1000, 4099])
def test_dropout_draws_curands_numbers(device, count, dtype):
    threads, keep, seed = (count + 63) // 64, 0.7, 5
    step, size = -(-count // threads), 1 + (count + 7) // 8
    assert STATE.itemsize == 64
    states = seeded(threads, seed)
    memory, mask = device.put(states), device.put(np.full(size + 8, 255, "uint8"))
    bits, expected = TYPES[dtype], np.zeros((2, count), bool)
    for i in range(count):
        thread, number = divmod(i, step)
        for draw in range(2):  # states go on where they were
            place = number + draw * min(step, count - thread * step)
            word = philox([place // 4, 0, thread, 0], [seed, 0])[place % 4]
            if dtype == "float64":
                uniform = np.float32(1 - (word * 2.3283064365386963e-10 + 2.3283064365386963e-10))
            else:
                exact = float(np.float32(word)) * float(np.float32(2.3283064e-10)) + \
                    float(np.float32(2.3283064e-10) / np.float32(2))
                uniform = np.float32(1) - np.float32(exact)
            expected[draw, i] = uniform <= np.float32(keep)
    for draw in range(2):
        device.launch(device.kernel("dropout.cu", "dropout_clear", bits), *grid(size), mask,
                      LONG(size))
        device.launch(device.kernel("dropout.cu", "dropout_draw", bits), *grid(threads), mask,
                      LONG(count), LONG(step), memory, INT(threads), FLOAT(keep))
        found = device.get(mask, [size + 8], "uint8")
        assert found[0] == 1 and (found[size:] == 255).all()
        assert np.array_equal(found[1:size], bits_of(expected[draw]))
    assert count < 1000 or abs(expected.mean() - keep) < 0.04


@pytest.mark.parametrize("dtype", TYPES)
def test_dropout_apply(device, dtype):
    random = np.random.RandomState(0)
    x, old = (random.randn(5, 7, 9).astype(dtype) for _ in range(2))
    bits = random.rand(5, 7, 9) < 0.6
    mask = device.put(np.concatenate([np.ones(1, "uint8"), bits_of(bits.ravel())]))
    kernel = device.kernel("dropout.cu", "dropout_apply", TYPES[dtype])
    for request_kind in (NULL, WRITE, ADD):
        target = device.put(old)
        device.launch(kernel, *grid(x.size), device.put(x), mask, target, LONG(x.size),
                      INT(request_kind), FLOAT(1.5), FLOAT(0))
        product = x * np.where(bits, 1.5, 0).astype(dtype)
        expected = {NULL: old, WRITE: product, ADD: old + product}[request_kind]
        assert np.array_equal(device.get(target, x.shape, dtype), expected)


# ---------------------------------------------------------------------- max pooling
class Shape(ctypes.Structure):
    _fields_ = [(name, INT * 3) for name in ("size", "window", "stride", "pad", "output")] + \
        [("channels", LONG)]


class Format(ctypes.Structure):
    _fields_ = [("paired", INT), ("words", INT)]


@pytest.mark.parametrize("paired,words", [(1, 0), (0, 0), (0, 1), (1, 1)])
@pytest.mark.parametrize("dtype", TYPES)
def test_max_pool(device, dtype, paired, words):
    random = np.random.RandomState(0)
    planes, size, window, stride, pad = 6, (9, 11), (3, 3), (2, 2), (1, 1)
    x = random.randint(-3, 4, (planes,) + size).astype(dtype)  # with ties
    out = tuple((s + 2 * p - w) // t + 1 for s, p, w, t in zip(size, pad, window, stride))
    y, number = np.empty((planes,) + out, dtype), np.empty((planes,) + out, "int32")
    dx = np.zeros_like(x)
    dy = random.randn(planes, *out).astype(dtype)
    for c, h, w in np.ndindex(y.shape):
        best = None
        for k in range(9):
            v, u = h * 2 - 1 + k // 3, w * 2 - 1 + k % 3
            if 0 <= v < size[0] and 0 <= u < size[1] and (best is None or x[c, v, u] > best[0]):
                best = (x[c, v, u], k, v, u)
        y[c, h, w], number[c, h, w] = best[0], best[1]
        dx[c, best[2], best[3]] += dy[c, h, w]
    shape = Shape(size=(1,) + size, window=(1,) + window, stride=(1,) + stride, pad=(0,) + pad,
                  output=(1,) + out, channels=1)
    bits, row, form = TYPES[dtype], out[0] * out[1], Format(paired=paired, words=words)
    numbers = number.reshape(planes, row)
    if paired:
        numbers = np.pad(numbers, ((0, 0), (0, row % 2)))
        numbers = numbers[:, ::2] | numbers[:, 1::2] << 4
    kept_dtype = "int32" if words else "uint8"
    top, kept = device.put(0 * y), device.put(np.zeros(numbers.shape, kept_dtype))
    device.launch(device.kernel("max_pool.cu", "max_pool_forward", bits), *grid(numbers.size),
                  device.put(x), top, kept, LONG(planes), LONG(row), INT(WRITE), form, shape)
    assert np.array_equal(device.get(top, y.shape, dtype), y)
    assert np.array_equal(device.get(kept, numbers.shape, kept_dtype), numbers)
    target = device.put(0 * x)
    device.launch(device.kernel("max_pool.cu", "max_pool_backward", bits), *grid(x.size),
                  device.put(dy), kept, target, LONG(x.size), LONG(row), INT(WRITE), form, shape)
    assert np.array_equal(device.get(target, x.shape, dtype), dx)


# ---------------------------------------------------------------------- BatchNorm
class Place(ctypes.Structure):
    _fields_ = [(name, LONG) for name in ("outer", "channels", "inner")]


class Norm(ctypes.Structure):
    _fields_ = [("eps", DOUBLE), ("slope", DOUBLE), ("momentum", FLOAT), ("fix_gamma", INT),
                ("batch", INT), ("activation", INT), ("averages", INT)]


class Spare(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("channels", INT), ("searched", INT),
                ("smallest", DOUBLE), ("error", ctypes.c_void_p), ("error_number", INT)]


@pytest.mark.parametrize("activation,slope", [(0, 1.0), (1, 0.1), (2, 0.5), (3, 0.0)],
                         ids=["identity", "leaky", "elu", "relu"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("in_forward", [False, True], ids=["native", "cudnn"])
def test_batch_norm(device, in_forward, dtype, activation, slope):
    random = np.random.RandomState(0)
    shape, eps, bits, threads, momentum = (8, 5, 49), 1e-3, TYPES[dtype], 128, 0.75
    x, dy = random.randn(*shape) * 2 + 1, random.randn(*shape)
    gamma, beta = random.uniform(0.5, 1.5, 5), random.randn(5)
    mean, var = x.mean((0, 2)), x.var((0, 2))
    inv = 1 / np.sqrt(var + eps)
    along = (None, slice(None), None)
    hat = (x - mean[along]) * inv[along]
    z = hat * gamma[along] + beta[along]
    y = np.where(z > 0, z, slope * np.expm1(np.minimum(z, 0)) if activation == 2 else z * slope)
    dz = dy * np.where(z > 0, 1, slope * np.exp(np.minimum(z, 0)) if activation == 2 else slope)
    dgamma, dbeta = (dz * hat).sum((0, 2)), dz.sum((0, 2))
    items = x.size // 5
    dx = (gamma * inv)[along] * (dz - dbeta[along] / items - hat * dgamma[along] / items)
    place = Place(outer=shape[0], channels=5, inner=shape[2])
    norm = Norm(eps=eps, slope=slope, momentum=momentum, fix_gamma=0, batch=1,
                activation=activation, averages=in_forward)

    def up(value):
        return device.put(np.asarray(value, dtype))
    m, s, out = up(0 * mean), up(0 * mean), up(0 * x)
    scale, shift, moving_mean, moving_var = up(gamma), up(beta), up(0 * mean), up(0 * mean + 1)
    data, shared = up(x), threads * 8
    device.launch(device.kernel("batch_norm.cu", "batch_norm_forward", bits), 5, threads, data,
                  scale, shift, moving_mean, moving_var, out, m, s, place, norm, Spare(),
                  INT(WRITE), shared_bytes=shared)
    averages = (mean * (1 - momentum),
                momentum + var * (items / (items - 1) if in_forward else 1) * (1 - momentum))
    limit = 2e-5 if dtype == "float32" else 1e-11

    def check(pairs):
        for found, expected in pairs:
            error = np.abs(device.get(found, expected.shape, dtype) - expected).max()
            assert error <= limit * np.abs(expected).max()

    check(zip((moving_mean, moving_var), averages if in_forward else (0 * mean, 0 * mean + 1)))
    results = [up(0 * x), up(0 * gamma), up(0 * gamma)]
    device.launch(device.kernel("batch_norm.cu", "batch_norm_backward", bits), 5, threads,
                  up(dy), data if activation == 3 else out, scale, shift, m, s, moving_mean,
                  moving_var, *results, place, norm, Spare(), INT(WRITE), INT(WRITE), INT(WRITE),
                  shared_bytes=shared)
    check(zip([out, *results, moving_mean, moving_var], (y, dx, dgamma, dbeta, *averages)))
    norm.momentum = 1  # a clone's
    device.launch(device.kernel("batch_norm.cu", "batch_norm_forward", bits), 5, threads, data,
                  scale, shift, moving_mean, moving_var, out, m, s, place, norm, Spare(),
                  INT(WRITE), shared_bytes=shared)
    check(zip([moving_mean, moving_var], averages))
