"""What the benchmark runs, one network planned by one method for one target, and the result."""
from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from typing import Any, Dict, Iterable, List, Mapping, Optional, Sequence, Tuple

from memonger.util.errors import InputError
from memonger.zoo import nets

from .published import PUBLISHED, Published

#: What stock MXNet runs: no plan, MXNET_BACKWARD_DO_MIRROR=1, and the marks of dmlc's rule.
STOCK = ("mxnet", "mirror", "sublinear")
#: Methods of the comparison: the others are those of ``memonger.plan``, "auto" once for each use of
#: operator variants.
METHODS = (*STOCK, "chen", "ogc", "auto:none", "auto:exact", "auto:all")
#: Networks of the comparison and of the ready plans: those of the published tables, and language
#: models, an attention network, a GAN and the large AmoebaNet.
COMPARED = (*dict.fromkeys(row.network for row in PUBLISHED), "lstm_lm_35", "lstm_lm_200",
            "gru_attention", "transformer", "gan", "amoebanet_d")
#: Methods that take a budget; the others have one answer for each network.
BUDGETED = ("auto:none", "auto:exact", "auto:all")


@dataclass(frozen=True)
class Case:
    """One line of the benchmark.

    ``target`` is "" (the method's own choice), "total 50%" or "pool 37.1%" of the unplanned bytes.
    """

    network: str
    method: str
    target: str = ""
    batch: int = 0
    options: Tuple[Tuple[str, Any], ...] = ()
    published: Optional[Published] = field(default=None, compare=False)

    def __post_init__(self) -> None:
        if self.method not in METHODS:
            raise InputError("no method %r in the benchmark; it has %s"
                             % (self.method, ", ".join(METHODS)))
        self.goal()

    def goal(self) -> Optional[Tuple[str, float]]:
        """Kind and share of the target, ("total", 0.5) say."""
        if not self.target:
            return None
        kind, _, text = self.target.partition(" ")
        try:
            share = float(text.rstrip("%")) / 100
        except ValueError:
            share = -1.0
        if kind not in ("total", "pool") or not 0 <= share < math.inf or not text.endswith("%"):
            raise InputError("cannot read the target %r; write total 50%% or pool 37%%"
                             % self.target)
        return kind, share


@dataclass(frozen=True)
class Row:
    """Result of one case. Sizes are bytes; ``overhead`` and ``bound`` are shares of the step."""

    network: str
    batch: int
    method: str
    target: str = ""
    #: What stock MXNet allocates for the network without any plan.
    unplanned_pool_bytes: int = 0
    unplanned_total_bytes: int = 0
    pool_bytes: int = 0
    total_bytes: int = 0
    overhead: float = 0.0
    #: No plan of the class has less overhead at this budget.
    bound: float = 0.0
    #: Seconds of the CPU over all threads, reading the network included.
    planning_s: float = 0.0
    status: str = ""
    costs: str = ""
    ops: int = 0
    #: Forward pass as a share of the unplanned step.
    forward: float = 0.0
    published: Optional[Published] = None
    #: From ``memonger.measure``, at its own batch; see :class:`benchmarks.mxnet.runner.Trainer`.
    measured: Optional[Mapping[str, Any]] = None
    #: Why there is no result.
    error: str = ""

    @property
    def total_cut(self) -> float:
        return 1.0 - self.total_bytes / self.unplanned_total_bytes

    def to_dict(self) -> Dict[str, Any]:
        """For JSON; what is empty is left out."""
        return {name: value for name, value in asdict(self).items()
                if value not in (None, "")}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "Row":
        """Inverse of :meth:`to_dict`."""
        published = data.get("published")
        return cls(**{**data, "published": Published(**published) if published else None})


def comparison(networks: Sequence[str], methods: Sequence[str] = METHODS,
               budgets: Sequence[float] = (75, 50, 35, 25), batch: int = 0,
               options: Mapping[str, Any] = {}) -> List[Case]:
    """Every method on every network; those that take a budget at each of the percentages."""
    given = tuple(sorted(options.items()))
    cases = []
    for network in networks:
        nets.spec(network)
        for method in methods:
            targets = ["total %g%%" % b for b in budgets] if method in BUDGETED else [""]
            cases += [Case(network, method, target, batch, given) for target in targets]
    return cases


def published_cases(rows: Iterable[Published] = PUBLISHED,
                    methods: Sequence[str] = BUDGETED) -> List[Case]:
    """Ours beside each published row, at the published memory."""
    cases = []
    for row in rows:
        target = "%s %.4f%%" % (row.scope, 100 * row.share)
        cases += [Case(row.network, method, target, row.batch, published=row)
                  for method in methods]
    return cases


def by_network(cases: Iterable[Case]) -> List[List[Case]]:
    """Cases of the same network and batch together, in order of first appearance."""
    groups: Dict[Any, List[Case]] = {}
    for case in cases:
        groups.setdefault((case.network, case.batch, case.options), []).append(case)
    return list(groups.values())
