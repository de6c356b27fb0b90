"""Devices by their data sheets: speeds, memory, and how long one op takes by the roofline model.

The model (Williams, Waterman and Patterson 2009) takes the longer of arithmetic and memory traffic,
each at the share of the device's peak that libraries reach.
"""
from __future__ import annotations

from dataclasses import dataclass
from typing import Mapping


@dataclass(frozen=True)
class Device:
    """What the roofline model knows of a device."""

    name: str
    flops_per_s: float
    bytes_per_s: float
    #: Fixed cost of starting one op.
    launch_s: float = 0.0
    #: Products of float16 matrices (tensor cores) and arithmetic in float64.
    half_flops_per_s: float = 0.0
    double_flops_per_s: float = 0.0
    #: Shares of the two peaks that good kernels reach.
    compute_share: float = 1.0
    memory_share: float = 1.0
    #: Whether a second pass over a tensor costs as much as the first.
    second_passes: bool = True
    #: Whether arithmetic and memory traffic of one op hide each other.
    overlaps: bool = True
    #: Its memory, and how many multiprocessors it has; 0 where it is no GPU.
    memory_bytes: int = 0
    multiprocessors: int = 0

    def time_s(self, flops: float, moved_bytes: float, dtype: str = "float32",
               is_matrix: bool = False, calls: int = 1) -> float:
        """Seconds that one op takes, which starts ``calls`` kernels."""
        peak = self.flops_per_s
        if dtype == "float64":
            peak = self.double_flops_per_s or peak / 2
        elif dtype in ("float16", "bfloat16") and is_matrix:
            peak = self.half_flops_per_s or peak
        compute_s = flops / (peak * self.compute_share)
        memory_s = moved_bytes / (self.bytes_per_s * self.memory_share)
        busy_s = max(compute_s, memory_s) if self.overlaps else compute_s + memory_s
        return calls * self.launch_s + busy_s


def _gpu(name: str, tera: float, giga: float, half: float, double: float, memory: int,
         multiprocessors: int) -> Device:
    return Device(name, tera * 1e12, giga * 1e9, 5e-6, half * 1e12, double * 1e12, 0.7, 0.8,
                  memory_bytes=memory * 10**9, multiprocessors=multiprocessors)


#: Peaks and memory of NVIDIA's data sheets (Tesla P100, V100 SXM2, T4, A10, A100 40 GB) and of its
#: white papers on Turing, Ampere GA102 and Ada; dense float16 products summed in float32.
#: ``reference`` is the plain device of the literature and of
#: memonger's own benchmarks: each tensor is read or written once, and nothing overlaps (of the
#: simple models it is the one that gives the reference bounds of CONTRIBUTING.md); ``cpu`` is two
#: cores of the machine memonger was developed on, where each class of ops has a factor of its own.
DEVICES: Mapping[str, Device] = {device.name: device for device in (
    Device("reference", 10e12, 600e9, second_passes=False, overlaps=False),
    _gpu("p100", 10.6, 732, 21.2, 5.3, 16, 56),
    _gpu("v100", 15.7, 900, 125, 7.8, 16, 80),
    _gpu("t4", 8.1, 320, 65, 0.25, 16, 40),
    _gpu("a10", 31.2, 600, 125, 0.49, 24, 72),
    _gpu("a100", 19.5, 1555, 312, 9.7, 40, 108),
    _gpu("rtx2080ti", 13.4, 616, 53.8, 0.42, 11, 68),
    _gpu("rtx3090", 35.6, 936, 71, 0.56, 24, 82),
    _gpu("rtx4090", 82.6, 1008, 165.2, 1.29, 24, 128),
    Device("cpu", 70e9, 5e9, 15e-6, 0.0, 35e9),
)}
