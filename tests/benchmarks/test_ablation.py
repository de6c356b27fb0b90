"""The ablation: steps of the search, and parts of its native search, are left out."""
from __future__ import annotations

import random
import re
from pathlib import Path

import pytest
from needed import needs_plugin
from small_graphs import chain

from benchmarks.mxnet import ablation
from benchmarks.mxnet.ablation import Row
from memonger.solve.options import Options
from memonger.solve.search.native import PARTS, NativeSearch
from memonger.util.errors import InputError


def test_the_bits_are_those_of_the_native_search() -> None:
    header = Path(__file__).parents[2] / "plugins/core/search/options.h"
    parts = re.search(r"enum Part \{(.*?)\};", header.read_text(), re.DOTALL)
    assert parts is not None
    declared = sorted(int(number) for number in re.findall(r"= (\d+)", parts.group(1)))
    assert declared == sorted(PARTS.values())


def test_a_native_search_without_its_parts_finds_a_dearer_plan() -> None:
    rng = random.Random(0)
    graph = chain(tuple(rng.choice((100, 200, 300, 400)) for _ in range(20)),
                  tuple(float(rng.randint(1, 9)) for _ in range(20)))
    search = NativeSearch(graph, Options(storage="live"))
    limited = NativeSearch(graph, Options(storage="live", without=frozenset(PARTS)))
    limit_bytes = search.evaluate(search.unplanned()).pool_bytes * 2 // 3
    whole = search.search(limit_bytes, 10 ** 6, 60.0)
    bare = limited.search(limit_bytes, 10 ** 6, 60.0)
    assert whole.feasible and bare.feasible and whole.cost_s < bare.cost_s


def test_the_table_names_the_plan_that_loses_most() -> None:
    text = ablation.render([Row("", {"a": 0.1, "b": 0.2, "c": 0.3, "d": None}),
                            Row("swaps", {"a": 0.15, "b": 0.19, "c": None, "d": 0.4})])
    line = text.splitlines()[-1].split()
    assert line == ["swaps", "+2.00", "+5.00", "a", "-1.00", "b", "1"]


def test_unknown_parts_are_named() -> None:
    with pytest.raises(InputError, match="annealing"):
        ablation.main(["no_such"])


@needs_plugin
def test_one_part_of_one_network() -> None:
    whole, without = ablation.run(["moves of like values"], [("squeezenet1_0", "60%", "none")])
    (case, change), = without.change(whole)
    assert case == "squeezenet1_0 60% none" and abs(change) < 0.2
