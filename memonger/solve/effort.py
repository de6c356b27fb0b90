"""Work is counted, not timed, so that a busy machine gives the same plan as an idle one."""
from __future__ import annotations

import time
from typing import List, Optional, Sequence, Tuple

#: Steps that the native search simulates in a second of an idle core, of graphs in its caches.
STEPS_PER_S = 60e6
#: Graphs of up to so many ops fit into a core's caches; of larger ones it simulates fewer steps in
#: a second, by the root of their size.
_CACHED_OPS = 3000
#: How many times as long a step takes where values lie in whole buffers: sizes must be matched.
_WHOLE_BUFFERS = 2.0
#: Counted seconds for each step of a schedule whose storage is planned.
_STORAGE_S_PER_STEP = 1e-5
#: Counted seconds for each block of memory that is laid down.
_STORAGE_S_PER_BLOCK = 2.5e-7
#: The clock ends a search only after this many times its counted seconds, so a machine with four
#: other busy processes gives the same plan as an idle one.
CLOCK_FACTOR = 20.0
#: What all searches of a call may take together, as a multiple of the time limit, which the first
#: has alone.
ALL_SEARCHES = 1.3
#: Where there is a plan, a further search that would get less of the time limit is left out.
LEAST_SEARCH = 0.1


def steps_per_s(num_ops: int, storage: str = "arena") -> float:
    """Steps that the native search simulates in a second, of a graph of so many ops."""
    rate = STEPS_PER_S if storage in ("arena", "live") else STEPS_PER_S / _WHOLE_BUFFERS
    return rate * min(1.0, _CACHED_OPS / max(num_ops, 1)) ** 0.5


class Effort:
    """Work that may be done, in counted seconds; the clock is a safety net far behind them.

    Parameters
    ----------
    limit_s : float
        Counted seconds: simulated steps, entries of linear programs and checks of 0/1 programs,
        each at what it takes on an idle core.
    parent : Effort, optional
        What is spent here is spent there, too, and what fails here is noted there.
    num_ops : int, optional
        Of the graph that the native search simulates.
    storage : str
        The storage model that it simulates; see :mod:`memonger.memory.storage`.
    """

    def __init__(self, limit_s: float, parent: Optional["Effort"] = None, num_ops: int = 0,
                 storage: str = "arena"):
        self.limit_s = limit_s
        self.num_ops = num_ops
        self.storage = storage
        self.spent_s = 0.0
        #: Programs in which HiGHS failed, each in words.
        self.failures: List[str] = []
        self._parent = parent
        self._end_s = time.perf_counter() + CLOCK_FACTOR * max(limit_s, 1.0)

    def grant(self, seconds: float) -> None:
        """Allow ``seconds`` counted seconds from now on, whatever is left."""
        self.limit_s = self.spent_s + seconds
        self._end_s = time.perf_counter() + CLOCK_FACTOR * max(seconds, 1.0)

    def spend(self, seconds: float) -> None:
        """Count work that was done."""
        self.spent_s += seconds
        if self._parent is not None:
            self._parent.spend(seconds)

    def note_failure(self, program: str) -> None:
        """HiGHS failed in a program: whoever made the effort says so."""
        self.failures.append(program)
        if self._parent is not None:
            self._parent.note_failure(program)

    def spend_on_storage(self, steps: int, placed: int) -> None:
        """Count what planning the storage of so many steps takes; ``placed`` is the plan's."""
        self.spend(_STORAGE_S_PER_STEP * steps + _STORAGE_S_PER_BLOCK * placed)

    def seconds(self, steps: int) -> float:
        """Counted seconds of steps of the native search."""
        return steps / steps_per_s(self.num_ops, self.storage)

    @property
    def left_s(self) -> float:
        """Counted seconds left; none where the safety net has struck."""
        return self.limit_s - self.spent_s if self.clock_s > 0 else 0.0

    @property
    def clock_s(self) -> float:
        """Seconds of the clock until the safety net."""
        return self._end_s - time.perf_counter()

    @property
    def steps(self) -> int:
        """What is left, in steps of the native search."""
        return max(0, int(self.left_s * steps_per_s(self.num_ops, self.storage)))

    def part(self, share: float) -> "Effort":
        """A share of what is left; what it spends is spent here, too."""
        return Effort(max(0.0, share * self.left_s), self, self.num_ops, self.storage)


def failure_notes(failures: Sequence[str]) -> Tuple[str, ...]:
    """What a plan says of programs in which HiGHS failed: a sentence, or nothing."""
    if not failures:
        return ()
    programs = "a program" if len(failures) == 1 else "%d programs, first" % len(failures)
    return ("HiGHS failed in %s (%s): without its answer the bound may be lower than what could be "
            "proven, and the plan not the best" % (programs, failures[0]),)
