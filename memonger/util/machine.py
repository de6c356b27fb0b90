"""What Linux says of this machine and of this process: its CPU, its load, its memory."""
from __future__ import annotations

import contextlib
import ctypes
import gc
import os
from typing import Optional

_PAGE_BYTES = 4096


def cpu_name() -> str:
    """The model of the CPU."""
    return _field("/proc/cpuinfo", "model name") or "unknown CPU"


def is_busy() -> bool:
    """Whether programs have kept more than all processors busy in the last minute."""
    return os.getloadavg()[0] > len(os.sched_getaffinity(0))


def available_bytes() -> int:
    """Memory that a process may still take; 0 where it is not known."""
    return _kibibytes(_field("/proc/meminfo", "MemAvailable"))


def resident_bytes() -> int:
    """Memory of this process."""
    with open("/proc/self/statm", encoding="utf-8") as file:
        return int(file.read().split()[1]) * _PAGE_BYTES


def peak_resident_bytes() -> int:
    """The most that it was since :func:`forget_peak`."""
    return _kibibytes(_field("/proc/self/status", "VmHWM")) or resident_bytes()


def forget_peak() -> None:
    """Give unused memory back, and reset the kernel's high-water mark."""
    gc.collect()
    getattr(ctypes.CDLL(None), "malloc_trim", int)(0)
    # An old kernel keeps the mark of what was loaded, which is smaller.
    with contextlib.suppress(OSError), open("/proc/self/clear_refs", "w") as file:
        file.write("5")


def _field(path: str, name: str) -> Optional[str]:
    """The first value of a name in a file of ``name: value`` lines."""
    with contextlib.suppress(OSError), open(path, encoding="utf-8") as file:
        for line in file:
            if line.startswith(name):
                return line.split(":", 1)[1].strip()
    return None


def _kibibytes(value: Optional[str]) -> int:
    return int(value.split()[0]) * 1024 if value else 0
