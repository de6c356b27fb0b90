"""Published results of other planners, for ``python -m benchmarks --published``.

* MONeT (Shah et al., ICLR 2021), README of utsaslab/MONeT: PyTorch 1.5 on a P100, all of the
  device's memory, overhead over PyTorch without checkpoints, convolution algorithms chosen too.
* OGC, optimal gradient checkpoint search (Feng and Huang, CVPR 2021), README of
  lordfjw/OptimalGradCheckpointing: PyTorch on a GPU, memory of intermediate tensors only.
* dmlc/mxnet-memonger: its own example, bytes counted by MXNet at binding; time is the recomputed
  share of the forward pass.
"""
from __future__ import annotations

from dataclasses import dataclass
from typing import Dict, Tuple


@dataclass(frozen=True)
class Published:
    """One row of a published table."""

    system: str
    #: Name in our zoo, and the published batch size.
    network: str
    batch: int
    #: What ``unplanned`` and ``planned`` count, in MB of the source: "total" or "pool".
    scope: str
    unplanned: float
    planned: float
    #: Extra step time, 0.1 is +10 %; of the forward pass where ``of_forward``.
    overhead: float
    of_forward: bool = False

    @property
    def share(self) -> float:
        """Planned over unplanned memory."""
        return self.planned / self.unplanned

    @property
    def cut(self) -> float:
        return 1.0 - self.share


def _monet() -> Tuple[Published, ...]:
    tables: Dict[Tuple[str, int, float], str] = {
        ("resnet50", 184, 15.06):
            "10.01 3.22, 9.01 4.68, 8.01 5.56, 6.99 7.28, 6.00 9.31, 4.99 11.95",
        ("googlenet", 320, 14.93):
            "9.98 7.13, 8.99 7.87, 8.01 8.44, 7.02 9.71, 6.01 12.14, 4.99 15.77",
        ("unet", 11, 14.32):
            "10.01 -4.10, 9.01 -2.07, 8.02 -0.09, 7.00 1.39, 6.01 4.95, 5.01 11.51",
        ("mobilenet_v2", 272, 14.46):
            "10.02 2.40, 9.01 3.10, 8.02 4.77, 7.01 5.53, 6.01 7.55, 5.01 8.72",
        ("vgg16", 176, 14.12):
            "9.71 -5.30, 8.66 -4.64, 7.88 -2.18, 6.82 1.99, 5.90 5.44, 5.51 9.11",
    }
    rows = []
    for (network, batch, unplanned), text in tables.items():
        for pair in text.split(","):
            planned, percent = (float(word) for word in pair.split())
            rows.append(Published("MONeT", network, batch, "total", unplanned * 1000,
                                  planned * 1000, percent / 100))
    return tuple(rows)


def _ogc() -> Tuple[Published, ...]:
    rows = (("alexnet", 1024, 4955, 3287, 34), ("vgg11", 64, 3577, 2781, 33),
            ("vgg13", 64, 5136, 3565, 33), ("vgg16", 64, 5136, 3565, 32),
            ("vgg19", 64, 5189, 3565, 33), ("resnet18", 256, 5635, 3677, 30),
            ("resnet34", 128, 4079, 1838, 35), ("resnet50", 64, 5323, 1973, 31),
            ("resnet101", 32, 3934, 1024, 35), ("resnet152", 16, 2767, 526, 37),
            ("densenet121", 32, 4027, 898, 34), ("densenet161", 16, 3751, 666, 36),
            ("densenet169", 32, 4862, 897, 32), ("densenet201", 16, 3146, 474, 53),
            ("inception_v3", 32, 3074, 881, 29), ("nasnet_cifar10", 64, 5832, 1129, 31),
            ("amoebanet_cifar10", 64, 4944, 1058, 36), ("darts_cifar10", 64, 5627, 1115, 55))
    return tuple(Published("OGC", network, batch, "pool", unplanned, planned, percent / 100)
                 for network, batch, unplanned, planned, percent in rows)


PUBLISHED: Tuple[Published, ...] = (
    *_monet(), *_ogc(),
    Published("dmlc", "dmlc_resnet50", 32, "pool", 4899, 1658, 0.93, of_forward=True))
