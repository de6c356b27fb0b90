"""Random networks train with a plan as without one, to the bit, in the pool predicted.

A few seeds by default, many with ``-m slow``; see ``trial.py`` for ranges of one's own.
"""
from __future__ import annotations

import json

import pytest
from forked import python
from needed import needs_plugin

from .networks import build
from .trial import TRIALS

pytestmark = needs_plugin
#: One process tries so many seeds; where it crashes, the next goes on behind the seed.
_TOGETHER = 20


def findings(kind, first, last):
    """Seeds and what is wrong; a crash of planned training that stock MXNet's is not."""
    found = {}
    while first < last:
        done = python("-m", "fuzz.trial", kind, str(first), str(min(last, first + _TOGETHER)),
                      MXNET_MKLDNN_ENABLED="0", MEMONGER_COSTS="reference")
        lines = [json.loads(line) for line in done.stdout.splitlines()
                 if line.startswith('{"seed"')]
        found.update((line["seed"], line["finding"]) for line in lines if "finding" in line)
        seed = lines[-1]["seed"] if lines else first
        if done.returncode:
            alone = python("-m", "fuzz.trial", "stock " + kind, str(seed), str(seed + 1),
                           MXNET_MKLDNN_ENABLED="0")
            if not alone.returncode:
                found[seed] = "exit status %d: %s" % (done.returncode, done.stdout[-500:])
        first = seed + 1
    return found


@pytest.mark.parametrize("kind", ["symbols", "blocks", "modes"])
def test_a_few(kind):
    assert findings(kind, 0, 12) == {}


@pytest.mark.slow
@pytest.mark.parametrize("first", range(1000, 2000, 100))
@pytest.mark.parametrize("kind", ["symbols", "blocks", "modes"])
def test_many(kind, first):
    assert findings(kind, first, first + 100) == {}


def test_a_seed_is_the_same_network_every_time():
    first, again = build(5), build(5)
    assert first.symbol.tojson() == again.symbol.tojson()
    assert first.grad_req == again.grad_req and first.shapes == again.shapes
    assert all((first.arguments[name] == again.arguments[name]).all() for name in first.arguments)


def test_a_plan_that_changes_results_is_found(monkeypatch):
    from . import trial
    right = trial.train_symbol
    runs = []

    def wrong(network, symbol):
        results = right(network, symbol)
        runs.append(symbol)
        if len(runs) > 3:  # behind stock MXNet's three runs
            results[1]["output 0"] = results[1]["output 0"] + 1
        return results

    monkeypatch.setattr(trial, "train_symbol", wrong)
    assert "output 0" in TRIALS["symbols"](4)
