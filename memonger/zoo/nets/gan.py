"""A generative adversarial network: two losses that train disjoint sets of parameters."""
from __future__ import annotations

from typing import Any, Dict, Tuple

import mxnet as mx

Built = Tuple[Any, Dict[str, Tuple[int, ...]]]


def _generator(noise: Any, filters: int, doublings: int, channels: int) -> Any:
    data = noise
    for level in range(doublings, -1, -1):
        last = level == 0
        name = "g%d" % level
        data = mx.sym.Deconvolution(
            data, num_filter=channels if last else filters * 2 ** (level - 1), kernel=(4, 4),
            stride=(1, 1) if level == doublings else (2, 2),
            pad=(0, 0) if level == doublings else (1, 1), no_bias=True, name=name + "_deconv")
        if not last:
            data = mx.sym.BatchNorm(data, fix_gamma=False, name=name + "_bn")
        data = mx.sym.Activation(data, act_type="tanh" if last else "relu", name=name + "_act")
    return data


class _Discriminator:
    """The same parameters for each call; frozen, the gradient passes through to the picture."""

    def __init__(self, filters: int, doublings: int):
        self.filters, self.doublings = filters, doublings
        self.variables: Dict[str, Any] = {}

    def _parameter(self, name: str, frozen: bool) -> Any:
        variable = self.variables.setdefault(name, mx.sym.var(name))
        return mx.sym.BlockGrad(variable) if frozen else variable

    def __call__(self, data: Any, call: str, frozen: bool = False) -> Any:
        for level in range(self.doublings + 1):
            name = "d%d" % level
            last = level == self.doublings
            data = mx.sym.Convolution(
                data, self._parameter(name + "_conv_weight", frozen),
                num_filter=1 if last else self.filters * 2 ** level, kernel=(4, 4),
                stride=(1, 1) if last else (2, 2), pad=(0, 0) if last else (1, 1), no_bias=True,
                name="%s_%s_conv" % (call, name))
            if last:
                return mx.sym.Flatten(data, name=call + "_score")
            if level:
                # Running statistics for each call: two nodes must not write the same ones.
                data = mx.sym.BatchNorm(
                    data, self._parameter(name + "_bn_gamma", frozen),
                    self._parameter(name + "_bn_beta", frozen), fix_gamma=False,
                    name="%s_%s_bn" % (call, name))
            data = mx.sym.LeakyReLU(data, act_type="leaky", slope=0.2,
                                    name="%s_%s_act" % (call, name))
        return data


def dcgan(batch: int, *, image: int = 64, filters: int = 64, noise: int = 100, channels: int = 3,
          ) -> Built:
    """One step of a DCGAN (Radford et al., arXiv 1511.06434), both players at once.

    The discriminator's loss on real and on generated pictures (gradients stop at the picture), and
    the generator's loss through a frozen copy of the discriminator.

    ``image``: a power of two, 16 or more.
    """
    if image < 16 or image & (image - 1):
        raise ValueError("image must be a power of two, 16 or more")
    doublings = image.bit_length() - 3
    made = _generator(mx.sym.var("noise"), filters, doublings, channels)
    judge = _Discriminator(filters, doublings)
    ones, zeros = mx.sym.var("real_label"), mx.sym.var("made_label")
    losses = [
        mx.sym.LogisticRegressionOutput(judge(mx.sym.var("data"), "real"), ones, name="real_loss"),
        mx.sym.LogisticRegressionOutput(judge(mx.sym.BlockGrad(made), "made"), zeros,
                                        name="made_loss"),
        mx.sym.LogisticRegressionOutput(judge(made, "fool", frozen=True), ones, name="fool_loss")]
    return mx.sym.Group(losses), {
        "data": (batch, channels, image, image), "noise": (batch, noise, 1, 1),
        "real_label": (batch, 1), "made_label": (batch, 1)}
