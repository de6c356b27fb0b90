"""The bytes of a GPU: what a plan says is what the pretended GPU hands out, in MXNet's defaults.

``make test-cu112 PYTEST_ARGS="-n 0 -k table -s"`` prints the table of docs/gpu.md.
"""
from __future__ import annotations

import contextlib

import pytest

from gpu import pretend, training
from gpu.conftest import Place
from gpu.test_cu112 import pytestmark  # noqa: F401
from memonger.zoo import nets

from . import zoo

#: Nobody's loss is behind these outputs.
NOT_MODULE = ("dmlc_lstm", "unet", "gan")
#: Batches that make the arrays of a step large beside a page of memory.
BATCH = 8


@contextlib.contextmanager
def asking(cuda_folder, **variables):
    """The answers of functions of training.py; None where memory ran out."""
    place = Place("gpu", pretend.environment(cuda_folder, PRETEND_IDLE="1", **variables),
                  [str(pretend.find_cu112())])
    try:
        yield lambda function, request, **more: place.call(training.alone, function, request, more)
    finally:
        place.close()


@pytest.fixture(scope="module")
def ask(cuda_folder):
    """With MXNet's defaults."""
    with asking(cuda_folder) as found:
        yield found


def request_for(name, folder, gluon, static=True, batch=BATCH):
    return {"name": name, "batch": batch, "gluon": gluon, "flags": {"static_alloc": static},
            "budget": None, "seconds": 0.3,
            "options": {**zoo.SMALL[nets.spec(name).builder], **zoo.SPECIAL.get(name, {})},
            "file": str(folder / "plan.json")}


def unplanned(request):
    return {name: value for name, value in request.items() if name != "file"}


def check(predicted, taken):
    assert abs(taken - predicted) <= max(0.001 * taken, 8192)


def table_row(ask, folder, name, gluon, fusion, static=True):
    """Predicted and taken, without a plan and with one."""
    more = {} if fusion else {"MXNET_USE_FUSION": "0"}
    request = request_for(name, folder, gluon, static)
    predicted = ask(training.predict, request, **more)
    assert predicted["loaded"] == predicted["total"]
    row = (predicted["baseline"], ask(training.train, unplanned(request), **more)["peak"],
           predicted["total"], ask(training.train, request, **more)["peak"])
    print("%-22s %-6s fusion %-3s  unplanned %9.2f / %9.2f MB, planned %9.2f / %9.2f MB" % (
        name, "Gluon" if gluon else "Module", "on" if fusion else "off",
        *(size / 1e6 for size in row)))
    return row


@pytest.mark.parametrize("gluon", [False, True], ids=["Module", "Gluon"])
@pytest.mark.parametrize("name, fusion", [
    *(pytest.param(name, True, id=name) for name in nets.names() if name not in zoo.DEEPER),
    *(pytest.param(name, False, id=name + "-unfused") for name in sorted(zoo.KINDS))])
def test_table_of_what_is_predicted_and_what_is_taken(ask, tmp_path, name, gluon, fusion):
    if name in NOT_MODULE and not gluon:
        pytest.skip("no loss")
    free, free_taken, planned, planned_taken = table_row(ask, tmp_path, name, gluon, fusion)
    check(free, free_taken)
    check(planned, planned_taken)
    assert planned <= free


@pytest.mark.parametrize("name", sorted(zoo.KINDS))
def test_a_block_that_does_not_keep_its_buffers_takes_no_more(ask, tmp_path, name):
    """Without static_alloc backward may take what forward gave back."""
    free, free_taken, planned, planned_taken = table_row(ask, tmp_path, name, True, True, False)
    for predicted, taken in ((free, free_taken), (planned, planned_taken)):
        assert 0.8 * predicted <= taken <= predicted + max(0.001 * taken, 8192)


@pytest.mark.parametrize("pool", ["Naive", "Round", "Unpooled"])
@pytest.mark.parametrize("budget, gluon", [("90%", False), ("70%", False), ("90%", True)])
def test_a_budget_is_never_exceeded(ask, tmp_path, budget, pool, gluon):
    variables = {"MXNET_GPU_MEM_POOL_TYPE": pool, "MXNET_GPU_MEM_POOL_ROUND_LINEAR_CUTOFF": "21"}
    request = {"name": "resnet18", "batch": 8, "budget": budget, "gluon": gluon,
               "flags": {"static_alloc": True}, "file": str(tmp_path / "p.json")}
    predicted = ask(training.predict, request, **variables)
    taken = ask(training.train, request, **variables)["peak"]
    check(predicted["total"], taken)
    assert taken <= predicted["budget"]


@pytest.mark.parametrize("gluon", [False, True], ids=["Module", "Gluon"])
@pytest.mark.parametrize("memory, batch", [("1200000000", 32), ("2000000000", 32),
                                           ("2600000000", 64), ("16000000000", 256)])
def test_what_is_free_suffices_for_training(ask, tmp_path, memory, batch, gluon):
    """With MXNet's defaults, its tuning of convolutions among them."""
    request = {"name": "resnet50", "batch": batch // 4 if gluon else batch, "budget": "auto",
               "variants": "none", "gluon": gluon, "momentum": 0.9, "seconds": 5,
               "file": str(tmp_path / "plan.json")}
    predicted = ask(training.predict, request, PRETEND_MEMORY=memory)
    taken = ask(training.train, request, PRETEND_MEMORY=memory)["peak"]
    # How much of the optimizer's state is there when convolutions are tuned is chance.
    least = (0.95 if gluon else 0.999) * (predicted["total"] - predicted["tuning"])
    assert least <= taken <= int(memory)


def test_the_largest_batch_trains_and_one_more_does_not(ask, tmp_path):
    memory, file = 400000000, str(tmp_path / "plan.json")
    request = {"name": "resnet18", "batch": 4, "largest": str(memory), "file": file}
    most = ask(training.predict, request)
    assert most["planned"] >= most["unplanned"] > 1
    for more, trains in ((0, True), (1, False)):
        tried = {"name": "resnet18", "batch": most["unplanned"] + more}
        taken = ask(training.train, tried, PRETEND_MEMORY=str(memory))
        assert (taken is not None) == trains
    planned = {"name": "resnet18", "batch": most["planned"], "file": file}
    assert ask(training.train, planned, PRETEND_MEMORY=str(memory)) is not None
    # The plan does not fit a device that has less, and neither does the next batch.
    short = str(most["total"] - (1 << 21))
    assert ask(training.train, planned, PRETEND_MEMORY=short) is None
