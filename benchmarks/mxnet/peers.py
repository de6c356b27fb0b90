"""``python -m benchmarks peers``: other planners' graphs, planned in their memory model.

Model: fixed order, peak of live bytes, any number of recomputations. The figures beside ours are
those published or proven elsewhere for the same graph and budget: optima of Checkmate's program
(proven by a 0/1 solver), of Moccasin, MONeT's commercial solver after 24 hours on 12 threads. The
graphs are not part of this repository: they are in the subfolder ``graphs`` of the folder given, or
of the environment variable ``MEMONGER_PEERS``.
"""
from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Iterator, List, Optional, Sequence

from memonger.graph.imported import read_graph
from memonger.report.formatting import markdown
from memonger.solve.imported import plan_graph
from memonger.util.errors import InfeasibleBudget, InputError


@dataclass(frozen=True)
class Case:
    """One graph at one budget, with the best value known and who found it."""

    file: str
    #: Share of the unplanned peak, or units of the file.
    budget: float
    #: Cost in the file's units; None where only the overhead is known, and where nothing fits.
    cost: Optional[float]
    #: Extra cost as a percentage.
    overhead_percent: Optional[float]
    source: str
    #: Nothing cheaper exists.
    proven: bool = False
    #: Seconds that our search may take.
    time_limit_s: float = 30.0


@dataclass(frozen=True)
class Row:
    """Our result for a case."""

    case: Case
    #: None: no plan found.
    cost: Optional[float]
    overhead_percent: Optional[float]
    bound_percent: Optional[float]
    seconds: float

    @property
    def reached(self) -> bool:
        """Whether ours is at least as good, to the three digits that are published."""
        if self.case.cost is None and self.case.overhead_percent is None:
            return self.cost is None
        if self.cost is None or self.overhead_percent is None:
            return False
        if self.case.cost is not None:
            return self.cost <= self.case.cost + 1e-9 * abs(self.case.cost)
        assert self.case.overhead_percent is not None
        return round(self.overhead_percent, 3) <= self.case.overhead_percent


def _cases() -> Iterator[Case]:
    checkmate, known = "Checkmate 0/1 program, proven", "best known"
    for file, budget, percent, proven in (
            ("VGG16.json", .9, 1.968, True), ("VGG16.json", .8, None, True),
            ("VGG19.json", .9, .104, True), ("VGG19.json", .8, 2.756, True),
            ("fcn_8_vgg.json", .9, .029, True), ("fcn_8_vgg.json", .8, .136, True),
            ("fcn_8_vgg.json", .7, .891, False),
            ("vgg_unet.json", .9, 1.129, True), ("vgg_unet.json", .8, 1.984, True),
            ("vgg_unet.json", .7, 2.967, False), ("vgg_unet.json", .6, 4.451, True),
            ("vgg_unet.json", .5, 6.967, True), ("vgg_unet.json", .4, 13.111, False),
            ("MobileNet.json", .9, .163, True), ("MobileNet.json", .8, .370, True),
            ("MobileNet.json", .7, .626, False), ("MobileNet.json", .6, 1.067, False),
            ("MobileNet.json", .5, 1.638, False), ("MobileNet.json", .4, 2.462, False),
            ("MobileNet.json", .3, 3.964, False),
            ("ResNet50.json", .9, .108, True), ("ResNet50.json", .8, .279, False),
            ("ResNet50.json", .7, .568, False), ("ResNet50.json", .6, .976, False),
            ("ResNet50.json", .5, 1.523, False), ("ResNet50.json", .4, 2.267, False),
            ("ResNet50.json", .3, 4.003, False)):
        yield Case(file, budget, None, percent, checkmate if proven else known, proven,
                   5.0 if proven else 30.0)
    for budget, theirs in zip((10177696, 9129120, 8080544, 7031968, 5983392, 4934816),
                              (108060, 109042, 110154, 111683, 113225, 115900)):
        yield Case("ckm_r50_184.txt", budget, theirs, None, known, theirs == 109042, 40.0)
    for budget, theirs in zip((9301354, 8252778, 7204202), (250600, 251383, 255828)):
        yield Case("ckm_vgg16_176.txt", budget, theirs, None,
                   "MONeT's commercial solver, 24 h", True, 40.0)


#: All comparisons.
CASES = tuple(_cases())


def folder(given: Optional[str] = None) -> Path:
    """Folder of the other planners' graphs.

    Raises InputError if they are not there.
    """
    given = given or os.environ.get("MEMONGER_PEERS")
    root = Path(given) if given else Path(__file__).resolve().parents[3] / "shared" / "peers"
    if not (root / "graphs").is_dir():
        raise InputError(
            "%s; name the folder that has them in 'graphs': python -m benchmarks peers FOLDER, or "
            "set MEMONGER_PEERS" % ("the graphs of other planners are not in %s" % given if given
                                    else "the graphs of other planners come from outside"))
    return root / "graphs"


def run(case: Case, graphs: Path) -> Row:
    """Plan one case within its time limit by the default method."""
    path = str(graphs / case.file)
    budget = case.budget if case.budget < 1 else int(case.budget)
    try:
        plan = plan_graph(read_graph(path), budget, time_limit_s=case.time_limit_s)
    except InfeasibleBudget as error:
        return Row(case, None, None, None, getattr(error.best_plan, "planning_s", 0.0))
    return Row(case, plan.schedule.time_s(plan.graph), 100 * plan.overhead, 100 * plan.bound,
               plan.planning_s)


def table(rows: Sequence[Row]) -> str:
    """The rows as Markdown."""
    lines = []
    for row in rows:
        case = row.case
        theirs = "infeasible"
        if case.cost is not None:
            theirs = "%.0f" % case.cost
        elif case.overhead_percent is not None:
            theirs = "+%.3f %%" % case.overhead_percent
        ours: List[str] = ["none found", "", ""]
        if row.cost is not None:
            ours = ["%.0f" % row.cost, "%.3f" % (row.overhead_percent or 0.0),
                    "%.3f" % (row.bound_percent or 0.0)]
        lines.append((case.file, "%g" % case.budget, *ours, "%.1f" % row.seconds, theirs,
                      case.source, "yes" if row.reached else "no"))
    return markdown(("graph", "budget", "ours", "overhead %", "bound %", "seconds", "best known",
                     "by", "reached"), "<>>>>>><<", lines)


def main(words: Sequence[str], as_json: bool = False) -> int:
    """Print the table; ``words`` is the folder of the graphs, or nothing."""
    if len(words) > 1:
        raise InputError("python -m benchmarks peers takes one folder, not %d" % len(words))
    graphs = folder(*words)
    rows = [run(case, graphs) for case in CASES]
    found = [{**asdict(row), "reached": row.reached} for row in rows]
    print(json.dumps(found, indent=2) if as_json else table(rows))
    return 0
