r"""Train any image network of the zoo on ImageNet-style data in the memory you have.

Synthetic pictures, half of the unplanned memory:

    python examples/imagenet.py --network resnet50 --batch 32 --budget 50% --epochs 1

Record files (made by MXNet's im2rec), two GPUs, checkpoints after each epoch:

    python examples/imagenet.py --network resnet50 --batch 256 --devices gpu0,gpu1 --budget 8GB \
        --records train.rec --validation val.rec --epochs 90 --checkpoint out/resnet50

Does the plan change the numbers, and what does it cost?

    python examples/imagenet.py --network resnet18 --batch 8 --budget 70% --check-diff
    python examples/imagenet.py --network resnet18 --batch 8 --budget 70% --variants none \
        --check-runtime
    python examples/imagenet.py --network resnet18 --batch 8 --budget 70% --compare-loss out/loss

``--batch`` is the sum over all devices; ``--budget`` is for each device.
"""
from __future__ import annotations

import argparse
import csv
import logging
import os
import re
import sys
from typing import Any, List, Optional, Sequence, Tuple

import mxnet as mx
import numpy as np

import memonger
from memonger.zoo import nets


class SyntheticPictures(mx.io.DataIter):
    """Noise around one pattern a class: the same numbers for the same seed, and learnable."""

    def __init__(self, batch: int, shape: Sequence[int], classes: int, batches: int,
                 seed: int = 0) -> None:
        super().__init__(batch)
        self.shape, self.classes, self.batches, self.seed = tuple(shape), classes, batches, seed
        coarse = np.random.RandomState(seed).standard_normal((min(classes, 16), shape[0], 4, 4))
        tall, wide = (-(-side // 4) for side in shape[1:])
        self.patterns = np.kron(coarse, np.ones((tall, wide)))[:, :, :shape[1], :shape[2]]
        self.provide_data = [mx.io.DataDesc("data", (batch, *shape))]
        self.provide_label = [mx.io.DataDesc("softmax_label", (batch,))]
        self.position = 0

    def reset(self) -> None:
        self.position = 0

    def next(self) -> mx.io.DataBatch:
        if self.position == self.batches:
            raise StopIteration
        random = np.random.RandomState([self.seed, self.position])
        self.position += 1
        label = random.randint(0, len(self.patterns), self.batch_size)
        data = self.patterns[label] + 0.5 * random.standard_normal((self.batch_size, *self.shape))
        return mx.io.DataBatch([mx.nd.array(data)], [mx.nd.array(label)], pad=0)


class LossCurve:
    """Cross-entropy of each batch; a callback for the ends of batches."""

    def __init__(self) -> None:
        self.metric = mx.metric.CrossEntropy(name="loss")
        self.values: List[float] = []
        self.seen = (0.0, 0)

    def __call__(self, state: Any) -> None:
        total, count = float(self.metric.sum_metric), int(self.metric.num_inst)
        before = self.seen if count > self.seen[1] else (0.0, 0)
        self.values.append((total - before[0]) / (count - before[1]))
        self.seen = (total, count)


def parse_arguments(argv: Optional[Sequence[str]] = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--network", default="resnet50", help="a network of the zoo (default: %(default)s)")
    add("--batch", type=int, help="batch size over all devices (default: the published one)")
    add("--image", type=int, help="height and width (default: the published ones)")
    add("--budget", help="memory for each device: 4GB, 4GiB, 60%% (default: no plan)")
    add("--variants", choices=("none", "exact", "all"), default="exact")
    add("--save-plan", metavar="FILE", help="write the plan as JSON")
    add("--devices", default="cpu0", help="such as cpu0 or gpu0,gpu1 (default: %(default)s)")
    add("--records", metavar="FILE", help="training pictures (default: synthetic)")
    add("--validation", metavar="FILE", help="record file of validation pictures")
    add("--workers", type=int, default=4, help="threads that decode pictures")
    add("--epochs", type=int, default=1)
    add("--batches", type=int, default=20, help="synthetic batches in an epoch")
    add("--rate", type=float, default=0.1, help="learning rate for a batch of 256")
    add("--momentum", type=float, default=0.9)
    add("--decay", type=float, default=1e-4, help="weight decay")
    add("--checkpoint", metavar="PREFIX", help="write PREFIX-symbol.json and PREFIX-0001.params")
    add("--resume", type=int, metavar="EPOCH", help="continue from this checkpoint")
    add("--seed", type=int, default=1)
    add("--check-diff", action="store_true", help="compare planned and original training, stop")
    add("--check-runtime", action="store_true", help="measure planned and original, stop")
    add("--compare-loss", metavar="PREFIX",
        help="train original and planned from the same start, write PREFIX.csv and PREFIX.svg")
    arguments = parser.parse_args(argv)
    if arguments.budget is None and (arguments.check_diff or arguments.check_runtime
                                     or arguments.compare_loss):
        parser.error("there is nothing to compare without --budget")
    if arguments.validation and not arguments.records:
        parser.error("--validation needs --records")
    if arguments.resume is not None and not arguments.checkpoint:
        parser.error("--resume needs --checkpoint")
    needed = [arguments.records, arguments.validation]
    if arguments.resume is not None:
        needed += [arguments.checkpoint + end for end in (
            "-symbol.json", "-%04d.params" % arguments.resume)]
    for path in needed:
        if path and not os.path.exists(path):
            parser.error("there is no file %s" % path)
    if arguments.batches < 1 or arguments.epochs <= (arguments.resume or 0):
        parser.error("there is nothing to train: --batches must be above 0, --epochs above "
                     "--resume")
    if not re.fullmatch(r"(cpu|gpu)\d*(,(cpu|gpu)\d*)*", arguments.devices):
        parser.error("cannot read the devices %r; write cpu0 or gpu0,gpu1" % arguments.devices)
    return arguments


def contexts(names: str) -> List[mx.Context]:
    """``"gpu0,gpu1"`` to MXNet's contexts."""
    return [mx.Context(name[:3], int(name[3:] or 0)) for name in names.split(",")]


def build(arguments: argparse.Namespace, devices: int) -> Tuple[nets.Net, nets.Net]:
    """The network at the whole batch, and as one device sees it."""
    batch = arguments.batch or nets.spec(arguments.network).batch
    if batch % devices:
        sys.exit("error: a batch of %d cannot be split over %d devices evenly" % (batch, devices))
    options = {"image": arguments.image} if arguments.image else {}
    whole = nets.build(arguments.network, batch, **options)
    if set(whole.shapes) != {"data", "softmax_label"} or len(whole.shapes["data"]) != 4:
        sys.exit("error: %s does not classify pictures; this example trains those that do"
                 % arguments.network)
    return whole, nets.build(arguments.network, batch // devices, **options)


def pictures(arguments: argparse.Namespace, net: nets.Net, classes: int,
             ) -> Tuple[mx.io.DataIter, Optional[mx.io.DataIter]]:
    """Iterators for training and validation."""
    shape = net.shapes["data"][1:]
    if not arguments.records:
        return (SyntheticPictures(net.batch, shape, classes, arguments.batches, arguments.seed),
                None)
    common = {"data_shape": shape, "batch_size": net.batch, "label_name": "softmax_label",
              "mean_r": 123.68, "mean_g": 116.78, "mean_b": 103.94,
              "std_r": 58.39, "std_g": 57.12, "std_b": 57.38,
              "preprocess_threads": arguments.workers}
    train = mx.io.ImageRecordIter(
        path_imgrec=arguments.records, shuffle=True, rand_mirror=True, random_resized_crop=True,
        min_random_area=0.08, max_aspect_ratio=4 / 3, min_aspect_ratio=3 / 4,
        seed=arguments.seed, **common)
    if not arguments.validation:
        return train, None
    return train, mx.io.ImageRecordIter(path_imgrec=arguments.validation, shuffle=False,
                                        resize=max(shape[1:]) * 8 // 7, round_batch=False,
                                        **common)


def initial_parameters(net: nets.Net, symbol: Any, seed: int) -> Tuple[dict, dict]:
    """The same start for every symbol of the same network."""
    mx.random.seed(seed)
    np.random.seed(seed)
    module = mx.mod.Module(symbol, context=mx.cpu())
    label = net.shapes["softmax_label"]
    module.bind([("data", (1, *net.shapes["data"][1:]))], [("softmax_label", (1, *label[1:]))],
                for_training=False)
    module.init_params(mx.init.Xavier(rnd_type="gaussian", factor_type="in", magnitude=2))
    return module.get_params()


def train(symbol: Any, original: Any, net: nets.Net, arguments: argparse.Namespace,
          devices: List[mx.Context], classes: int, parameters: Tuple[dict, dict],
          begin: int = 0) -> List[float]:
    """Train ``symbol``; returns the loss of each batch. Checkpoints hold the original symbol."""
    batches, validation = pictures(arguments, net, classes)
    curve = LossCurve()
    metric = mx.metric.CompositeEvalMetric([mx.metric.Accuracy(), curve.metric])

    def checkpoint(epoch: int, _: Any, weights: dict, states: dict) -> None:
        folder = os.path.dirname(arguments.checkpoint)
        if folder:
            os.makedirs(folder, exist_ok=True)
        mx.model.save_checkpoint(arguments.checkpoint, epoch + 1, original, weights, states)

    mx.random.seed(arguments.seed)
    module = mx.mod.Module(symbol, context=devices)
    module.fit(
        batches, eval_data=validation, eval_metric=metric, num_epoch=arguments.epochs,
        begin_epoch=begin, arg_params=parameters[0], aux_params=parameters[1],
        kvstore="device" if len(devices) > 1 else None,
        optimizer="sgd", optimizer_params={
            "learning_rate": arguments.rate * net.batch / 256, "momentum": arguments.momentum,
            "wd": arguments.decay, "rescale_grad": 1.0 / net.batch},
        batch_end_callback=[curve, mx.callback.Speedometer(net.batch, 10, auto_reset=False)],
        epoch_end_callback=checkpoint if arguments.checkpoint else None)
    return curve.values


def write_curves(prefix: str, original: List[float], planned: List[float]) -> None:
    """Both curves as CSV, and as SVG where matplotlib is installed."""
    folder = os.path.dirname(prefix)
    if folder:
        os.makedirs(folder, exist_ok=True)
    with open(prefix + ".csv", "w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["batch", "original", "planned"])
        table.writerows([i, a, b] for i, (a, b) in enumerate(zip(original, planned), 1))
    try:
        import matplotlib
    except ImportError:
        return
    matplotlib.use("Agg")
    from matplotlib import pyplot
    figure, axes = pyplot.subplots()
    axes.plot(original, label="original", linewidth=3, alpha=0.4)
    axes.plot(planned, label="planned", linewidth=1)
    axes.set_xlabel("batch")
    axes.set_ylabel("cross-entropy")
    axes.legend()
    figure.savefig(prefix + ".svg")
    pyplot.close(figure)


def main(argv: Optional[Sequence[str]] = None) -> int:
    try:
        return run(parse_arguments(argv))
    except mx.base.MXNetError as error:  # no such device, a damaged record file, ...
        sys.stderr.write("error: MXNet: %s\n" % str(error).strip().splitlines()[-1])
        return 1
    except memonger.errors.MemongerError as error:
        sys.stderr.write("error: %s\n" % error)
        return 3 if isinstance(error, memonger.errors.InfeasibleBudget) else 1


def run(arguments: argparse.Namespace) -> int:
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    devices = contexts(arguments.devices)
    whole, part = build(arguments, len(devices))
    classes = whole.symbol.infer_shape(**whole.shapes)[1][0][1]
    symbol = original = whole.symbol
    if arguments.budget:
        plan = memonger.plan(part.symbol, budget=arguments.budget, variants=arguments.variants,
                             optimizer="sgd", optimizer_params={"momentum": arguments.momentum},
                             ctx=devices[0], shapes=part.shapes)
        print(plan)
        symbol = plan.symbol
        if arguments.save_plan:
            plan.save(arguments.save_plan)
    if arguments.check_diff:
        result = memonger.verify(symbol, original, steps=2, ctx=devices[0], shapes=part.shapes)
        print(result)
        return 0 if result else 4
    if arguments.check_runtime:
        print(memonger.measure(symbol, original=original, ctx=devices[0], steps=5,
                               shapes=part.shapes))
        return 0
    if arguments.resume is not None:
        _, weights, states = mx.model.load_checkpoint(arguments.checkpoint, arguments.resume)
        parameters = weights, states
    else:
        parameters = initial_parameters(whole, original, arguments.seed)
    if arguments.compare_loss:
        curves = [train(s, original, whole, arguments, devices, classes, parameters)
                  for s in (original, symbol)]
        write_curves(arguments.compare_loss, *curves)
        apart = max(abs(a - b) for a, b in zip(*curves))
        print("loss after %d batches: original %.6f, planned %.6f; largest difference %.3g"
              % (len(curves[0]), curves[0][-1], curves[1][-1], apart))
        return 0
    losses = train(symbol, original, whole, arguments, devices, classes, parameters,
                   arguments.resume or 0)
    print("loss: %.4f in the first batch, %.4f in the last" % (losses[0], losses[-1]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
