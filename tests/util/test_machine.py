"""What Linux says of this machine and of this process."""
from __future__ import annotations

from pathlib import Path

import numpy as np

from memonger.util import machine

MIB = 1 << 20


def test_the_machine_is_described():
    assert machine.cpu_name() and "\n" not in machine.cpu_name()
    lines = Path("/proc/meminfo").read_text(encoding="utf-8").splitlines()
    total = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemTotal"))
    assert 0 < machine.available_bytes() <= total
    assert machine.is_busy() in (True, False)


def test_the_peak_is_kept_until_it_is_forgotten():
    machine.forget_peak()
    before = machine.peak_resident_bytes()
    np.ones(64 * MIB, dtype="uint8")
    assert machine.peak_resident_bytes() >= before + 60 * MIB
    machine.forget_peak()
    assert machine.resident_bytes() - 8 * MIB <= machine.peak_resident_bytes() < before + 60 * MIB


def test_what_cannot_be_read_is_not_known(monkeypatch):
    monkeypatch.setattr(machine, "_field", lambda path, name: None)
    assert machine.cpu_name() == "unknown CPU" and machine.available_bytes() == 0
    assert machine.peak_resident_bytes() == machine.resident_bytes() > 0
