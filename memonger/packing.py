"""From blocks to buffers: MXNet's own assignment, a better one, and a bound on both.

A buffer (MXNet: storage id) is always used from its first byte, so it is as large as the largest
block in it, and the pool is the sum over all buffers. This is the "shared objects" model of
Pisarchyk and Lee (2020, "Efficient memory management for deep neural net inference"); finding the
smallest pool is NP-hard, and :func:`lower_bound` is theirs. :func:`best` reaches the bound on
nearly all training graphs, and then its answer is optimal for the given blocks.

Readable reference of ``plugins/core/packer.cc`` and of ``Stock`` in ``storage.cc``: same numbers,
buffer by buffer.
"""
from __future__ import annotations

from bisect import bisect_left, insort
from dataclasses import dataclass
from typing import Dict, List, Optional, Sequence, Tuple

from .blocks import Block, Blocks, StorageModel


@dataclass(frozen=True)
class Assignment:
    """Which block lies in which buffer."""

    buffer_of: Tuple[int, ...]
    #: Real bytes of each buffer, rounded up as the executor does.
    buffer_bytes: Tuple[int, ...]
    #: What ``debug_str`` counts: 4 bytes an element, whatever the dtype; of an arena its bytes.
    printed_bytes: int
    #: Where in its buffer each block begins; () when all begin at the first byte.
    offset_of: Tuple[int, ...] = ()

    @property
    def pool_bytes(self) -> int:
        return sum(self.buffer_bytes)


