"""Rows that Inductor pads on a GPU, on tensors that only say that they are there."""
from __future__ import annotations

import pytest
import torch
import torch.fx as fx
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

from memonger.torch.capture.padding import is_padded_in_place, room_bytes
from memonger.torch.capture.reading import read

ROW, PADDED = 50257, 50260
MODE = FakeTensorMode()


def empty(*shape, device="cuda"):
    with MODE:
        return torch.empty(*shape, device=device)


def test_long_rows_begin_at_multiples_of_128_bytes_on_a_gpu():
    assert room_bytes(empty(8, ROW)) == room_bytes(empty(8, PADDED)) == 8 * 50272 * 4
    assert room_bytes(empty(8, ROW, device="cpu")) == 8 * ROW * 4
    assert room_bytes(empty(8, 1000)) == 8 * 1000 * 4 and room_bytes(empty(ROW)) == ROW * 4
    assert room_bytes(empty(ROW, 8).t()) == 8 * ROW * 4


def scores(device, padding=(0, PADDED - ROW, 0, 0), products=1):
    """The gradient of scores with padding, and the matrix products that read it."""
    def step(x, weight):
        rows = torch.ops.aten.constant_pad_nd.default(x * 2, list(padding))
        return [rows @ weight for _ in range(products)]
    width = ROW + padding[0] + padding[1]
    return make_fx(step)(empty(8, ROW, device=device), empty(width, 4, device=device))


def padded(graph):
    return [is_padded_in_place(node) for node in graph.graph.nodes
            if node.target is torch.ops.aten.constant_pad_nd.default]


@pytest.mark.parametrize("found,options", [
    (True, {}), (False, {"products": 2}), (False, {"padding": (3, 0, 0, 0)}),
    (False, {"padding": (0, 3, 0, 8)})])
def test_what_one_product_reads_is_padded_where_it_lies(found, options):
    assert padded(scores("cuda", **options)) == [found]
    assert padded(scores("cpu", **options)) == [False]


@pytest.mark.parametrize("device,arrays", [("cuda", 1), ("cpu", 2)])
def test_the_padded_gradient_takes_no_memory_of_its_own(device, arrays):
    graph = read(scores(device), 1, fused=True).graph
    large = [t for t in graph.tensors if t.producer >= 0 and t.size_bytes >= 8 * ROW * 4]
    assert len(large) == arrays


def test_other_nodes_are_not_padded():
    graph = fx.Graph()
    graph.output(graph.placeholder("x"))
    assert not any(map(is_padded_in_place, graph.nodes))
