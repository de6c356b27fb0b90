"""Temporary space of MXNet's own CPU code, against what stock MXNet asks the system for."""
from __future__ import annotations

import subprocess
from typing import List

import pytest
from forked import python

#: MXNet's arrays and temporary spaces come from posix_memalign, and pages of its engine's objects.
COUNTER = """
#include <dlfcn.h>
#include <stddef.h>
static size_t allocated, known, largest;
static void* storage;  // where MXNet's arrays and temporary spaces are allocated
extern "C" int posix_memalign(void** pointer, size_t alignment, size_t size) {
  typedef int (*Function)(void**, size_t, size_t);
  static Function real = reinterpret_cast<Function>(dlsym(RTLD_NEXT, "posix_memalign"));
  if (size != 4096) __atomic_add_fetch(&allocated, size, __ATOMIC_RELAXED);
  if (size == known) storage = __builtin_return_address(0);
  if (storage == __builtin_return_address(0) && size > largest) largest = size;
  return real(pointer, alignment, size);
}
extern "C" size_t allocated_bytes() { return allocated; }
extern "C" void know_storage_by(size_t size) { known = size; }
extern "C" size_t largest_bytes() {
  const size_t found = largest;
  largest = 0;
  return found;
}
"""
PROGRAM = """
import ctypes, sys
import mxnet as mx
import memonger
from memonger import native

counter = ctypes.CDLL(None)
counter.allocated_bytes.restype = ctypes.c_size_t
x, weight = mx.sym.var("data"), mx.sym.var("weight")
network, shape = {
    "deconvolution": (mx.sym.Deconvolution(x, weight, kernel=(3, 3), stride=(2, 2), num_filter=16,
                                           num_group=2), (8, 32, 12, 12)),
    "in part": (mx.sym.Deconvolution(x, weight, kernel=(3, 3), num_filter=32, workspace=1),
                (8, 32, 14, 12)),
    "bilinear": (mx.sym.UpSampling(x, weight, scale=2, sample_type="bilinear", num_filter=16,
                                   num_args=2), (8, 16, 12, 12)),
    "topk": (mx.sym.topk(x, k=2), (64, 400)),
    "mask": (mx.sym.topk(x, k=2, ret_typ="mask"), (64, 400)),
    "float64": (mx.sym.argsort(x), (64, 400)),
}[sys.argv[1]]
net = mx.sym.MakeLoss(mx.sym.sum(network))
requests = {name: "null" if name == "data" else "write" for name in net.list_arguments()}
types = {"data": "float64" if sys.argv[1] == "float64" else "float32"}
estimate = memonger.estimate(net, grad_req=requests, type_dict=types, data=shape)
with native.switched(False, False):
    executor = net.simple_bind(mx.cpu(), grad_req=requests, type_dict=types, data=shape)
    mx.nd.waitall()
    before = counter.allocated_bytes()
    executor.forward(is_train=True)
    if "write" in requests.values():
        executor.backward()
    mx.nd.waitall()
print(estimate.by_category["workspace"], counter.allocated_bytes() - before, estimate.pool_bytes)
"""

