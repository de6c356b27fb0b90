"""Collectives in a traced step: their memory, their times, and that they may run again."""
from __future__ import annotations

import pytest
import torch
import torch.distributed as dist
from torch.fx.experimental.proxy_tensor import make_fx

from memonger.errors import UnitError
from memonger.torch.capture.collectives import is_wait, network_bytes
from memonger.torch.capture.operators import repeat_reason
from memonger.torch.capture.storages import storages
from memonger.util.units import parse_rate

RANKS = 4


@pytest.fixture
def ranks():
    from torch.testing._internal.distributed.fake_pg import FakeStore
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=RANKS)
    yield
    dist.destroy_process_group()


@pytest.mark.parametrize("name, arguments, share", [
    ("all_gather_into_tensor", (RANKS,), RANKS - 1), ("reduce_scatter_tensor", ("sum", RANKS),
                                                      (RANKS - 1) / RANKS),
    ("all_reduce", ("sum",), 2)])
def test_a_collective_its_wait_and_views_of_that_are_one_memory(ranks, name, arguments, share):
    operators = torch.ops._c10d_functional
    group = dist.group.WORLD.group_name

    def step(x):
        waited = operators.wait_tensor(getattr(operators, name)(x * 2, *arguments, group))
        return waited.narrow(0, 0, 16) + 1
    traced = make_fx(step, tracing_mode="fake")(torch.zeros(64, 8))
    held = storages(traced)
    begun, waited = (next(n for n in traced.graph.nodes if word in str(n.target))
                     for word in (name, "wait_tensor"))
    assert is_wait(waited) and not is_wait(begun)
    assert held[begun] == held[waited] == held[next(iter(waited.users))]
    assert network_bytes(begun) == int(share * 64 * 8 * 4)
    assert network_bytes(waited) is None
    assert repeat_reason(begun) == repeat_reason(waited) == ""


def test_speeds_are_read():
    assert parse_rate("25GB/s") == 25e9 == parse_rate(25e9)
    for wrong in ("25GB", "0GB/s", "fast/s", True, 0):
        with pytest.raises(UnitError):
            parse_rate(wrong)
