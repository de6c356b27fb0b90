"""Plans for buckets: made once, kept on disk, the same training bit for bit."""
from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from needed import needs_plugin

import memonger
from memonger.mx.calls import buckets as module
from memonger.util.errors import InfeasibleBudget, InputError

mx = pytest.importorskip("mxnet")
pytestmark = needs_plugin
OPTIONS = {"budget": "85%", "time_limit": 0.3, "costs": "reference"}


def generator(length):
    """A recurrent network unrolled over ``length`` steps."""
    steps = mx.sym.split(mx.sym.var("data"), num_outputs=length, axis=1, squeeze_axis=True,
                         name="steps")
    weight, bias = mx.sym.var("h_weight"), mx.sym.var("h_bias")
    state = mx.sym.zeros(shape=(0, 32), name="start")
    for t in range(length):
        joined = mx.sym.concat(steps[t], state, dim=1, name="in%d" % t)
        state = mx.sym.tanh(mx.sym.FullyConnected(joined, weight, bias, num_hidden=32,
                                                  name="fc%d" % t), name="tanh%d" % t)
    net = mx.sym.FullyConnected(state, num_hidden=3, name="out")
    return mx.sym.SoftmaxOutput(net, name="softmax"), ("data",), ("softmax_label",)


def shapes(length):
    return {"data": (16, length, 8), "softmax_label": (16,)}


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("MEMONGER_CACHE_DIR", str(tmp_path))
    return tmp_path / "plans"


def parameters_after(symbols, after_batch=lambda net: None):
    """Those of a BucketingModule after steps of several lengths."""
    net = mx.mod.BucketingModule(symbols, default_bucket_key=12)

    def described(length):
        sizes = shapes(length)
        return ([mx.io.DataDesc("data", sizes["data"])],
                [mx.io.DataDesc("softmax_label", sizes["softmax_label"])])

    net.bind(*described(12))
    mx.random.seed(1)
    random = np.random.RandomState(1)
    net.init_params(mx.init.Xavier())
    net.init_optimizer(optimizer_params={"learning_rate": 0.1})
    for length in (12, 6, 9, 12, 6):
        data, label = described(length)
        net.forward_backward(mx.io.DataBatch(
            [mx.nd.array(random.standard_normal(data[0].shape))],
            [mx.nd.array(random.randint(0, 3, label[0].shape))], bucket_key=length,
            provide_data=data, provide_label=label))
        net.update()
        after_batch(net)
    return {name: value.asnumpy() for name, value in net.get_params()[0].items()}


def test_planned_buckets_train_as_unplanned_ones(cache):
    planned = memonger.PlannedBuckets(generator, shapes, **OPTIONS)
    planned.prepare([6, 9]).join()
    assert len(list(cache.iterdir())) == 2
    ours, plain = parameters_after(planned), parameters_after(generator)
    assert all(np.array_equal(plain[name], ours[name]) for name in plain)
    assert all(plan.total_bytes < plan.baseline_total_bytes
               for plan in map(planned.plan, (6, 9, 12)))


def test_buckets_train_unplanned_until_their_plan_is_ready(cache):
    waiting = threading.Event()

    def slow_shapes(length):  # no plan before the batches of 6 and 9 began
        if threading.current_thread() is not threading.main_thread():
            waiting.wait(60)
        return shapes(length)

    planned = memonger.PlannedBuckets(generator, slow_shapes, unplanned_within="1GB", **OPTIONS)
    replaced, marked = [], []

    def after_batch(net):
        marked.append("memonger" in net.symbol.tojson())
        if len(marked) == 3:
            waiting.set()
            planned.plan(6), planned.plan(9)
        replaced.extend(planned.replace_in(net))

    ours, plain = parameters_after(planned, after_batch), parameters_after(generator)
    assert marked == [True, False, False, True, True]
    assert sorted(replaced) == [6, 9]
    assert all(np.array_equal(plain[name], ours[name]) for name in plain)
    # What is on disk, or does not fit, is planned at once.
    again = memonger.PlannedBuckets(generator, shapes, unplanned_within="1GB", **OPTIONS)
    small = memonger.PlannedBuckets(generator, shapes, unplanned_within="1KB", cache=False,
                                    **OPTIONS)
    small.prepare([9]).join()  # not asked for first
    for buckets in (again, small):
        assert all("memonger" in buckets(key)[0].tojson() for key in (12, 6))


def test_a_kept_plan_needs_no_search(cache, monkeypatch):
    first = memonger.PlannedBuckets(generator, shapes, **OPTIONS).plan(6)
    monkeypatch.setattr(module, "plan", lambda *_, **__: pytest.fail("planned again"))
    again = memonger.PlannedBuckets(generator, shapes, **OPTIONS).plan(6)
    assert again.symbol_json == first.symbol_json
    with pytest.raises(pytest.fail.Exception):
        memonger.PlannedBuckets(generator, shapes, **{**OPTIONS, "budget": "90%"}).plan(6)


def test_a_damaged_file_is_made_again(cache):
    first = memonger.PlannedBuckets(generator, shapes, **OPTIONS).plan(6)
    path, = cache.iterdir()
    path.write_text(path.read_text(encoding="utf-8")[:-100], encoding="utf-8")
    again = memonger.PlannedBuckets(generator, shapes, **OPTIONS).plan(6)
    assert again.symbol_json == first.symbol_json
    assert memonger.load_plan(str(path)).symbol_json == first.symbol_json


def test_threads_that_ask_for_one_bucket_get_one_plan(cache):
    planned = memonger.PlannedBuckets(generator, shapes, **OPTIONS)
    with ThreadPoolExecutor(4) as threads:
        plans = list(threads.map(planned.plan, [6, 9] * 4))
    assert len({id(plan) for plan in plans}) == 2


def test_processes_share_the_folder(cache):
    code = ("import sys; sys.path.insert(0, %r)\nfrom api.test_buckets import *\n"
            "print(memonger.PlannedBuckets(generator, shapes, **OPTIONS).plan(6).pool_bytes)"
            % str(Path(__file__).parents[1]))
    with ThreadPoolExecutor(2) as threads:
        done = list(threads.map(lambda _: python_of(code), range(2)))
    assert done[0] == done[1] and len(list(cache.iterdir())) == 1


def python_of(code):
    from forked import python
    done = python("-c", code, MEMONGER_CACHE_DIR=os.environ["MEMONGER_CACHE_DIR"])
    assert done.returncode == 0, done.stdout
    return done.stdout.splitlines()[-1]


def test_a_bucket_that_cannot_be_planned_says_so_when_it_is_asked_for(cache):
    planned = memonger.PlannedBuckets(generator, shapes, **{**OPTIONS, "budget": "1KB"})
    planned.prepare([6]).join()
    with pytest.raises(InfeasibleBudget):
        planned(6)
    with pytest.raises(InputError, match="shapes are a function"):
        memonger.PlannedBuckets(generator, shapes, data_iter=None)
