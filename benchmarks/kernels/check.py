"""Runs launches on a device and compares: results, inputs, and the memory around them."""
from __future__ import annotations

from typing import Dict, Iterable, List, Sequence, Tuple

import numpy as np

from memonger.util.errors import PluginError

from .cases import Case, Out
from .devices import Device
from .sources import BITS, kernels

#: Bytes of garbage before and behind each array. Half of the arrays lie one item off 16 bytes, so
#: an array's item is as large as what the kernel reads of it at once.
_GUARD = 256
_GARBAGE = 0x5A


class Memory:
    """An array on a device between guards."""

    def __init__(self, device: Device, data: np.ndarray, aligned: bool) -> None:
        self.device, self.data = device, data
        self._first = _GUARD + (0 if aligned else max(data.itemsize, 1))
        whole = np.full(self._first + data.nbytes + _GUARD, _GARBAGE, np.uint8)
        whole[self._first:self._first + data.nbytes] = np.frombuffer(data.tobytes(), np.uint8)
        self._base, self._size = device.put(whole), whole.size
        self.address = self._base + self._first

    def read(self) -> Tuple[np.ndarray, bool]:
        """What is there now, and whether the guards are untouched."""
        whole = self.device.get(self._base, self._size)
        end = self._first + self.data.nbytes
        clean = bool((whole[:self._first] == _GARBAGE).all() and (whole[end:] == _GARBAGE).all())
        return whole[self._first:end].copy().view(self.data.dtype), clean

    def free(self) -> None:
        self.device.free(self._base)


def same(found: np.ndarray, expected: np.ndarray, absolute: float = 0.0) -> bool:
    """Bit for bit but for NaN, or within a distance."""
    found, expected = found.reshape(-1), expected.reshape(-1)
    if found.dtype.kind != "f":
        return bool((np.abs(found.astype("int64") - expected) <= absolute).all()
                    if absolute else (found == expected).all())
    if absolute:
        return bool(np.allclose(found.astype("float64"), expected, rtol=0, atol=absolute,
                                equal_nan=True))
    bits = "u%d" % found.itemsize
    return bool(((found.view(bits) == expected.view(bits)) |
                 (np.isnan(found) & np.isnan(expected))).all())


def run(device: Device, case: Case, made: Dict[Tuple[str, str], np.ndarray],
        aligned: bool = True) -> List[str]:
    """Launch once; what is wrong. What came out goes to ``made``, by kernel and parameter."""
    kernel = kernels()[case.kernel]
    memory: Dict[str, Memory] = {}
    for name, value in case.arguments.items():
        data = value.before if isinstance(value, Out) else \
            made[value] if isinstance(value, tuple) else value
        if isinstance(data, np.ndarray):
            memory[name] = Memory(device, data, aligned)
    arguments = []
    for name, _ in kernel.parameters:
        value = case.arguments[name]
        owner = value if isinstance(value, str) else name
        arguments.append(memory[owner].address if owner in memory else value)
    device.launch(kernel, BITS[case.dtype], case.blocks, arguments)
    wrong = []
    for name, place in memory.items():
        value = case.arguments[name]
        found, clean = place.read()
        place.free()
        if not clean:
            wrong.append("%s: memory around %s was written" % (case, name))
        if isinstance(value, Out):
            made[case.kernel, name] = found
            if not same(found, value.after, value.absolute):
                wrong.append("%s: %s is wrong" % (case, name))
        elif not np.array_equal(found.view(np.uint8), place.data.reshape(-1).view(np.uint8)):
            wrong.append("%s: the input %s was written" % (case, name))
    return wrong


def check(devices: Sequence[Device], cases: Iterable[List[Case]]) -> Tuple[int, List[str]]:
    """Run all cases on every device, in aligned memory and not.

    Devices must agree to the bit, and so must two runs.

    Returns launches, and what is wrong. Raises PluginError, which names the launch, when one fails.
    """
    launches, wrong = 0, []
    seen = set()
    for together in cases:
        first: Dict[Tuple[str, str], np.ndarray] = {}
        for device in devices:
            for aligned in (True, False):
                made: Dict[Tuple[str, str], np.ndarray] = {}
                for case in together:
                    try:
                        wrong += run(device, case, made, aligned)
                    except PluginError as error:  # no launch works behind a failed one
                        raise PluginError("%s: %s" % (case, error)) from error
                    launches += 1
                    seen.add(case.kernel)
                first = first or made
                wrong += ["%s: %s differs from the first run's" % (together[-1], name)
                          for (_, name), value in made.items()
                          if not same(value, first[_, name])]
    missing = sorted(set(kernels()) - seen)
    return launches, wrong + ["%s was not run" % name for name in missing]
