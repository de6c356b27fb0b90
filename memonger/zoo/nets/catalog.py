"""What is published about each network of the zoo: set-up, parameter count, and where from.

``parameters`` counts what is trained (weights, biases, gamma and beta), for the options of the
row, and is what ``tests/zoo/test_nets.py`` compares with the symbol. ``source`` says where the
number comes from. "torchvision" numbers are those of its model documentation.
"""
from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Dict, Mapping, Tuple


@dataclass(frozen=True)
class Spec:
    """One row of the catalog."""

    #: Module of this package and the function in it.
    family: str
    builder: str
    options: Mapping[str, Any]
    #: Published batch size and shape of one example.
    batch: int
    input: Tuple[int, ...]
    parameters: int
    source: str


@dataclass(frozen=True)
class Net:
    """A built network."""

    name: str
    #: ``mx.sym.Symbol`` with the loss on top.
    symbol: Any
    #: Shapes of all inputs, data and labels, for ``infer_shape``.
    shapes: Dict[str, Tuple[int, ...]]
    batch: int
    spec: Spec = field(repr=False)

    @property
    def parameters(self) -> int:
        """Number of trained parameters of this symbol (not of the paper: ``spec.parameters``)."""
        arguments, _, _ = self.symbol.infer_shape(**self.shapes)
        total = 0
        for name, shape in zip(self.symbol.list_arguments(), arguments):
            if name not in self.shapes:
                size = 1
                for extent in shape:
                    size *= extent
                total += size
        return total


_IMAGE = (3, 224, 224)
CATALOG: Dict[str, Spec] = {}


def _model_zoo(name: str, model: str, batch: int, parameters: int, source: str = "torchvision",
               image: int = 224, **options: Any) -> None:
    CATALOG[name] = Spec("traced", "model_zoo", {"model": model, "image": image, **options}, batch,
                         (3, image, image), parameters, source)


_model_zoo("alexnet", "alexnet", 1024, 61100840)
for _depth, _batch, _plain, _bn in ((11, 64, 132863336, 132868840), (13, 64, 133047848, 133053736),
                                    (16, 64, 138357544, 138365992),
                                    (19, 64, 143667240, 143678248)):
    _model_zoo("vgg%d" % _depth, "vgg%d" % _depth, _batch, _plain)
    _model_zoo("vgg%d_bn" % _depth, "vgg%d_bn" % _depth, _batch, _bn)
# The model zoo's bottleneck blocks carry biases on their 1x1 convolutions, which torchvision's
# and the paper's do not: 5/4 of the sum of the blocks' output channels.
for _depth, _batch, _count, _biases in ((18, 256, 11689512, 0), (34, 128, 21797672, 0),
                                        (50, 64, 25557032, 18880), (101, 32, 44549160, 40640),
                                        (152, 16, 60192808, 59840)):
    _model_zoo("resnet%d" % _depth, "resnet%d_v1" % _depth, _batch, _count + _biases,
               "torchvision %d%s" % (_count, ", and %d biases" % _biases if _biases else ""))
for _depth, _batch, _count, _all in (
        (18, 256, 11687854, 11695796), (34, 128, 21796014, 21811380),
        (50, 64, 25549486, 25595060), (101, 32, 44541614, 44639412),
        (152, 16, 60185262, 60329140)):
    _model_zoo("resnet%d_v2" % _depth, "resnet%d_v2" % _depth, _batch, _count,
               "documentation of MXNet's model zoo: %d with the running statistics" % _all)
for _depth, _batch, _count in ((121, 32, 7978856), (161, 16, 28681000), (169, 32, 14149480),
                               (201, 16, 20013928)):
    _model_zoo("densenet%d" % _depth, "densenet%d" % _depth, _batch, _count)
_model_zoo("inception_v3", "inceptionv3", 32, 23834568,
           "torchvision 27161264, less 3326696 of the auxiliary classifier", image=300)
