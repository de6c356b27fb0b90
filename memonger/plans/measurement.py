"""What a measurement of training steps found: bytes and seconds."""
from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Dict, Optional, Sequence

from .above import views


@dataclass(frozen=True)
class Measurement:
    """One symbol, measured.

    Attributes
    ----------
    allocated_bytes : int
        Growth of the process's resident memory (of the device's used memory on a GPU) from
        before binding to the largest value during the steps: parameters, gradients, pool and
        operator workspaces.
    step_s : float
        Median time of forward and backward, seconds.
    steps_s : tuple of float
        All of them, in order.
    device : str
        Where the steps ran, as "cpu(0)".
    original : Measurement, optional
        The other symbol, measured in turn.
    """

    allocated_bytes: int
    step_s: float
    steps_s: Sequence[float]
    device: str
    original: Optional[Measurement] = None

    @property
    def overhead(self) -> Optional[float]:
        """Extra median step time over the original measured in turn; None without one."""
        return None if self.original is None else self.step_s / self.original.step_s - 1.0

    def to_dict(self) -> Dict[str, Any]:
        """All numbers, fit for JSON."""
        return {**asdict(self), "overhead": self.overhead}

    def __str__(self) -> str:
        return str(views().measurement_table(self, self.original))
