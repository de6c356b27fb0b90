"""The planning problem as a linear program over a few constrained ops.

``tests/reference/relaxation.py`` says the same with expressions, row by row: read that first.

Formulation (after Checkmate, Jain et al., MLSys 2020, and MONeT, Shah et al., ICLR 2021, with
their stages replaced by windows between *constrained ops*): the ops are cut into windows, each
ending at a constrained op. For group ``t`` and window ``j``

* ``live[t, j]``: the value is in memory at the constrained op that ends window ``j``;
* ``rerun[r, j]``: repeat ``r``, as one implementation of an op, happens inside window ``j``;
* ``variant[m]``: ops run as variant ``m`` has them;
* ``taken[t, j]``: the constrained op that ends window ``j`` works in the value's memory, and the
  value is gone (only for ops that save memory in no other way).

Each is a family (:class:`memonger.solve.mip.columns.Family`) with its columns, its rows, and the
point that a schedule is in them.

A value is *at hand* in a window if it was live at the window's start, is made in the window, or
is rerun in it. Reads, reruns and lives all need values at hand; the live bytes at each constrained
op stay within the budget; the time of reruns and variants is minimised, or with several streams
that of pieces of windows (:mod:`memonger.solve.mip.streams`).

Every schedule that fits the budget gives a feasible 0/1 point that costs no more, whatever the
windows are: so any lower bound of this program is a lower bound for all schedules. Few windows
are not only faster: they often give better bounds, because within a window a fractional rerun
cannot be spread over many steps.
"""
from __future__ import annotations

from typing import Sequence, Tuple

from .at_hand import AtHand
from .choices import Lives, Reruns, Variants
from .columns import Rows
from .frame import Frame
from .host import add_host_rows
from .memory import Memory
from .problem import Reduced
from .program import Program
from .spans import Spans
from .streams import Lengths
from .targets import Targets
from .workspace import Workspace


def build(reduced: Reduced, constrained: Sequence[int], budget_bytes: float,
          max_reruns: int = 0, forget: Sequence[int] = (),
          spans: Sequence[Tuple[int, int]] = ()) -> Program:
    """Write the program for some constrained ops.

    Parameters
    ----------
    reduced : Reduced
    constrained : sequence of int
        Op ids, increasing. The last op of each forward pass is always added.
    budget_bytes : float
        Upper limit of the live bytes and of what the workspace takes beyond the least. ``inf``:
        the budget becomes a variable, column 0, and is what is minimised.
    max_reruns : int
        Largest number of reruns of an op; 0 is no limit.
    forget : sequence of int
        Ops whose values must not stay from forward to backward.
    spans : sequence of (int, int)
        First and last window of each span (:mod:`memonger.solve.mip.spans`).

    Returns
    -------
    Program
        O(groups x windows) size and time.
    """
    frame = Frame.of(reduced, constrained, budget_bytes)
    live = Lives.of(frame, int(frame.minimises_peak))
    rerun = Reruns.of(frame, live.end)
    variant = Variants.of(frame, rerun.end)
    taken = Memory.of(frame, variant.end)
    again = Spans.of(frame, taken.end, rerun, spans)
    length = Lengths.of(frame, again.end)
    workspace = Workspace.of(frame, length.end)

    rows = Rows(workspace.end)
    target = Targets(reduced, variant.column_of)
    AtHand(live, rerun, variant, taken).add_rows(rows, target)
    live.add_rows(rows, target, forget)
    taken.add_rows(rows, live, workspace)
    variant.add_rows(rows)
    rerun.add_rows(rows, variant, max_reruns)
    again.add_rows(rows, live, target)
    length.add_rows(rows, rerun, variant)
    workspace.add_rows(rows, variant)
    add_host_rows(rows, variant)
    return Program(rows.cost, rows.least, rows.most, *rows.limits(), *rows.matrix(),
                   frame, live, rerun, variant, taken, again, length, workspace)
