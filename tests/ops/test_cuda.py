"""CUDA kernels: they compile for every architecture, and on a device they agree with NumPy."""
from __future__ import annotations

import ctypes
import re

import numpy as np
import pytest

from ops.nvrtc import SOURCES, TYPES, Device, architectures, compile_kernels, find_nvrtc

NVRTC = find_nvrtc()
FILES = sorted(path.name for path in SOURCES.glob("*.cu"))
WRITE, ADD = 1, 3
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


@pytest.fixture(scope="module")
def device():
    if NVRTC is None:
        pytest.skip("no NVRTC")
    try:
        return Device()
    except OSError:
        pytest.skip("no CUDA driver")


def grid(count):
    return (count + 255) // 256, 256


def bits_of(passes):
    return np.packbits(passes, bitorder="little")


@pytest.mark.gpu
@pytest.mark.parametrize("request_kind", [WRITE, ADD])
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("count", [1, 31, 32, 1000, 65537])
def test_gates(device, count, dtype, request_kind):
    random = np.random.RandomState(0)
    x, dy, old = (random.randn(count).astype(dtype) for _ in range(3))
    x[::5] = 0
    base = old if request_kind == ADD else 0 * old
    slope = np.float32(0.25)
    cases = {
        "relu_forward": ((), x > 0, np.where(x > 0, x, 0)),
        "leaky_relu_forward": ((FLOAT(slope),), x > 0, np.where(x > 0, x, x * dtype_of(slope, x))),
        "clip_forward": ((FLOAT(-0.5), FLOAT(1)), (x >= -0.5) & (x <= 1), np.clip(x, -0.5, 1)),
    }
    for name, (extra, passes, expected) in cases.items():
        kernel = device.kernel(NVRTC, "gate.cu", name, TYPES[dtype])
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
        device.launch(device.kernel(NVRTC, "gate.cu", name, TYPES[dtype]), *grid(count),
                      device.put(dy), mask, target, LONG(count), INT(request_kind), *extra)
        expected = base + np.where(x > 0, dy, dy * dtype_of(np.float32(factor), x))
        assert np.allclose(device.get(target, [count], dtype), expected,
                           rtol=2e-3 if dtype == "float16" else 1e-6, atol=1e-3
                           if dtype == "float16" else 1e-7), name


def dtype_of(value, like):
    return like.dtype.type(value)


@pytest.mark.gpu
def test_dropout_keeps_the_asked_share_and_repeats(device):
    count, keep = 1 << 20, 0.7
    kernel = device.kernel(NVRTC, "dropout.cu", "dropout_mask", 32)
    masks = []
    for key, offset in ((1, 0), (1, 0), (2, 0), (1, 1)):
        mask = device.put(np.zeros(count // 8, "uint8"))
        device.launch(kernel, *grid(count // 8), mask, LONG(count), FLOAT(keep),
                      ctypes.c_ulonglong(key), ctypes.c_ulonglong(offset))
        masks.append(device.get(mask, [count // 8], "uint8"))
    assert np.array_equal(masks[0], masks[1])
    assert not np.array_equal(masks[0], masks[2]) and not np.array_equal(masks[0], masks[3])
    kept = np.unpackbits(masks[0], bitorder="little")
    assert abs(kept.mean() - keep) < 0.003
    x = np.random.RandomState(0).randn(count).astype("float32")
    target = device.put(0 * x)
    device.launch(device.kernel(NVRTC, "dropout.cu", "dropout_apply", 32), *grid(count),
                  device.put(x), device.put(masks[0]), target, LONG(count), INT(WRITE),
                  FLOAT(keep))
    assert np.allclose(device.get(target, [count], "float32"), x * kept / np.float32(keep))


class Shape(ctypes.Structure):
    _fields_ = [(name, INT * 3) for name in ("size", "window", "stride", "pad", "output")] + \
        [("channels", LONG)]


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", TYPES)
def test_max_pool(device, dtype):
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
    bits, row = TYPES[dtype], out[0] * out[1]
    top, where = device.put(0 * y), device.put(0 * number)
    device.launch(device.kernel(NVRTC, "max_pool.cu", "max_pool_forward", bits), *grid(y.size),
                  device.put(x), top, where, LONG(y.size), INT(WRITE), shape)
    assert np.array_equal(device.get(top, y.shape, dtype), y)
    assert np.array_equal(device.get(where, y.shape, "int32"), number)
    packed = device.put(np.zeros(planes * ((row + 1) // 2), "uint8"))
    device.launch(device.kernel(NVRTC, "max_pool.cu", "pack_numbers", bits), *grid(y.size),
                  where, packed, LONG(planes), LONG(row))
    target = device.put(0 * x)
    device.launch(device.kernel(NVRTC, "max_pool.cu", "max_pool_backward", bits), *grid(x.size),
                  device.put(dy), packed, target, LONG(x.size), INT(WRITE), shape, LONG(row))
    assert np.array_equal(device.get(target, x.shape, dtype), dx)


class Place(ctypes.Structure):
    _fields_ = [(name, LONG) for name in ("outer", "channels", "inner")]


@pytest.mark.gpu
@pytest.mark.parametrize("slope,from_output", [(1.0, 1), (0.1, 1), (0.0, 0)])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_batch_norm(device, dtype, slope, from_output):
    random = np.random.RandomState(0)
    shape, eps, bits, threads = (8, 5, 49), 1e-3, TYPES[dtype], 128
    x, dy = random.randn(*shape) * 2 + 1, random.randn(*shape)
    gamma, beta = random.uniform(0.5, 1.5, 5), random.randn(5)
    mean, var = x.mean((0, 2)), x.var((0, 2))
    inv = 1 / np.sqrt(var + eps)
    along = (None, slice(None), None)
    hat = (x - mean[along]) * inv[along]
    z = hat * gamma[along] + beta[along]
    y = np.where(z > 0, z, z * slope)
    dz = dy * np.where(z > 0, 1, slope)
    dgamma, dbeta = (dz * hat).sum((0, 2)), dz.sum((0, 2))
    items = x.size // 5
    dx = (gamma * inv)[along] * (dz - dbeta[along] / items - hat * dgamma[along] / items)
    place = Place(outer=shape[0], channels=5, inner=shape[2])

    def up(value):
        return device.put(np.asarray(value, dtype))
    m, s, out = up(0 * mean), up(0 * mean), up(0 * x)
    args = [up(gamma), up(beta)]
    shared = threads * 8
    data = up(x)
    device.launch(device.kernel(NVRTC, "batch_norm.cu", "batch_statistics", bits), 5, threads,
                  data, m, s, place, DOUBLE(eps), shared_bytes=shared)
    device.launch(device.kernel(NVRTC, "batch_norm.cu", "normalise", bits), 5, threads, data,
                  *args, m, s, out, place, INT(WRITE), INT(0), FLOAT(slope))
    results = [up(0 * x), up(0 * gamma), up(0 * gamma)]
    device.launch(device.kernel(NVRTC, "batch_norm.cu", "normalise_backward", bits), 5, threads,
                  up(dy), out if from_output else data, *args, m, s, *results, place, INT(WRITE),
                  INT(0), FLOAT(slope), INT(from_output), INT(1), shared_bytes=shared)
    limit = 2e-5 if dtype == "float32" else 1e-7  # a float slope is rounded
    for found, expected in zip([out] + results, (y, dx, dgamma, dbeta)):
        error = np.abs(device.get(found, expected.shape, dtype) - expected).max()
        assert error < limit * np.abs(expected).max()
