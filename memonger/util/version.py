"""The version, which pyproject.toml reads here, and those of other distributions."""
from __future__ import annotations

from typing import Optional

__version__ = "0.1.0"


def installed(distribution: str) -> Optional[str]:
    """Version of an installed distribution; None where there is none."""
    from importlib import metadata
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None
