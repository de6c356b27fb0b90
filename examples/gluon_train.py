"""Train a network of Gluon's model zoo on real handwritten digits, without a plan and with one.

    python examples/gluon_train.py [--model resnet18_v1] [--budget 90%] [--epochs N]

The digits are scikit-learn's ``load_digits``, shown four times as large. The block is hybridized,
planned with ``memonger.gluon.plan`` and trained with ``gluon.Trainer``; both runs start from the
same seed. With MXNET_MKLDNN_ENABLED=0 their parameters are the same bit for bit; with MKLDNN, on by
default, both are the same network within rounding, as ``memonger.verify`` judges.
"""
from __future__ import annotations

import argparse
import os
import sys
from typing import Any, Dict, Optional, Tuple

os.environ.setdefault("MXNET_STORAGE_FALLBACK_LOG_VERBOSE", "0")

import mxnet as mx
import numpy as np
from mxnet import autograd, gluon
from mxnet.gluon.model_zoo import vision
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import memonger

SEED, BATCH, SCALE = 7, 64, 4


def digits() -> Tuple[Any, Any, Any, Any]:
    """Training and test images (3 x 32 x 32) and labels."""
    data, label = load_digits(return_X_y=True)
    data = (data.reshape(-1, 1, 8, 8) / 16.0).astype("float32")
    data = np.repeat(data.repeat(SCALE, 2).repeat(SCALE, 3), 3, 1)
    return tuple(train_test_split(data, label.astype("float32"), test_size=0.25,
                                  random_state=SEED, stratify=label))


def train(model: str, epochs: int, budget: Optional[str],
          planned: bool) -> Tuple[Dict[str, np.ndarray], float, Any]:
    """Train one network; returns its parameters, its accuracy on the test digits and the plan."""
    mx.random.seed(SEED)
    np.random.seed(SEED)
    net = vision.get_model(model, classes=10, prefix="net_")
    net.initialize(mx.init.Xavier())
    net.hybridize(static_alloc=True)
    plan = memonger.gluon.plan(net, (BATCH, 3, 8 * SCALE, 8 * SCALE), budget=budget) \
        if planned else None
    train_data, test_data, train_label, test_label = digits()
    loss = gluon.loss.SoftmaxCrossEntropyLoss()
    trainer = gluon.Trainer(net.collect_params(), "sgd",
                            {"learning_rate": 0.02, "momentum": 0.9, "wd": 1e-4})
    order = np.random.RandomState(SEED)
    for _ in range(epochs):
        shuffled = order.permutation(len(train_data))
        for start in range(0, len(shuffled) - BATCH + 1, BATCH):
            chosen = shuffled[start:start + BATCH]
            with autograd.record():
                value = loss(net(mx.nd.array(train_data[chosen])),
                             mx.nd.array(train_label[chosen]))
            value.backward()
            mx.nd.waitall()  # MXNet moves BatchNorm's averages behind the engine's back
            trainer.step(BATCH)
    outputs = np.concatenate([net(mx.nd.array(test_data[i:i + BATCH])).asnumpy()
                              for i in range(0, len(test_data), BATCH)])
    accuracy = float((outputs.argmax(1) == test_label).mean())
    values = {name: p.data().asnumpy() for name, p in net.collect_params().items()}
    return values, accuracy, plan


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="resnet18_v1", help="name in gluon.model_zoo.vision")
    parser.add_argument("--budget", help="largest total; without one: the smallest pool")
    parser.add_argument("--epochs", type=int, default=3)
    options = parser.parse_args()
    plain, accuracy, _ = train(options.model, options.epochs, None, False)
    print("without a plan: %.2f %% of the test digits right" % (100 * accuracy))
    values, accuracy, plan = train(options.model, options.epochs, options.budget, True)
    print(plan)
    print("with the plan: %.2f %% of the test digits right" % (100 * accuracy))
    if os.environ.get("MXNET_MKLDNN_ENABLED") == "0":
        different = [n for n in plain if plain[n].tobytes() != values[n].tobytes()]
        print("parameters and running averages: %d of %d differ" % (len(different), len(plain)))
        return 1 if different else 0
    memonger.verify(plan).check()
    print("both are the same network within rounding")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except memonger.errors.MemongerError as error:
        sys.exit("error: %s" % error)
