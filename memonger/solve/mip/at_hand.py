"""Rows that say where values must be at hand: for reads, lives and reruns."""
from __future__ import annotations

from typing import List, Tuple

import numpy as np

from .columns import Ranges, Rows, Spots
from .problem import Reduced
from .targets import Targets, by_op


def add_at_hand_rows(reduced: Reduced, rows: Rows, live: Ranges, rerun: Ranges, taken: Spots,
                     repeats: List[Tuple[int, int]], number_of: dict, target: Targets,
                     variant_column: np.ndarray, window_of: np.ndarray) -> None:
    """``at hand(group, window) >= target`` for reads, lives and reruns."""
    modal = reduced.scattered_group
    born = window_of[reduced.birth] if len(reduced.birth) else np.zeros(0, dtype=np.int64)
    groups: List[np.ndarray] = []
    spots: List[np.ndarray] = []
    targets: List[np.ndarray] = []
    owner, window = live.pairs()
    groups.append(owner)
    spots.append(window)
    targets.append(live.base + np.arange(live.total))
    read_group: List[int] = []
    read_spot: List[int] = []
    read_target: List[int] = []
    for group, readers in enumerate(reduced.readers):
        for op, implementations in by_op(readers).items():
            read_group.append(group)
            read_spot.append(int(window_of[op]))
            read_target.append(target.of_implementations(op, implementations))
            again = [number_of[op, number] for number in implementations
                     if (op, number) in number_of]
            if len(again) == 1:
                span = np.arange(rerun.first[again[0]], rerun.last[again[0]] + 1)
                groups.append(np.full(len(span), group))
                spots.append(span)
                targets.append(rerun.offset[again[0]] + span - rerun.first[again[0]])
                continue
            for spot in range(min(rerun.first[again], default=0),
                              max(rerun.last[again], default=-1) + 1):
                columns = rerun.column(np.array(again), np.full(len(again), spot))
                if (columns >= 0).any():
                    read_group.append(group)
                    read_spot.append(spot)
                    read_target.append(target.of_columns(columns[columns >= 0].tolist()))
    groups.append(np.array(read_group, dtype=np.int64))
    spots.append(np.array(read_spot, dtype=np.int64))
    targets.append(np.array(read_target, dtype=np.int64))
    group_of, spot_of, target_of = map(np.concatenate, (groups, spots, targets))
    if not len(group_of):
        return
    needed = modal[group_of] | (spot_of > born[group_of])
    group_of, spot_of, target_of = np.unique(
        np.stack([group_of[needed], spot_of[needed], target_of[needed]]), axis=1)
    numbers = target.open(rows, target_of)
    rows.add(numbers, live.column(group_of, spot_of - 1), 1.0)
    rows.add(numbers, taken.column(group_of, spot_of - 1), -1.0)
    most = max(map(len, reduced.makers), default=0)
    for position in range(most):
        maker = np.array([number_of.get(makers[position], -1)
                          if position < len(makers) and not reduced.frozen_group[i] else -1
                          for i, makers in enumerate(reduced.makers)], dtype=np.int64)
        picked = maker[group_of]
        column = np.where(picked >= 0, rerun.column(np.maximum(picked, 0), spot_of), -1) \
            if len(repeats) else np.full(len(picked), -1)
        rows.add(numbers, column, 1.0)
    # A value that only some implementations make is at hand in its op's window when one of those
    # is chosen.
    shift = np.zeros(len(numbers))
    for row_index in np.flatnonzero(modal[group_of]):
        for op, number in reduced.makers[group_of[row_index]]:
            if window_of[op] != spot_of[row_index]:
                continue
            row = numbers[row_index:row_index + 1]
            if len(reduced.implementations[op]) == 1:
                shift[row_index] += 1.0
            elif number > 0:
                rows.add(row, variant_column[[reduced.variant_of[op][number]]], 1.0)
            else:
                shift[row_index] += 1.0
                for variant in reduced.variant_of[op][1:]:
                    rows.add(row, variant_column[[variant]], -1.0)
    rows.lower[-1] = rows.lower[-1] - shift
