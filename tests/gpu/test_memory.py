"""The bytes of a GPU: what a plan says is what the pretended GPU hands out, in MXNet's defaults."""
from __future__ import annotations

import json

import pytest

from gpu.test_cu112 import pytestmark, python  # noqa: F401
from memonger.zoo import nets

from . import zoo

FOLDER = zoo.__file__.rpartition("/")[0]
#: Nobody's loss is behind these outputs.
NOT_MODULE = ("dmlc_lstm", "unet", "gan")
#: Batches that make the arrays of a step large beside a page of memory.
BATCH = 8


def ask(folder, what, request, **variables):
    """The answer of training.py; None where memory ran out."""
    done = python(folder, FOLDER + "/training.py", what, json.dumps(request),
                  PRETEND_ALLOCATIONS=str(folder / "allocations"), **variables)
    (folder / "allocations").unlink(missing_ok=True)
    if "out of memory" in done.stdout:
        return None
    assert done.returncode == 0, done.stdout[-3000:]
    return json.loads(done.stdout.strip().splitlines()[-1])


def request_for(name, batch=BATCH, **more):
    family = nets.spec(name).builder
    return {"name": name, "batch": batch, **more,
            "options": {**zoo.SMALL[family], **zoo.SPECIAL.get(name, {})}}


def check(predicted, taken):
    assert abs(taken["peak"] - predicted["total"]) <= 0.001 * taken["peak"]


def check_within(predicted, taken):
    """How much of the optimizer's state is there when convolutions are tuned is chance."""
    least = predicted["total"] - predicted["tuning"]
    assert 0.999 * least <= taken["peak"] <= predicted["total"]


@pytest.mark.parametrize("fusion", ["0", "1"])
@pytest.mark.parametrize("name", [name for name in nets.names()
                                  if name not in zoo.DEEPER and name not in NOT_MODULE])
def test_unplanned_and_planned_networks_take_what_is_predicted(cuda_folder, tmp_path, name, fusion):
    more = {} if fusion == "1" else {"MXNET_USE_FUSION": "0"}
    request = request_for(name)
    planned = {**request, "budget": None, "file": str(tmp_path / "plan.json")}
    predicted = ask(cuda_folder, "plan", planned, **more)
    assert predicted["loaded"] == predicted["total"]
    check({"total": predicted["baseline"]}, ask(cuda_folder, "train", request, **more))
    check(predicted, ask(cuda_folder, "train", planned, **more))


@pytest.mark.parametrize("pool", ["Naive", "Round", "Unpooled"])
@pytest.mark.parametrize("budget", ["90%", "70%", "60%"])
def test_a_budget_is_never_exceeded(cuda_folder, tmp_path, budget, pool):
    variables = {"MXNET_GPU_MEM_POOL_TYPE": pool, "MXNET_GPU_MEM_POOL_ROUND_LINEAR_CUTOFF": "21"}
    request = {"name": "resnet18", "batch": 8, "budget": budget, "file": str(tmp_path / "p.json")}
    predicted = ask(cuda_folder, "plan", request, **variables)
    taken = ask(cuda_folder, "train", request, **variables)
    check(predicted, taken)
    assert taken["peak"] <= predicted["budget"]


@pytest.mark.parametrize("memory, batch", [("1200000000", 32), ("2000000000", 32),
                                           ("2600000000", 64), ("16000000000", 256)])
def test_what_is_free_suffices_for_training(cuda_folder, tmp_path, memory, batch):
    """With MXNet's defaults, its tuning of convolutions among them."""
    request = {"name": "resnet50", "batch": batch, "budget": "auto", "variants": "none",
               "momentum": 0.9, "file": str(tmp_path / "plan.json")}
    predicted = ask(cuda_folder, "plan", request, PRETEND_MEMORY=memory)
    check_within(predicted, ask(cuda_folder, "train", request, PRETEND_MEMORY=memory))


def test_the_largest_batch_trains_and_one_more_does_not(cuda_folder):
    request = {"name": "resnet18", "batch": 4, "largest": "600MB"}
    most = ask(cuda_folder, "plan", request)
    assert most["planned"] >= most["unplanned"] > 1
    for more, trains in ((0, True), (1, False)):
        tried = {**request, "batch": most["unplanned"] + more}
        assert (ask(cuda_folder, "train", tried, PRETEND_MEMORY="600000000") is not None) == trains
