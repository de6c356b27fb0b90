"""Checks and times our GPU kernels on any device, without MXNet.

``python -m benchmarks.kernels --check --time`` needs the core library
(``python plugins/build.py --core``), NumPy, a driver and NVRTC. Without a
device ``tests/gpu`` runs the kernels on the CPU.

Kernels are the files that the plugin launches; their arguments and launch shapes are read from the
header that the plugin is compiled with (:mod:`.sources`).
"""
from __future__ import annotations
