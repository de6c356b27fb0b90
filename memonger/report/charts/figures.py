"""Matplotlib's figures, without its global state and without a display, and their files."""
from __future__ import annotations

import io
from typing import Any, Tuple

from ...util.errors import RenderError
from ...util.files import write_whole
from ..formatting import Units, ending_of

FORMATS = ("svg", "png", "pdf")


def axis_unit(units: Units, largest: int) -> Tuple[float, str]:
    """What to divide bytes by on an axis, and the unit's name."""
    if units.plain:
        return 1.0, ""
    for scale, name in ((2.0 ** 30, "GiB"), (2.0 ** 20, "MiB"), (2.0 ** 10, "KiB")):
        if largest >= 2 * scale:
            return scale, name
    return 1.0, "bytes"


def new_figure(width: float, height: float) -> Any:
    """An empty figure that needs neither a display nor pyplot."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise RenderError("this picture needs matplotlib: pip install matplotlib") from error
    figure = Figure(figsize=(width, height), dpi=120)
    FigureCanvasAgg(figure)
    return figure


def save_figure(figure: Any, path: str) -> None:
    """Write a figure, whole or not at all; the same figure gives the same bytes."""
    ending = ending_of(path, FORMATS)
    import matplotlib
    content = io.BytesIO()
    undated = {"svg": {"Date": None}, "pdf": {"CreationDate": None}, "png": {}}[ending]
    with matplotlib.rc_context({"svg.hashsalt": "memonger"}):
        figure.savefig(content, format=ending, metadata=undated)
    write_whole(path, content.getvalue())
