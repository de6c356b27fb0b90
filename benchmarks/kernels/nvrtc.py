"""NVRTC from wherever it is installed, for the native core to load."""
from __future__ import annotations

import ctypes
import ctypes.util
import glob
import os
import sys
from pathlib import Path
from typing import List


def places() -> List[str]:
    """Where a libnvrtc may be: MEMONGER_NVRTC, pip's packages, PyTorch's, a toolkit, the system."""
    found = [os.environ.get("MEMONGER_NVRTC", "")]
    for folder in sys.path:
        for inside in ("nvidia/*/lib", "torch/lib"):
            found += sorted(glob.glob(os.path.join(folder, inside, "libnvrtc[.-]*so*")))
    found += sorted(glob.glob("/usr/local/cuda*/lib64/libnvrtc.so*"))
    found.append(ctypes.util.find_library("nvrtc") or "")
    return [place for place in found if place and "builtins" not in place]


def choose() -> None:
    """Have MEMONGER_NVRTC name the first that loads; nothing where there is none."""
    for place in places():
        try:
            for beside in glob.glob(str(Path(place).parent / "libnvrtc-builtins.so*")):
                ctypes.CDLL(beside, mode=ctypes.RTLD_GLOBAL)
            ctypes.CDLL(place)
        except OSError:
            continue
        os.environ["MEMONGER_NVRTC"] = place
        return
