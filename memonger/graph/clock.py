"""When the steps of a schedule run: the streams of a device, and the end of the last one.

A device works on several *streams* at a time. ``"compute"`` runs kernels, ``"copy"`` moves values
between the device and the host, ``"network"`` runs collectives. Three rules say when a step runs
and which memory it may touch. They are those of PyTorch's streams, events and caching allocator
(``ao::offload``, ``ao::reload``, ``ao::wait_tensor`` and the collectives keep them), so a plan's
times and bytes mean the same on a device.

**Issue.** Steps are issued in the order of the schedule, and issuing takes no time. A stream runs
its steps one after the other, in this order.

**Start.** A step starts when its stream is free and every step whose values it reads has ended, on
whatever stream. A step of a stream other than compute also waits for all steps of compute that are
issued before it: the memory that it writes may have been theirs. A training step takes as long
as its last stream. With one stream that is the sum of all times.

**Memory.** A value takes its bytes from the issue of the step that makes it to the issue of the
last step that reads it; then whatever is issued next may have them. That is safe on a device only
if compute has waited for other streams by then. So whatever a step of a stream other than compute
reads or makes in device memory is also read by a later step of compute, its *guard*, which reads a
value that the step makes, and so waits for it; outputs of the training step, which are never freed,
need none. :func:`memonger.graph.streams.check_streams` refuses
graphs whose steps could be without a guard, and the check of each plan looks for it again. Then no
two steps touch the same bytes at a time, however long kernels and copies take: bytes known before
the run are never exceeded.

Issue and wait are two events, and the place of an op in the graph is its issue. To move a value to
the host and back, a graph has

* a ``store`` op on copy, behind the value's last reader in forward, that makes the host's value;
* a ``wait`` op on compute some ops later in forward, that reads both: the device's memory is free
  behind it. Issued early it stops compute until the copy has ended; issued late it holds memory;
* a ``fetch`` op on copy, that makes the device's value again. Its readers wait. Issued some ops
  before the first one it runs beside compute, and holds memory from there on.

What runs again in backward reads the value that came back, too (``Op.hands_on``): the op that
waits for it and hands it on then runs before its place, as soon as the fetch is issued.

All three are placeholders to which a variant gives work. Where the best place is not known, several
variants offer several places, each with placeholders of its own.
"""
from __future__ import annotations

from typing import Dict, Iterable, List, NamedTuple, Sequence, Tuple

#: The stream of kernels.
COMPUTE = "compute"
#: The streams that an op can run on.
STREAMS = (COMPUTE, "copy", "network")


class Run(NamedTuple):
    """A step as the clock sees it."""

    stream: str
    time_s: float
    #: Earlier steps whose values it reads.
    reads: Sequence[int]


class Times(NamedTuple):
    """When the steps of a schedule run, in seconds from the start of the first."""

    start_s: Tuple[float, ...]
    end_s: Tuple[float, ...]
    #: For each step, when compute has run all of its own that is issued up to there.
    compute_s: Tuple[float, ...]
    #: The end of the last stream.
    total_s: float


def times_of(runs: Iterable[Run]) -> Times:
    """When steps run, given in the order of their issue. O(steps and their reads) time."""
    starts: List[float] = []
    ends: List[float] = []
    compute: List[float] = []
    free_s: Dict[str, float] = dict.fromkeys(STREAMS, 0.0)
    for stream, time_s, reads in runs:
        start_s = max(free_s[stream], free_s[COMPUTE] if stream != COMPUTE else 0.0)
        for step in reads:
            start_s = max(start_s, ends[step])
        free_s[stream] = start_s + time_s
        starts.append(start_s)
        ends.append(free_s[stream])
        compute.append(free_s[COMPUTE])
    return Times(tuple(starts), tuple(ends), tuple(compute), max(free_s.values()))
