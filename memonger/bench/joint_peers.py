"""Our search beside MONeT's commercial solver on MONeT's joint instances.

Published: MONeT's schedules, the objective of a 0/1 solver after 24 hours on 12 threads. Ours: 40
seconds on two threads, every plan checked against MONeT's own constraints.
"""
from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Iterator, List, Optional, Sequence

from .joint import read_instance
from .joint_search import search_joint


@dataclass(frozen=True)
class JointCase:
    """An instance and a budget."""

    file: str
    budget_gb: float
    #: Objective after 24 hours, in 0.01 ms.
    published: int
    time_limit_s: float = 40.0
    #: How far above the published value ours may be; negative: it has to be below.
    allowed_percent: float = 0.5


@dataclass(frozen=True)
class JointRow:
    """Ours beside the published one."""

    case: JointCase
    #: None: nothing that fits was found.
    cost: Optional[int]
    seconds: float

    @property
    def difference_percent(self) -> Optional[float]:
        """Ours minus theirs, of theirs."""
        if self.cost is None:
            return None
        return 100.0 * (self.cost - self.case.published) / self.case.published

    @property
    def reached(self) -> bool:
        """Within what is allowed."""
        difference = self.difference_percent
        if difference is None:
            return False
        return difference <= self.case.allowed_percent if self.case.allowed_percent >= 0 \
            else difference < 0


def _cases() -> Iterator[JointCase]:
    for file, published in (
            ("resnet50_184_inplace_conv_normal", (91651, 92698, 94002, 95399, 97671, 99611)),
            ("resnet50_184_inplace_multiway", (104571, 105691, 106966, 108576, 110635, 113517)),
            ("resnet50_184_inplace_newnode", (107573, 108487, 109481, 110559, 112801, 115589)),
            ("un_11_inplace_conv_multiway_newnode",
             (110933, 113363, 115405, 117210, 121617, 128723)),
            ("vgg16_176_inplace_conv_multiway_newnode",
             (132400, 132917, 138333, 143866, 149129, 154023))):
        for budget, value in zip((10, 9, 8, 7, 6, 5), published):
            below = file.startswith("resnet50") and budget <= 6
            least = 5.5 if file.startswith("vgg16") and budget == 5 else budget
            yield JointCase(file + ".txt", least, value, allowed_percent=-1 if below else 0.5)


#: All comparisons.
JOINT_CASES = tuple(_cases())


def run_joint(case: JointCase, folder: Path) -> JointRow:
    """Search one case within its time, and check the plan."""
    instance = read_instance(str(folder / case.file))
    found = search_joint(instance, int(case.budget_gb * 1024 * 1024), case.time_limit_s)
    return JointRow(case, found.cost, found.seconds)


def joint_table(rows: Sequence[JointRow]) -> str:
    """The rows as Markdown."""
    titles = ("joint instance", "GB", "ours", "24 h on 12 threads", "difference %", "seconds",
              "reached")
    lines: List[str] = ["| %s |" % " | ".join(titles), "|%s" % ("---|" * len(titles))]
    for row in rows:
        case, difference = row.case, row.difference_percent
        lines.append("| %s | %g | %s | %d | %s | %.1f | %s |" % (
            case.file.rsplit(".", 1)[0], case.budget_gb,
            "none found" if row.cost is None else row.cost, case.published,
            "" if difference is None else "%+.2f" % difference, row.seconds,
            "yes" if row.reached else "no"))
    return "\n".join(lines) + "\n"