_model_zoo("mobilenet", "mobilenet1.0", 64, 4231976, "arXiv 1704.04861: 4.2 million")
_model_zoo("mobilenet_v2", "mobilenetv2_1.0", 272, 3504960,
           "torchvision 3504872, less 1000 biases of the classifier, and 1088 of a first expansion "
           "by 1 that torchvision leaves out")
_model_zoo("squeezenet1_0", "squeezenet1.0", 64, 1248424)
_model_zoo("squeezenet1_1", "squeezenet1.1", 64, 1235496)

for _name, _blocks, _count, _source in (
        ("dmlc_resnet50", (3, 4, 6, 3), 25583592,
         "torchvision's ResNet-50 25557032, and 26560 biases of convolutions"),
        ("dmlc_resnet200", (3, 24, 36, 3), 64761832,
         "ResNet-200 64673832 (arXiv 1603.05027), and 88000 biases of convolutions")):
    CATALOG[_name] = Spec("dmlc", "resnet", {"blocks": _blocks}, 32, _IMAGE, _count, _source)
CATALOG["dmlc_lstm"] = Spec(
    "dmlc", "lstm", {}, 64, (1000, 50), 38763400,
    "50*1024 + 4 * (2*4096*1024 + 2*4096) + 5000*1025, the example's sizes")

for _steps in (35, 200, 500):
    CATALOG["lstm_lm_%d" % _steps] = Spec(
        "recurrent", "language_model", {"steps": _steps}, 20, (_steps,), 19780400,
        "the medium model of arXiv 1409.2329: 20 million")
CATALOG["gru_attention"] = Spec(
    "recurrent", "encoder_decoder", {}, 80, (50,), 80452000,
    "arXiv 1409.0473, the sum in recurrent.encoder_decoder for its sizes")
CATALOG["transformer"] = Spec(
    "transformer", "encoder", {}, 8, (512,), 109483778,
    "BERT base (arXiv 1810.04805) 109482240 with pooler, and 1538 of a classifier of two")
CATALOG["transformer_96"] = Spec(
    "transformer", "encoder", {"layers": 96}, 8, (512,), 704865026,
    "as transformer, and 84 more layers of 7087872")
CATALOG["attention_small"] = Spec(
    "transformer", "small", {}, 4, (16, 8), 15044,
    "the sum in transformer.small")
CATALOG["googlenet"] = Spec("googlenet", "googlenet", {}, 320, _IMAGE, 6624904,
                            "torchvision, without auxiliary classifiers")
CATALOG["googlenet_three_losses"] = Spec(
    "googlenet", "googlenet", {"side_losses": True}, 320, _IMAGE, 13004888, "torchvision")
CATALOG["unet"] = Spec("unet", "unet", {}, 11, (3, 416, 608), 17267393,
                       "milesial/Pytorch-UNet with biases, one class")
for _name, _genotype, _count, _source in (
        ("nasnet_cifar10", "nasnet_a", 3830950,
         "counted by hand in tests/zoo/test_nets.py; in its paper's narrower frame 3.3 million"),
        ("amoebanet_cifar10", "amoebanet_a", 3145078,
         "counted by hand in tests/zoo/test_nets.py; 3.2 million in its paper"),
        ("darts_cifar10", "darts", 3349342, "quark0/darts, evaluation of the second order: 3.35")):
    CATALOG[_name] = Spec("cells", "cifar", {"genotype": _genotype}, 64, (3, 32, 32), _count,
                          _source)
CATALOG["amoebanet_d"] = Spec("cells", "amoebanet_d", {}, 64, _IMAGE, 81505540,
                              "(18, 208): 82 million in GPipe's table 1 (arXiv 1811.06965), 81.5 "
                              "million in torchgpipe")
CATALOG["gan"] = Spec("gan", "dcgan", {}, 128, (3, 64, 64), 3576704 + 2765568,
                      "PyTorch's DCGAN example: 3576704 and 2765568")
