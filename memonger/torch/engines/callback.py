"""What the callbacks of trainers have in common."""
from __future__ import annotations

from typing import Any, List

from ...plans.plan import Budget, Plan
from ..calls.compiled import plans


class BudgetCallback:
    """A callback that plans what a trainer trains.

    Parameters
    ----------
    budget : int, float or str
        As for :func:`memonger.torch.compile`.
    **options
        Its other arguments, such as ``mode="eager"``.
    """

    def __init__(self, budget: Budget, **options: Any):
        self.budget, self.options = budget, options
        #: What :func:`memonger.torch.compile` gave, once training has begun.
        self._planned: Any = None

    @property
    def plans(self) -> List[Plan]:
        """The plans that training has used so far, in the order in which they were made."""
        return [] if self._planned is None else plans(self._planned)
