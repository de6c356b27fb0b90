"""Short hashes of texts, for error messages."""
from __future__ import annotations

import hashlib


def of_text(text: str) -> str:
    """The first 16 digits of the SHA-256 of a text."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]