def round_up(size_bytes: int, unit: int) -> int:
    return -(-size_bytes // unit) * unit


def measure(blocks: Blocks, buffer_of: Sequence[int], rounding: int) -> Assignment:
    """Sizes of the buffers of an assignment."""
    real = [0] * (max(buffer_of, default=-1) + 1)
    printed = [0] * len(real)
    for block, buffer in zip(blocks.blocks, buffer_of):
        real[buffer] = max(real[buffer], round_up(block.bytes, rounding))
        printed[buffer] = max(printed[buffer], 4 * block.elements)
    return Assignment(tuple(buffer_of), tuple(real), sum(printed))


def peak_live(blocks: Blocks) -> Tuple[int, int]:
    """Bytes alive at the worst step, and the first such step (-1 when nothing is alive)."""
    live = live_bytes(blocks)
    peak = max(live, default=0)
    return peak, live.index(peak) if peak > 0 else -1


def live_bytes(blocks: Blocks) -> List[int]:
    """Bytes alive at each step."""
    change = [0] * (blocks.num_steps + 2)
    for block in blocks.blocks:
        change[block.start] += block.bytes
        change[block.end + 1] -= block.bytes
    result, live = [], 0
    for step in range(blocks.num_steps):
        live += change[step]
        result.append(live)
    return result


def groups(blocks: Blocks) -> List[List[int]]:
    """Block ids by pool and device: blocks of two groups never share a buffer."""
    found: Dict[Tuple[int, int], List[int]] = {}
    for index, block in enumerate(blocks.blocks):
        found.setdefault((block.pool, block.device), []).append(index)
    return [found[key] for key in sorted(found)]


def lower_bound(blocks: Blocks, rounding: int) -> int:
    """No assignment of these blocks to whole buffers takes less.

    The sum over k of the largest size that the k-th largest living block ever has.
    """
    return sum(_group_bound([blocks.blocks[i] for i in group], rounding)
               for group in groups(blocks))


def _group_bound(blocks: Sequence[Block], rounding: int) -> int:
    events = sorted([(b.start, 0, i) for i, b in enumerate(blocks)]
                    + [(b.end, 1, i) for i, b in enumerate(blocks)])
    live: List[int] = []  # negative sizes, rising
    most: List[int] = []
    fell = True
    for _, ends, index in events:
        size = -round_up(blocks[index].bytes, rounding)
        if ends:
            if not fell:
                most += [0] * (len(live) - len(most))
                for k, negative in enumerate(live):
                    most[k] = max(most[k], -negative)
            live.pop(bisect_left(live, size))
        else:
            insort(live, size)
        fell = bool(ends)
    return sum(most)


# ------------------------------------------------------------------------------------- stock
def stock(blocks: Blocks, model: StorageModel, rounding: int) -> Assignment:
    """MXNet 1.9.1's assignment (``MXGraphAllocator``), one allocator for each pool."""
    buffer_of = [-1] * len(blocks.blocks)
    first = 0
    searches = model.search_match_range and model.match_range > 0
    for pool in sorted({block.pool for block in blocks.blocks}):
        least: Optional[int] = None
        match_range = 1 if searches else model.match_range
        while match_range <= model.match_range:
            printed, trial = _stock_pool(blocks, pool, match_range)
            if least is None or printed < least:
                least, chosen = printed, trial
            if match_range == 0:
                break
            match_range *= 2
        for block, buffer in chosen.items():
            buffer_of[block] = first + buffer
        first += 1 + max(chosen.values(), default=-1)
    return measure(blocks, buffer_of, rounding)


def _stock_pool(blocks: Blocks, pool: int, match_range: int) -> Tuple[int, Dict[int, int]]:
    # `free` is MXNet's multimap: (size, order of insertion, buffer), rising.
    sizes: List[int] = []
    devices: List[int] = []
    free: List[Tuple[int, int, int]] = []
    assigned: Dict[int, int] = {}
    released = [r for r in blocks.released if blocks.blocks[r].pool == pool]
    done = 0
    for index, block in enumerate(blocks.blocks):
        if block.pool != pool:
            continue
        while done < len(released) and blocks.blocks[released[done]].end < block.start:
            buffer = assigned[released[done]]
            insort(free, (sizes[buffer], done, buffer))
            done += 1
        size = 4 * block.elements
        found = None
        if match_range > 0:
            begin = bisect_left(free, (size // match_range, -1, -1))
            middle = bisect_left(free, (size, -1, -1))
            end = bisect_left(free, (size * match_range + 1, -1, -1))
            for at in list(range(middle, end)) + list(range(middle - 1, begin - 1, -1)):
                if devices[free[at][2]] == block.device:
                    found = at
                    break
        if found is None:
            assigned[index] = len(sizes)
            sizes.append(size)
            devices.append(block.device)
        else:
            buffer = free.pop(found)[2]
            sizes[buffer] = max(sizes[buffer], size)
            assigned[index] = buffer
    return sum(sizes), assigned


# -------------------------------------------------------------------------------------- best
class Random:
    """Marsaglia's xorshift with 32 bits; the C++ code draws the same numbers."""

    def __init__(self) -> None:
        self._state = 2463534242

    def below(self, limit: int) -> int:
        state = self._state
        state ^= state << 13 & 0xFFFFFFFF
        state ^= state >> 17
        state ^= state << 5 & 0xFFFFFFFF
        self._state = state
        return state * limit >> 32


class _Group:
    """Blocks of one pool and device, packed again and again in different orders."""

    def __init__(self, blocks: Sequence[Block], rounding: int):
        # Two lives meet exactly when one begins during the other: only starts matter.
        starts = sorted({block.start for block in blocks})
        rank = {start: i for i, start in enumerate(starts)}
        self.bytes = [round_up(block.bytes, rounding) for block in blocks]
        self.first = [rank[block.start] for block in blocks]
        self.last = [bisect_left(starts, block.end + 1) - 1 for block in blocks]
        self.busy = [(2 << last) - (1 << first) for first, last in zip(self.first, self.last)]

    def by_bytes(self) -> List[int]:
        return sorted(range(len(self.bytes)), key=lambda i: -self.bytes[i])

    def greedy(self, order: Sequence[int], limit: Optional[int]) -> Tuple[int, List[int]]:
        """Each block goes where the pool grows least, then where least is wasted.

        Ties go to the buffer opened last. Gives up once the total exceeds ``limit``.
        """
        sizes: List[int] = []
        busy: List[int] = []
        buffer_of = [-1] * len(order)
        total = 0
        for i in order:
            size = self.bytes[i]
            best: Optional[int] = None
            least = (size, 0)
            for buffer in range(len(sizes) - 1, -1, -1):
                price = (max(0, size - sizes[buffer]), max(0, sizes[buffer] - size))
                if price[0] > least[0] or (best is not None and price >= least):
                    continue
                if busy[buffer] & self.busy[i]:
                    continue
                best, least = buffer, price
                if price == (0, 0):
                    break
            if best is None:
                best = len(sizes)
                sizes.append(0)
                busy.append(0)
            if size > sizes[best]:
                total += size - sizes[best]
                sizes[best] = size
                if limit is not None and total > limit:
                    return total, buffer_of
            busy[best] |= self.busy[i]
            buffer_of[i] = best
        return total, buffer_of

    def improve(self, total: int, buffer_of: List[int], bound: int,
                effort: int) -> List[int]:
        """Greedy orders, then small changes of the best one, until the bound is reached."""
        n = len(self.bytes)
        length = [last - first + 1 for first, last in zip(self.first, self.last)]
        orders = (self.by_bytes(),
                  sorted(range(n), key=lambda i: (-self.bytes[i], -length[i])),
                  sorted(range(n), key=lambda i: -self.bytes[i] * length[i]),
                  list(range(n)))
        current: Optional[int] = None
        order = orders[0]
        for candidate in orders:
            if total <= bound:
                return buffer_of
            reached, assigned = self.greedy(candidate, total)
            if reached < total:
                total, buffer_of = reached, assigned
            if current is None or reached < current:
                current, order = reached, candidate
        tries = 0 if n < 3 else min(effort, 400000000 // (n * n))
        random = Random()
        current, _ = self.greedy(order, None)
        while tries > 0 and total > bound:
            tries -= 1
            trial = list(order)
            for _ in range(1 + random.below(4)):
                i, j = random.below(n), random.below(n)
                trial[i], trial[j] = trial[j], trial[i]
            reached, assigned = self.greedy(trial, current)
            if reached <= current:
                current, order = reached, trial
                if reached < total:
                    total, buffer_of = reached, assigned
        return buffer_of


def quick(blocks: Blocks, rounding: int) -> Assignment:
    """Largest block first, each into the smallest free buffer; one pass."""
    buffer_of = [-1] * len(blocks.blocks)
    first = 0
    for group in groups(blocks):
        packer = _Group([blocks.blocks[i] for i in group], rounding)
        _, assigned = packer.greedy(packer.by_bytes(), None)
        for block, buffer in zip(group, assigned):
            buffer_of[block] = first + buffer
        first += 1 + max(assigned)
    return measure(blocks, buffer_of, rounding)


def best(blocks: Blocks, model: StorageModel, rounding: int) -> Assignment:
    """The smallest assignment that a bounded, deterministic search finds.

    Starts from :func:`stock`, so it is never larger, group by group; ends at once when
    :func:`lower_bound` is reached. O(tries * n * buffers).
    """
    given = stock(blocks, model, rounding)
    buffer_of = [-1] * len(blocks.blocks)
    first = 0
    for group in groups(blocks):
        members = [blocks.blocks[i] for i in group]
        number: Dict[int, int] = {}
        for i in group:
            number.setdefault(given.buffer_of[i], len(number))
        total = sum(given.buffer_bytes[buffer] for buffer in number)
        assigned = [number[given.buffer_of[i]] for i in group]
        bound = _group_bound(members, rounding)
        if total > bound:
            assigned = _Group(members, rounding).improve(total, assigned, bound, model.effort)
        for i, buffer in zip(group, assigned):
            buffer_of[i] = first + buffer
        first += 1 + max(assigned)
    return measure(blocks, buffer_of, rounding)
