"""What a run found, as Markdown and as JSON."""
from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import List, Sequence

from ...report.formatting import markdown
from .timing import MEGABYTE, Row


@dataclass
class Report:
    """One run of the command."""

    device: str
    #: Day of the run.
    date: str
    commit: str = ""
    launches: int = 0
    wrong: List[str] = field(default_factory=list)
    rows: List[Row] = field(default_factory=list)
    #: Shares of copy below which a row counts as slow.
    floor: float = 0.85

    def slow(self) -> Sequence[Row]:
        """Element-wise kernels of at least 64 MB that are too slow."""
        return [row for row in self.rows if row.behind(self.floor)]

    def to_json(self) -> str:
        return json.dumps(asdict(self), indent=1) + "\n"

    def to_markdown(self) -> str:
        lines = ["# GPU kernels: checked and timed", "",
                 "%s, %s%s. Made by `python -m memonger.bench.kernels --check --time`." %
                 (self.device, self.date, ", commit " + self.commit if self.commit else ""), ""]
        if self.launches:
            lines += ["%d launches checked: %s." % (self.launches, "all right" if not self.wrong
                                                    else "%d wrong" % len(self.wrong)), ""]
        lines += ["- " + text for text in self.wrong[:50]]
        if self.rows:
            lines.append(markdown(
                ("kernel", "type", "array", "time", "GB/s", "of copy", "PyTorch"), "<<>>>>>",
                [(row.kernel, row.dtype, "%d MB" % (row.size_bytes // MEGABYTE),
                  "%.1f us" % (1e6 * row.time_s), "%.0f" % (row.moved_bytes / row.time_s / 1e9),
                  "%.0f %%" % (100 * row.share),
                  "" if row.torch_s is None else "%.1f us" % (1e6 * row.torch_s))
                 for row in self.rows]))
        return "\n".join(lines).rstrip() + "\n"
