"""MONeT's and OGC's published rows, and what memonger measures at the same share of the memory.

Both were PyTorch tools, and neither runs with a PyTorch of today. Networks and batches are theirs;
a row compares shares of the unplanned step with extra time, each on its own device.
"""
from __future__ import annotations

from typing import Any, Dict, Sequence

from ..mxnet.published import PUBLISHED, Published

SYSTEMS = ("MONeT", "OGC")
#: Systems with networks that are here, too.
PAIRS = (("MONeT", "resnet50"), ("MONeT", "unet"), ("MONeT", "mobilenetv2"),
         ("MONeT", "googlenet"), ("MONeT", "vgg16"), ("OGC", "resnet50"), ("OGC", "densenet121"),
         ("OGC", "vgg16"))


def least(system: str, net: str) -> Published:
    """The published row with the least memory of a network of :data:`.nets.NETS`."""
    return min((row for row in PUBLISHED if row.system == system
                and row.network.replace("_", "") == net), key=lambda row: row.share)


def label(row: Published) -> str:
    """``MONeT's 33 %``."""
    return "%s's %.0f %%" % (row.system, 100 * row.share)


def budget_bytes(row: Published, unplanned: Dict[str, Any]) -> int:
    """The published share of a measured unplanned step, in bytes of our total."""
    before = unplanned["before_bytes"]
    if row.scope == "pool":
        return int(row.share * unplanned["peak_bytes"]) + before
    return int(row.share * (unplanned["peak_bytes"] + before))


def share_of(row: Dict[str, Any], base: Dict[str, Any]) -> float:
    """Measured memory of a step beside the unplanned one, counted as the published row counts."""
    def counted(measured: Dict[str, Any]) -> int:
        return measured["peak_bytes"] + (
            0 if row["published"].scope == "pool" else measured["before_bytes"])
    return counted(row) / counted(base)


def table(pairs: Sequence[Any]) -> str:
    """Markdown; ``pairs`` of a measured row, as the report has it, and its unplanned one."""
    lines = ["| network | published by | memory | extra time | memonger: memory | extra time |",
             "|---|---|---:|---:|---:|---:|"]
    for row, base in pairs:
        theirs = row["published"]
        ours = "%.1f %% | %+.1f %%" % (100 * share_of(row, base),
                                       100 * (row["step_s"] / base["step_s"] - 1)) \
            if "step_s" in row else "%s |" % row["error"].replace("|", "/")
        lines.append("| %s, batch %d | %s | %.1f %% | %+.1f %% | %s |" % (
            row["net"], row["batch"], theirs.system, 100 * theirs.share, 100 * theirs.overhead,
            ours))
    return "\n".join(lines)
