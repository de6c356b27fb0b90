"""What a test cannot run without."""
from __future__ import annotations

import os

import pytest

from memonger import native

needs_plugin = pytest.mark.skipif(not (native.folder() / "libmemonger_mxnet.so").exists(),
                                  reason="the plugin is not built")

#: What memonger advises where its libraries are not there.
BUILD_ADVICE = "reinstall memonger" if "MEMONGER_TEST_INSTALLED" in os.environ \
    else "python plugins/build.py (it needs g++"
