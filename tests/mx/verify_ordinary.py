"""Verifies plans of random networks; the test runs it in MXNet's default environment."""
from __future__ import annotations

import sys

import mxnet as mx

import memonger
from memonger.mx.check.verify import verify
from memonger.util.errors import InfeasibleBudget
from mx.ordinary_nets import FAULTS, mask_one_off, ordinary_net


def false_alarms(number: int, seeds: int) -> int:
    symbol, shapes = ordinary_net(number)
    try:
        plan = memonger.plan(symbol, budget="70%", time_limit=0.2, shapes=shapes)
    except InfeasibleBudget:
        plan = memonger.plan(symbol, time_limit=0.2, shapes=shapes)
    found = [verify(plan.symbol, symbol, shapes, seed=seed) for seed in range(seeds)]
    for seed, result in enumerate(found):
        if not result.ok:
            print("false alarm: network %d, seed %d\n%s" % (number, seed, result))
    same, judged = sum(r.identical for r in found), sum(bool(r.judge) for r in found)
    print("network %d: %d identical, %d judged" % (number, same, judged), flush=True)
    return sum(not result.ok for result in found)


def missed(number: int) -> int:
    pairs = {name: [ordinary_net(number, fault)[0] for fault in pair]
             for name, pair in FAULTS.items()}
    pairs["a mask one off"] = [ordinary_net(number, relu=relu)[0]
                               for relu in (mx.sym.relu, mask_one_off)]
    count = 0
    for name, (original, planned) in pairs.items():
        if verify(planned, original, ordinary_net(number)[1], seed=number).ok:
            print("not found in network %d: %s" % (number, name), flush=True)
            count += 1
    return count


def main(first: int, last: int, seeds: int) -> None:
    """Print each false alarm, each planted fault that was not found, and how many there are."""
    alarms = [false_alarms(number, seeds) for number in range(first, last)]
    faults = [missed(number) for number in range(first, last)]
    print("%d networks, %d seeds each: %d false alarms; of %d planted faults %d not found"
          % (last - first, seeds, sum(alarms), 5 * len(faults), sum(faults)))
    sys.exit(1 if sum(alarms) + sum(faults) else 0)
