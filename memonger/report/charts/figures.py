"""Matplotlib's figures, without its global state and without a display, and their files."""
from __future__ import annotations

import io
from typing import Any, List, Sequence, Tuple

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


def spread(heights: Sequence[float], gap: float, top: float) -> List[float]:
    """Heights moved as little as needed to lie ``gap`` apart, from 0 to ``top`` where they fit.

    The order stays; equal heights stay in the order of the sequence.
    """
    order = sorted(range(len(heights)), key=lambda i: heights[i])
    moved = list(heights)
    ceiling = top
    for i in reversed(order):
        moved[i] = min(moved[i], ceiling)
        ceiling = moved[i] - gap
    floor = 0.0
    for i in order:
        moved[i] = max(moved[i], floor)
        floor = moved[i] + gap
    return moved


def label_beside(axes: Any, labels: Sequence[Tuple[float, str, str]], size: float = 8.5) -> None:
    """Write labels to the right of the axes: height on the axis, words, colour."""
    points = 72 * axes.get_position().height * axes.figure.get_figheight()
    top = axes.get_ylim()[1]
    at = spread([height for height, _, _ in labels], top * 1.35 * size / points, top)
    right = axes.get_xlim()[1]
    for (height, words, colour), moved in zip(labels, at):
        axes.annotate(words, (right, height), xytext=(1.025, moved / top),
                      textcoords="axes fraction", color=colour, fontsize=size, va="center",
                      annotation_clip=False,
                      arrowprops={"arrowstyle": "-", "color": colour, "linewidth": 0.6,
                                  "shrinkA": 0, "shrinkB": 0, "relpos": (0, 0.5)})


def save_figure(figure: Any, path: str) -> None:
    """Write a figure, whole or not at all; the same figure gives the same bytes."""
    ending = ending_of(path, FORMATS)
    import matplotlib
    content = io.BytesIO()
    undated = {"svg": {"Date": None}, "pdf": {"CreationDate": None}, "png": {}}[ending]
    with matplotlib.rc_context({"svg.hashsalt": "memonger"}):
        figure.savefig(content, format=ending, metadata=undated)
    write_whole(path, content.getvalue())
