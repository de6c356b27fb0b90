"""``python -m benchmarks picture``: memory against extra time, from the tables of docs/RESULTS.md.

Each panel has one network: plans, and what other methods take for it. All is predicted.
"""
from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import Any, Dict, List, Tuple

from memonger.report.charts.figures import new_figure, save_figure
from memonger.util.errors import InputError

RESULTS = Path(__file__).resolve().parents[1] / "docs" / "RESULTS.md"
OURS = "memonger"
COLOURS = {OURS: "#08519c", "memonger, other operators too": "#3f8fd2"}
OTHERS = ("#b30000", "#e6842a", "#636363", "#7a4fa3")
MARKS = "s^Dv"
#: Percent of the unplanned memory and of extra time.
Points = Dict[str, List[Tuple[float, float]]]


def cells(text: str, header: str, name: str) -> List[List[str]]:
    """The rows that begin with ``name`` of the table whose header begins with ``header``."""
    table = re.search(r"^\| %s.*?(?=\n\n|\n<!--|\Z)" % re.escape(header), text, re.M | re.S)
    found = [[cell.strip() for cell in line.strip("|").split("|")]
             for line in (table.group(0).splitlines()[2:] if table else [])]
    found = [row for row in found if row[0].startswith(name)]
    if not found:
        raise InputError("no row %r in the table %r of %s" % (name, header, RESULTS))
    return found


def torch_points(text: str, name: str) -> Points:
    """Of ``python -m benchmarks torch``: a cell lists shares and extra times."""
    row, = cells(text, "network | ours", name)
    names = (OURS, "PyTorch's memory budget", "checkpoints by hand", "selective checkpoints")
    return {label: [(float(share), float(extra)) for share, extra in
                    re.findall(r"(?<![\d.])(\d+) ([+-][\d.]+)", cell)]
            for label, cell in zip(names, row[1:5])}


def torchtitan_points(text: str) -> Points:
    """Of the table beside torchtitan's policies: its own, and plans in as many bytes."""
    none, *rows = cells(text, "policy | a rank", "")
    whole_mib = 1024 * float(none[1].split()[0])
    return {OURS: [(100 * float(row[3].split()[0]) / whole_mib, float(row[4].split()[0]))
                   for row in rows],
            **{"policy \"%s\"" % row[0]: [(100 * float(row[1].split()[0]) / whole_mib,
                                          float(row[2].split()[0]))] for row in rows}}


def mxnet_points(text: str, name: str) -> Points:
    """Of the table of all methods: a cell has a cut and an extra time."""
    row, = cells(text, "network (batch) | unplanned", name)
    found = [re.match(r"([-\d.]+) %: ([+-][\d.]+) %", cell) for cell in row[2:]]
    mirror, sublinear, chen, ogc, none, *exact = [
        [(100 - float(at.group(1)), float(at.group(2)))] if at else [] for at in found]
    return {OURS: none, "memonger, other operators too": sum(exact, []),
            "MXNet's mirroring": mirror, "dmlc/mxnet-memonger": sublinear,
            "Chen et al.": chen, "Feng and Huang": ogc}


def draw(text: str, path: str) -> None:
    """Draw the panels into a file."""
    figure = new_figure(11.5, 4.1)
    panels = (("Llama, torchtitan", torchtitan_points(text)),
              ("GPT-2 of 48 layers, PyTorch", torch_points(text, "gpt2_48")),
              ("ResNet-50, MXNet", mxnet_points(text, "resnet50")))
    for number, (title, methods) in enumerate(panels, 1):
        axes: Any = figure.add_subplot(1, len(panels), number)
        others = [name for name in methods if name not in COLOURS]
        for name, points in methods.items():
            ours, place = name in COLOURS, others.index(name) if name in others else 0
            axes.plot(*zip(*sorted(points)), marker="o" if ours else MARKS[place],
                      linestyle="-" if ours else "none", label=name, linewidth=1.8,
                      color=COLOURS.get(name, OTHERS[place]), zorder=2 if ours else 3)
        axes.set_title(title, fontsize=12, fontweight="bold")
        axes.set_xlim(0, 110)
        axes.set_ylim(-2, (1.1 + 0.11 * len(methods)) * axes.get_ylim()[1])  # room for the legend
        axes.plot([100], [0], marker="o", color="white", markeredgecolor="black", zorder=4)
        axes.annotate("unplanned", (100, 0), xytext=(0, 7), textcoords="offset points",
                      ha="center", fontsize=9)
        axes.set_xlabel("memory, % of the unplanned step")
        if number == 1:
            axes.set_ylabel("extra time, % (predicted)")
        axes.grid(alpha=0.3)
        axes.legend(fontsize=9, loc="upper right", framealpha=1)
        for side in ("top", "right"):
            axes.spines[side].set_visible(False)
    figure.tight_layout()
    save_figure(figure, path)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-o", "--output", default=str(RESULTS.parent / "pictures" / "methods.png"),
                        help="a .png, .svg or .pdf")


def main(args: argparse.Namespace) -> int:
    draw(RESULTS.read_text("utf-8"), args.output)
    print("left %s" % args.output)
    return 0
