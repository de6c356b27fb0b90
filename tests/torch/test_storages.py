"""Storages of values: from a run of each form of a call what a run of each node tells."""
from __future__ import annotations

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from memonger.torch.capture import storages as module
from memonger.torch.capture.storages import storages


def blocks(x, w):
    """Equal blocks, with views of views and of parts."""
    for _ in range(3):
        a, b = (x @ w).t().split(2)
        x = torch.cat([b, a]).t() + x.view(4, 4)[:, ::1]
    return x


def conjugates(x, w):
    z = torch.view_as_complex(x.view(4, 2, 2))
    return torch.view_as_real((z.conj() * z.conj().resolve_conj() * z.resolve_conj()).imag.abs()
                              + 0j).flatten()


def twice_the_same(x, w):
    """Two arguments of one form, one of which is given back."""
    y, z = x * 2, x * 3
    y.add_(z)
    return y.view(16) + z.add_(y).view(16)


def several(x, w):
    values, places = torch.topk(x, 2)
    mean, *_ = torch.var_mean(x, 1), places.clone()
    return values.sum() + mean[0].sum() + torch.full((4,), 2.0).sum() + torch.full((4,), 2).sum()


def same_memory(found):
    """Numbers for identities, by first use."""
    numbers = {}
    return [[None if s is None else (numbers.setdefault(s[0], len(numbers)), s[1]) for s in held]
            for held in found.values()]


@pytest.mark.parametrize("function", [blocks, conjugates, twice_the_same, several])
def test_one_run_of_each_form_tells_what_runs_of_all_nodes_do(function, monkeypatch):
    traced = make_fx(function, tracing_mode="fake")(torch.randn(4, 4), torch.randn(4, 4))
    by_forms = storages(traced)
    monkeypatch.setattr(module, "_has_numbers_for_sizes", lambda node: False)
    monkeypatch.setattr(module, "_result", None)
    assert same_memory(by_forms) == same_memory(storages(traced))


def test_equal_blocks_are_run_once(monkeypatch):
    ran = []
    first = module._result
    monkeypatch.setattr(module, "_result", lambda *call: ran.append(call[0]) or first(*call))
    traced = make_fx(blocks, tracing_mode="fake")(torch.randn(4, 4), torch.randn(4, 4))
    storages(traced)
    products = [n for n in traced.graph.nodes if n.target is torch.ops.aten.mm.default]
    assert len(products) == 3 and ran.count(torch.ops.aten.mm.default) == 2  # of x, and of a sum


def test_sizes_that_are_symbols_are_read_node_by_node(monkeypatch):
    monkeypatch.setattr(module, "_Forms", None)
    traced = make_fx(blocks, tracing_mode="symbolic")(torch.randn(4, 4), torch.randn(4, 4))
    assert len({s[0] for held in storages(traced).values() for s in held if s}) > 3
