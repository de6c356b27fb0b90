"""Each test here starts and ends with the plugin switched on."""
from __future__ import annotations

import pytest

from memonger import native


@pytest.fixture(autouse=True)
def plugin_on():
    native.enable()
    yield
    native.enable()
