"""Train a residual network on real handwritten digits, without a plan and with one.

    python examples/train_digits.py [--out FOLDER] [--budget 40%] [--epochs N]

The digits are scikit-learn's ``load_digits`` (1,797 scans of 8 x 8). Both runs start from the same
seed and go through ``mx.mod.Module.fit``. ``memonger.verify`` says whether both networks are the
same, and what was predicted stands beside what was measured: the ops are timed first, as ``memonger
profile`` does. With MXNET_MKLDNN_ENABLED=0 the trained parameters are the same bit for bit;
MKLDNN, on by default, rounds otherwise beside other operators, and training enlarges that. Network,
plan, picture and report are left in ``--out``, where the command in the report can be run.
"""
from __future__ import annotations

import argparse
import os
import sys
from typing import Any, Dict, Tuple

os.environ.setdefault("MXNET_STORAGE_FALLBACK_LOG_VERBOSE", "0")
os.environ.setdefault("MXNET_SUBGRAPH_VERBOSE", "0")

import mxnet as mx
import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import memonger
from memonger.mx.profile.run import profile
from memonger.report.formatting import costs_words

SEED, BATCH = 7, 128
#: What a run of EPOCHS reaches at least, with a plan or without.
EPOCHS, ACCURACY = 12, 0.97


def unit(data: Any, filters: int, stride: int, name: str) -> Any:
    """A residual unit: two convolutions, BatchNorm and ReLU, and a way around them."""
    x = mx.sym.Convolution(data, kernel=(3, 3), stride=(stride, stride), pad=(1, 1),
                           num_filter=filters, no_bias=True, name=name + "_conv1")
    x = mx.sym.Activation(mx.sym.BatchNorm(x, fix_gamma=False, name=name + "_bn1"),
                          act_type="relu", name=name + "_relu1")
    x = mx.sym.Convolution(x, kernel=(3, 3), pad=(1, 1), num_filter=filters, no_bias=True,
                           name=name + "_conv2")
    x = mx.sym.BatchNorm(x, fix_gamma=False, name=name + "_bn2")
    if stride != 1:
        data = mx.sym.Convolution(data, kernel=(1, 1), stride=(stride, stride),
                                  num_filter=filters, no_bias=True, name=name + "_around")
    return mx.sym.Activation(x + data, act_type="relu", name=name + "_relu2")


def network(units: int = 3) -> Any:
    """A residual network for 8 x 8 images: two stages of ``units`` residual units."""
    x = mx.sym.Convolution(mx.sym.var("data"), kernel=(3, 3), pad=(1, 1), num_filter=16,
                           no_bias=True, name="conv0")
    x = mx.sym.Activation(mx.sym.BatchNorm(x, fix_gamma=False, name="bn0"), act_type="relu",
                          name="relu0")
    for stage, filters in enumerate((16, 32)):
        for number in range(units):
            stride = 2 if stage and not number else 1
            x = unit(x, filters, stride, "stage%d_unit%d" % (stage + 1, number + 1))
    x = mx.sym.Pooling(x, global_pool=True, kernel=(1, 1), pool_type="avg", name="pool")
    x = mx.sym.FullyConnected(mx.sym.Flatten(x), num_hidden=10, name="fc")
    return mx.sym.SoftmaxOutput(x, name="softmax")


def digits() -> Tuple[Any, Any]:
    """Iterators over training and test digits, the same in every run."""
    data, label = load_digits(return_X_y=True)
    data = (data.reshape(-1, 1, 8, 8) / 16.0).astype("float32")
    parts = train_test_split(data, label.astype("float32"), test_size=0.25, random_state=SEED,
                             stratify=label)
    train = mx.io.NDArrayIter(parts[0], parts[2], BATCH, last_batch_handle="discard")
    return train, mx.io.NDArrayIter(parts[1], parts[3], BATCH)


def train(symbol: Any, epochs: int) -> Tuple[Dict[str, np.ndarray], float]:
    """Train with ``Module.fit``; returns all parameters and the accuracy on the test digits."""
    mx.random.seed(SEED)
    np.random.seed(SEED)
    train_iter, test_iter = digits()
    module = mx.mod.Module(symbol, context=mx.cpu())
    # MXNet's BatchNorm moves its averages in backward without telling the engine, and fit() copies
    # them after each epoch: without the wait, two runs of the same network may differ there.
    module.fit(train_iter, num_epoch=epochs, optimizer="sgd", initializer=mx.init.Xavier(),
               optimizer_params={"learning_rate": 0.1, "momentum": 0.9, "wd": 1e-4},
               batch_end_callback=lambda _: mx.nd.waitall())
    arguments, aux = module.get_params()
    values = {name: array.asnumpy() for name, array in {**arguments, **aux}.items()}
    return values, dict(module.score(test_iter, "acc"))["accuracy"]