#: Arguments' shapes, and those that have a gradient.
IN_COPIES = """
import ctypes, sys
import mxnet as mx
import memonger
from memonger import native

counter = ctypes.CDLL(None)
counter.allocated_bytes.restype = ctypes.c_size_t
sym, var = mx.sym, mx.sym.var
rows = {"data": (64, 400)}
network, shapes, trained = {
    "layer norm": (sym.LayerNorm(var("data")), rows, ["data"]),
    "group norm": (sym.GroupNorm(var("data"), num_groups=4), {"data": (8, 16, 20, 20)}, ["data"]),
    "broadcast": (sym.broadcast_sub(var("data"), var("row")), {**rows, "row": (1, 400)},
                  ["data", "row"]),
    "moments": (sym.moments(var("data"), axes=(1,))[1], rows, ["data"]),
    "classes": (sym.softmax_cross_entropy(var("data"), var("label")), {**rows, "label": (64,)},
                ["data"]),
    "ctc": (sym.CTCLoss(var("data"), var("label")), {"data": (32, 8, 400), "label": (8, 3)},
            ["data"]),
    "added mask": (sym.SequenceMask(var("data"), var("label"), use_sequence_length=True),
                   {"data": (64, 16, 40), "label": (16,)}, ["data"]),
    "added inverse": (sym.linalg.potri(var("data")), {"data": (4, 80, 80)}, ["data"]),
    "deformable": (sym.contrib.DeformableConvolution(
        var("data"), var("offset"), kernel=(3, 3), num_filter=8, no_bias=True),
        {"data": (4, 16, 22, 22), "offset": (4, 18, 20, 20)}, ["data"]),
}[sys.argv[1]]
net = sym.MakeLoss(sym.sum(network))
request = "add" if sys.argv[1].startswith("added") else "write"
requests = {name: request if name in trained else "null" for name in net.list_arguments()}
estimate = memonger.estimate(net, grad_req=requests, **shapes)
with native.switched(False, False):
    executor = net.simple_bind(mx.cpu(), grad_req=requests, **shapes)
    for name in {"label", "data"}.intersection(executor.arg_dict):
        executor.arg_dict[name][:] = 1  # a label of each class
    mx.nd.waitall()
    before = counter.allocated_bytes()
    executor.forward(is_train=True)
    executor.backward()
    mx.nd.waitall()
print(estimate.by_category["workspace"], counter.allocated_bytes() - before, estimate.pool_bytes)
"""


#: MKLDNN's own objects are left out; in the second step only temporary space is allocated.
WITH_MKLDNN = """
import ctypes, sys
import mxnet as mx
import memonger
from memonger import native

counter = ctypes.CDLL(None)
counter.largest_bytes.restype = counter.allocated_bytes.restype = ctypes.c_size_t
x = mx.sym.var("data")
wave = mx.sym.sin(x)
network, shape, request = {
    "dense": (mx.sym.FullyConnected(x, num_hidden=128), (64, 512), "add"),
    "in place": (mx.sym.FullyConnected(mx.sym.Flatten(x), num_hidden=128), (64, 8, 8, 8), "write"),
    "norm": (mx.sym.BatchNorm(x), (16, 16, 16, 16), "add"),
    "pooling": (mx.sym.Pooling(x, kernel=(2, 2), pool_type="max"), (16, 16, 16, 16), "add"),
    "convolution": (mx.sym.Convolution(x, kernel=(3, 3), num_filter=32), (8, 16, 16, 16), "add"),
    "deconvolution": (mx.sym.Deconvolution(mx.sym.sin(x), kernel=(3, 3), num_filter=16),
                      (8, 16, 16, 16), "write"),
    "sum": (wave + mx.sym.cos(wave), (64, 512), "write"),
    "volume": (mx.sym.sin(mx.sym.Activation(wave, act_type="tanh")), (2, 8, 8, 16, 16), "write"),
    "softmax": (mx.sym.sin(mx.sym.softmax(wave)), (64, 512), "write"),
}[sys.argv[1]]
net = mx.sym.MakeLoss(mx.sym.sum(network))
estimate = memonger.estimate(net, grad_req=request, data=shape)
counter.know_storage_by(4 * 12345)
mx.nd.zeros((12345,)).wait_to_read()
with native.switched(False, False):
    executor = net.simple_bind(mx.cpu(), grad_req=request, data=shape)
    for _ in range(2):
        counter.largest_bytes()
        before = counter.allocated_bytes()
        executor.forward(is_train=True)
        executor.backward()
        mx.nd.waitall()
print(estimate.by_category["workspace"], counter.largest_bytes(),
      counter.allocated_bytes() - before)
"""


@pytest.fixture(scope="module")
def counter(tmp_path_factory):
    folder = tmp_path_factory.mktemp("counter")
    (folder / "counter.cc").write_text(COUNTER)
    library = str(folder / "counter.so")
    subprocess.run(["g++", "-shared", "-fPIC", "-O1", "-D_GNU_SOURCE", "-o", library,
                    str(folder / "counter.cc"), "-ldl"], check=True)
    return library


