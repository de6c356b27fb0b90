"""Imports MXNet, or says how to install it; the switches of MXNet in the environment."""
from __future__ import annotations

import logging
import os
from typing import Any

from ...util.cuda_libraries import advice
from ...util.errors import MemongerError

logger = logging.getLogger("memonger")


def mxnet() -> Any:
    """The ``mxnet`` module.

    Raises MemongerError if it is not installed or does not import, saying what to install.
    """
    # MXNet reads these once, at its first bind. Unset, it reports every bind on standard error, and
    # with MKLDNN off it warns of copies that it does not make.
    os.environ.setdefault("MXNET_SUBGRAPH_VERBOSE", "0")
    if not mkldnn_is_on():
        os.environ.setdefault("MXNET_STORAGE_FALLBACK_LOG_VERBOSE", "0")
    try:
        import mxnet as mx
    except ImportError as error:
        raise MemongerError("memonger needs MXNet 1.9.1: pip install mxnet==1.9.1, or "
                            "mxnet-cu112==1.9.1 for a GPU (one of them, not both); it said: %s"
                            % error) from error
    except OSError as error:  # mxnet-cu112 without one of the CUDA libraries
        raise MemongerError("MXNet does not import (%s); %s" % (
            error, advice(str(error)) or "memonger doctor says what is there")) from error
    except AttributeError as error:  # numpy >= 1.24 has no numpy.bool
        raise MemongerError("MXNet 1.9.1 does not import (%s); it needs numpy < 1.24: "
                            "pip install 'numpy<1.24'" % error) from error
    return mx


def mkldnn_is_on() -> bool:
    """Whether MXNet uses MKLDNN's operators where it was built with them."""
    return is_on("MXNET_MKLDNN_ENABLED")


def is_on(name: str) -> bool:
    """Whether a switch of MXNet that is on by default is on, as MXNet reads it."""
    return os.environ.get(name, "").lower() not in ("0", "false")


def mirrors_by_itself() -> bool:
    """Whether executors of networks without marks run ops again by MXNet's own rule."""
    return os.environ.get("MXNET_BACKWARD_DO_MIRROR", "") not in ("", "0")