def table(plan: Any, measured: Any) -> str:
    """Predicted and measured, without and with the plan."""
    rows = [("", "without a plan", "with the plan"),
            ("predicted: pool", plan.baseline_pool_bytes, plan.pool_bytes),
            ("predicted: total", plan.baseline_total_bytes, plan.total_bytes),
            ("measured: process", measured.original.allocated_bytes, measured.allocated_bytes)]
    lines = []
    for name, before, after in rows:
        cells = [c if isinstance(c, str) else "%.2f MiB" % (c / 2**20) for c in (before, after)]
        lines.append("%-20s %16s %16s" % (name, *cells))
    alone_s = plan.graph.time_s
    for name, before_s, after_s, extra, whose in (
            ("predicted: step time", alone_s, alone_s * (1 + plan.overhead), plan.overhead,
             ", " + costs_words(plan.costs)),
            ("measured: step time", measured.original.step_s, measured.step_s,
             measured.overhead, "")):
        lines.append("%-20s %13.1f ms %13.1f ms   (%+.1f %%%s)" % (
            name, 1e3 * before_s, 1e3 * after_s, 100 * extra, whose))
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", default="out", help="folder for picture and report")
    parser.add_argument("--budget", default="40%", help="largest total, a share or as in 5MB")
    parser.add_argument("--epochs", type=int, default=EPOCHS)
    options = parser.parse_args()
    os.makedirs(options.out, exist_ok=True)
    os.chdir(options.out)
    net = network()
    net.save("digits-symbol.json")
    train_iter, _ = digits()
    shapes = dict(d[:2] for d in train_iter.provide_data + train_iter.provide_label)
    say("measuring how long each op takes")
    times = "profile.json"
    profile(net, shapes, path=times)
    say("planning")
    plan = memonger.plan(net, budget=options.budget, name="digits", costs=times, time_limit=5,
                         data_iter=train_iter, optimizer="sgd",
                         optimizer_params={"momentum": 0.9})
    print(plan)
    results = {}
    for title, symbol in (("without a plan", net), ("with the plan", plan.symbol)):
        say("training %s, %d epochs" % (title, options.epochs))
        results[title] = train(symbol, options.epochs)
        print("%s: %.2f %% of the test digits right" % (title, 100 * results[title][1]))
    plain, planned = results["without a plan"][0], results["with the plan"][0]
    different = [n for n in plain if plain[n].tobytes() != planned[n].tobytes()]
    without_mkldnn = os.environ.get("MXNET_MKLDNN_ENABLED") == "0"
    if without_mkldnn:
        print("trained parameters and aux states: %d of %d differ" % (len(different), len(plain)))
    say("comparing every output and gradient of both networks")
    verified = memonger.verify(plan, net)
    print("outputs, gradients and aux states of %d steps: %s" % (
        verified.steps, "the same bit for bit" if verified.identical else
        "the same within rounding" if verified else "not the same"))
    say("measuring memory and step time of both")
    measured = memonger.measure(plan.symbol, original=net, steps=10, shapes=shapes)
    print(table(plan, measured))
    plan = plan.with_measured(measured.to_dict())
    plan.save("plan.json")
    plan.report("plan.html")
    left = ["digits-symbol.json", times, "plan.json", "plan.html"]
    from memonger.report.charts.timeline import draw_timeline
    from memonger.report.diagram.render import render
    from memonger.util.errors import RenderError
    for draw, name in ((render, "plan.svg"), (draw_timeline, "memory.svg")):
        try:
            draw(plan, name)
            left.append(name)
        except RenderError as error:
            print("no %s: %s" % (name, error))
    print("left %s in %s" % (", ".join(left), options.out))
    verified.check()
    if without_mkldnn and different:
        return failed("training with the plan gave other values of %s" % ", ".join(different[:3]))
    if measured.allocated_bytes >= measured.original.allocated_bytes:
        return failed("the process takes no less memory with the plan")
    worst = min(accuracy for _, accuracy in results.values())
    if worst < ACCURACY:
        return failed("%.2f %% of the test digits are right after --epochs %d, %g %% are expected "
                      "after --epochs %d" % (100 * worst, options.epochs, 100 * ACCURACY, EPOCHS))
    return 0


def say(what: str) -> None:
    """What goes on, for those who wait."""
    sys.stderr.write(what + " ...\n")


def failed(reason: str) -> int:
    sys.stderr.write("error: %s\n" % reason)
    return 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (memonger.errors.MemongerError, OSError) as error:
        sys.exit("error: %s" % error)