@pytest.mark.parametrize("case", ["deconvolution", "in part", "bilinear", "topk", "mask",
                                  "float64"])
def test_temporary_space_is_counted(counter, case: str) -> None:
    done = python("-c", PROGRAM, case, MXNET_MKLDNN_ENABLED="0", LD_PRELOAD=counter)
    assert done.returncode == 0, done.stdout[-1000:]
    workspace_bytes, taken_bytes, pool_bytes = map(int, done.stdout.split()[-3:])
    assert workspace_bytes > 100000
    if case == "mask":  # MXNet makes its array when it binds
        pool_bytes = taken_bytes - workspace_bytes
        assert 0 <= pool_bytes < 1000
    assert taken_bytes == workspace_bytes + pool_bytes


@pytest.mark.parametrize("case", ["layer norm", "group norm", "broadcast", "moments", "classes",
                                  "ctc", "added mask", "added inverse", "deformable"])
def test_operators_that_work_on_copies_of_their_arrays(counter, case: str) -> None:
    done = python("-c", IN_COPIES, case, MXNET_MKLDNN_ENABLED="0", LD_PRELOAD=counter)
    assert done.returncode == 0, done.stdout[-1000:]
    workspace_bytes, taken_bytes, pool_bytes = map(int, done.stdout.split()[-3:])
    assert workspace_bytes > 90000
    assert taken_bytes == workspace_bytes + pool_bytes


@pytest.mark.parametrize("case", ["dense", "in place", "norm", "pooling", "convolution",
                                  "deconvolution", "sum", "volume"])
def test_what_mkldnn_makes_beside_its_arrays_is_counted(counter, case: str) -> None:
    """MXNet asks for twice of it, and aligns each array to 64 bytes."""
    workspace_bytes, largest_bytes, _ = with_mkldnn(counter, case)
    assert 0 <= largest_bytes // 2 - workspace_bytes <= 10 * 64


def test_the_gradient_of_softmax_is_made_where_mkldnn_allocates(counter) -> None:
    """In each step again, and with it the records of arrays."""
    workspace_bytes, _, allocated_bytes = with_mkldnn(counter, "softmax")
    assert 0 <= allocated_bytes - workspace_bytes <= 4000


def with_mkldnn(counter: str, case: str) -> List[int]:
    done = python("-c", WITH_MKLDNN, case, MXNET_MKLDNN_ENABLED="1", LD_PRELOAD=counter,
                  MEMONGER_COSTS="")
    assert done.returncode == 0, done.stdout[-1000:]
    numbers = [int(word) for word in done.stdout.split()[-3:]]
    assert numbers[0] > 100000
    return numbers


BLOCK = """
import ctypes
import mxnet as mx
import memonger

counter = ctypes.CDLL(None)
counter.allocated_bytes.restype = ctypes.c_size_t
block = mx.gluon.SymbolBlock(mx.sym.sort(mx.sym.var("data"), axis=1), [mx.sym.var("data")])
block.hybridize(static_alloc=True)
data = mx.nd.ones((64, 400))
plan = memonger.gluon.plan(block, data, budget="100%", time_limit=0.1)
taken = [counter.allocated_bytes()]
for _ in range(9):
    block(data).wait_to_read()
    taken.append(counter.allocated_bytes())
output_bytes = taken[9] - taken[8]
print(plan.fixed_bytes["workspace"], taken[8] - taken[0] - 8 * output_bytes, plan.pool_bytes)
"""


def test_ops_of_a_block_take_turns_with_four_spaces(counter) -> None:
    done = python("-c", BLOCK, MXNET_MKLDNN_ENABLED="0", LD_PRELOAD=counter)
    assert done.returncode == 0, done.stdout[-1000:]
    workspace_bytes, taken_bytes, pool_bytes = map(int, done.stdout.split()[-3:])
    assert workspace_bytes > 400000
    assert taken_bytes == workspace_bytes + pool_bytes
