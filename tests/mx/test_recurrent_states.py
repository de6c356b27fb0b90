"""What ``RNN`` keeps for itself, against what a process takes that trains it with stock MXNet."""
from __future__ import annotations

import mxnet as mx
import pytest
from forked import python

import memonger

PROGRAM = """
import sys
import mxnet as mx
import memonger
from mx.counted_copies import taken_bytes

mode, layers, both, batch, width, states = sys.argv[1], *map(int, sys.argv[2:])

def network(states):
    x = mx.sym.RNN(mx.sym.var("data"), mode=mode, num_layers=layers, bidirectional=bool(both),
                   state_size=states, state_outputs=True, name="rnn")
    return mx.sym.make_loss(mx.sym.sum(x[0]))

estimate = memonger.estimate(network(states), data=(40, batch, width))
taken_bytes(network(8), {"data": (2, 1, 8)})  # what a process takes once
print(estimate.by_category["recurrent_states"], estimate.total_bytes,
      taken_bytes(network(states), {"data": (40, batch, width)}))
"""
CASES = [("lstm", 2, False, 32, 650, 650), ("lstm", 3, False, 160, 128, 256),
         ("lstm", 2, True, 64, 512, 160), ("gru", 1, False, 64, 480, 480),
         ("gru", 2, True, 32, 300, 400), ("rnn_relu", 3, False, 160, 256, 300),
         ("rnn_tanh", 2, True, 64, 256, 256)]


def network(**attributes):
    x = mx.sym.RNN(mx.sym.var("data"), mode="lstm", state_size=16, **attributes)
    return mx.sym.make_loss(mx.sym.sum(x))


@pytest.mark.parametrize("mkldnn", ["1", "0"])
@pytest.mark.parametrize("mode,layers,both,batch,width,states", CASES)
def test_a_process_takes_what_is_estimated(mode, layers, both, batch, width, states, mkldnn):
    done = python("-c", PROGRAM, mode, *map(str, (layers, int(both), batch, width, states)),
                  MXNET_USE_MKLDNN_RNN=mkldnn, MXNET_MKLDNN_ENABLED="1", MEMONGER_COSTS="")
    assert done.returncode == 0, done.stdout[-2000:]
    kept, estimated, taken = map(int, done.stdout.split()[-3:])
    assert kept > estimated / 3
    assert abs(taken - estimated) < 0.1 * taken, (kept, estimated, taken)


def test_one_layer_by_hand(monkeypatch):
    """Weights five times; gates of 64 numbers, states and cells of 16, of 8 steps by 4."""
    monkeypatch.setenv("MXNET_USE_MKLDNN_RNN", "1")
    rows, more = 4 * 8, 4 * 9
    forward = rows * 2 * 64 + more * 16  # gates twice, and the cells
    backward = rows * 64 + more * (2 * 16 + 16 + 16)
    weights = 5 * 2 * 16 * 64
    found = memonger.estimate(network(num_layers=1), data=(8, 4, 16))
    assert found.by_category["recurrent_states"] == 4 * (weights + forward + backward)


def test_mxnets_own_code_by_hand(monkeypatch):
    monkeypatch.setenv("MXNET_USE_MKLDNN_RNN", "0")
    reserved = 8 * 4 * 16 * (7 * 2 - 1)
    working = 9 * 4 * 16 * 4 + 4 * 16 * 2 + 8 * 4 * 16 + 16 * 8 * 8
    found = memonger.estimate(network(num_layers=2), data=(8, 4, 16))
    assert found.by_category["recurrent_states"] == 4 * (reserved + working)


def test_a_plan_counts_them_too(monkeypatch):
    monkeypatch.setenv("MXNET_USE_MKLDNN_RNN", "1")
    plan = memonger.plan(network(num_layers=2, bidirectional=True), costs="cpu",
                         data=(8, 4, 16))
    kept = plan.fixed_bytes["recurrent_states"]
    assert kept == plan.baseline_fixed_bytes["recurrent_states"] > 0
    assert "states of RNN" in str(memonger.estimate(network(num_layers=1), data=(8, 4, 16)))
