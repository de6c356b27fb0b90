"""What a test cannot run without."""
from __future__ import annotations

import pytest

from memonger import native

needs_plugin = pytest.mark.skipif(not (native.folder() / "libmemonger_mxnet.so").exists(),
                                  reason="the plugin is not built")
