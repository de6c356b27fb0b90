"""The version, which pyproject.toml reads here, and those of other distributions."""
from __future__ import annotations

from typing import Optional

__version__ = "0.1.0"

#: The releases of PyTorch that memonger.torch was tested with, oldest first; none below the first
#: has all that it needs, and those above the last are tried out (memonger/torch/calls/versions.py).
TORCH_VERSIONS = (2, 11), (2, 12), (2, 13), (2, 14), (2, 15)


def installed(distribution: str) -> Optional[str]:
    """Version of an installed distribution; None where there is none."""
    from importlib import metadata
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None
