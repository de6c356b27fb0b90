"""What the rows of method "auto" do: see the table in :mod:`memonger.solve.auto`."""
from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple, Optional

from ..graph.schedule import expand
from ..graph.types import Graph
from ..memory.workspace import outside_pool_bytes
from .board import Board
from .fallbacks import FALLBACK_SHARE, offer_fallback
from .least_memory import searched_least_memory
from .mip import highs
from .mip.bounds import span_bound
from .mip.formulation import build
from .mip.rounding import schedule_of_point
from .options import USUAL_TIME_LIMIT_S, Options
from .refining import FAR, NEAR_MISS, Programs
from .row import Row
from .search.decisions import SearchResult
from .search.local import FIRST_SHARE, least_ops, work_for

#: Graphs of at most so many ops 0/1 programs solve before a native search has begun.
FEW_OPS = 100
#: Graphs of at most so many ops 0/1 programs solve to the end.
TINY_OPS = 250
#: In graphs of at most so many ops 0/1 programs help; in larger ones they take too long.
SMALL_OPS = 500
#: Above so many ops long native searches get an eighth of the work, as each takes longest.
LARGE_OPS = 1500
#: In graphs of few ops: the share of the time limit that programs have before native searches help.
FEW_SHARE = 0.5
#: In graphs of few ops: the share of what is left of the time limit that one program may take.
ONE_SHARE = 0.5
#: In graphs of few ops: simulated steps of the native search that gives programs a start.
START_WORK = 1_000_000
#: In graphs of few ops: simulated steps of each native search that mends a program's plan.
MEND_WORK = 250_000
#: A plan of a small graph whose gap is at most this share of the step's time ends the search.
TARGET_GAP = 0.001
#: The same of larger graphs, where the end of a proof costs most.
TARGET_GAP_LARGE = 0.0025
#: The share of a step's time by which a program of live bytes may miss its optimum where a plan's
#: bytes are these.
LIVE_GAP = 0.0002
#: Up to this many groups of values 0/1 programs are solved; above, one linear program is rounded.
INTEGER_GROUPS = 6000


class Turn(NamedTuple):
    """A 0/1 program or a native search, and another native search on the other core."""

    #: Work of each native search, as a multiple of :func:`memonger.solve.search.local.work_for`.
    work: float
    #: The search on the other core goes on from the best plan; else it starts from nothing.
    from_best: bool
    #: The turn is left out where the best plan is nearer to the bound than this share.
    near: float


#: Less work than this share of :func:`memonger.solve.search.local.work_for` is not worth a turn.
LEAST_TURN = 0.1
#: Long native searches, each longer than the one before.
TURNS = (Turn(3, False, 0.001), Turn(6, True, 0.003), Turn(10, False, 0.005),
         Turn(15, True, 0.01))
#: More extra time than any plan of a tiny graph takes, as a share of the step's time.
AT_ANY_COST = 10.0
#: The step that evaluates :attr:`memonger.solve.Options.given`.
GIVEN = "given plan"


def has_programs(options: Options) -> bool:
    """Whether linear and 0/1 programs are wanted and can be solved."""
    return options.bound and highs.available()


@dataclass
class Run:
    """One run of the table: a board with what its steps tell one another."""

    board: Board
    programs: Programs
    #: Steps of the native search that the graph's size asks for.
    work: int
    #: Most 0/1 programs; how many in a row changed nothing, and how many may.
    most_programs: int
    patience: int
    in_vain: int = 0
    #: A chain's plan came near the budget.
    chained: bool = False

    @classmethod
    def start(cls, graph: Graph, budget_bytes: int, options: Options) -> "Run":
        board = Board.start(graph, budget_bytes, options)
        board.effort.limit_s = min(options.time_limit_s, USUAL_TIME_LIMIT_S)
        num_ops, groups = len(graph.ops), len(board.reduced.size_bytes)
        small, tiny = num_ops <= SMALL_OPS, num_ops <= TINY_OPS
        most, checks = (12, 400) if small else (4, 60)
        if not has_programs(options) or groups > INTEGER_GROUPS:
            most = 0
        # Graphs with live storage are compared with proven optima, tiny ones are quickly proven.
        target_gap = 0.0 if graph.pools == "units" or tiny else \
            TARGET_GAP if small else TARGET_GAP_LARGE
        programs = Programs(
            board, max_checks=max(1, int(checks * options.effort)),
            target_gap=target_gap,
            # The end of a proof costs most; nothing is lost between live bytes and a plan of them.
            step_gap=0.0 if not target_gap else LIVE_GAP if options.storage == "live" else
            0.0004 if small else target_gap)
        work = work_for(graph, min(options.time_limit_s, USUAL_TIME_LIMIT_S))
        return cls(board, programs, int(work * options.effort), most, 3 if tiny else 1)

    @property
    def num_ops(self) -> int:
        return len(self.board.graph.ops)

    @property
    def num_timed_ops(self) -> int:
        """Without the places of moves to the host, four for each value that may go there."""
        graph = self.board.graph
        return sum(op.time_s > 0 for op in graph.ops) if graph.has_streams else len(graph.ops)

    @property
    def has_few_ops(self) -> bool:
        """Whether programs come first."""
        return self.num_ops <= FEW_OPS and self.most_programs > 0

    @property
    def near(self) -> float:
        """A plan within this share of the step time of the bound ends the search."""
        return self.programs.target_gap

    @property
    def affords_turn(self) -> bool:
        """Whether enough work is left for another native search."""
        return self.board.effort.steps >= LEAST_TURN * self.work

    @property
    def wants_program(self) -> bool:
        """Whether another 0/1 program may be worth its work."""
        programs = self.programs
        far = programs.missed_far and self.num_ops > SMALL_OPS
        return programs.rounds < self.most_programs and self.in_vain < self.patience \
            and not programs.exhausted and not self.board.over and not (far and programs.rounds)


# ---------------------------------------------------------------------- steps
def unplanned_step(search: Run) -> None:
    search.board.evaluate(expand(search.board.graph, {}))


def given_plan(search: Run) -> None:
    assert search.board.options.given is not None
    search.board.evaluate(search.board.options.given)


def first_bound(search: Run) -> None:
    """Linear programs for the bound, which also say at which ops to constrain live bytes."""
    board = search.board
    # Enough work beside them for easy budgets.
    with board.walks.beside(board, START_WORK if search.has_few_ops
                            else int(FIRST_SHARE * search.work)):
        if board.options.bound:
            groups = len(board.reduced.size_bytes)
            board.first_bound(7 if groups <= 500 else 3 if groups <= 1500 else 1)
            search.programs.constrained = list(board.bound.constrained)


def programs_first(search: Run) -> None:
    """The programs of method "milp" as long as they are cheap.

    Where they end without a proof, what is left to find lies between them and the storage of
    plans; native searches for it get no more work than a graph of so few ops needs.
    """
    board, programs = search.board, Programs(search.board)
    programs.constrained = list(board.bound.constrained)
    end_s = board.effort.spent_s + FEW_SHARE * board.effort.limit_s
    while board.open and programs.constrained and not programs.exhausted and not board.over \
            and board.effort.spent_s < end_s:
        programs.refine(1, ONE_SHARE, MEND_WORK)
    search.programs.constrained = programs.constrained
    search.programs.exhausted = programs.exhausted
    if programs.exhausted:
        search.work = search.work * search.num_ops // least_ops(board.graph)


#: In large graphs whose bytes are those of live values a chain's plan that is this share of the
#: step's time above the bound is not beaten by a search from nothing, which takes seconds.
CHAIN_GAP = 0.005
#: Where annealing of a chain's plan starts, in mean costs of one recomputation: hotter loses the
#: plan, colder goes nowhere.
CHAIN_HEAT = 0.7


def chain(search: Run) -> None:
    """The best plans of the chain of blocks, and a short native search from the cheapest.

    ResNet-50 without variants costs 28 % of a step at 20 % of its total with plans of chains and
    37 % without, ResNet-152 at 25 % 24 and 28 %.
    """
    board, work = search.board, int(3.0 * search.work)
    walks_last = search.num_ops > LARGE_OPS and board.options.storage == "live" and board.is_chain
    with board.walks.beside(board, work if board.is_chain and not walks_last else 0):
        if has_programs(board.options) and not board.options.recompute and not board.over:
            plan = span_bound(board.reduced, board.live_budget_bytes, board.effort)
            board.raise_bound(plan.extra_s, plan.how, plan.constrained)
        if board.chain is not None:
            _follow(search, work)
    if walks_last and board.open and not board.within(CHAIN_GAP) and search.affords_turn:
        # Copies that compute waits for are what a search mends in the plan of a program.
        warm = board.walks.warm(board) if board.graph.has_streams else None
        board.walks.improve(board, work, warm, heat=CHAIN_HEAT * (warm is not None))


def _follow(search: Run, work: int) -> None:
    board = search.board
    assert board.chain is not None
    cheapest: Optional[SearchResult] = None
    for result in board.chain.plans(board.limit_bytes - outside_pool_bytes(board.graph)):
        candidate = board.evaluate(result.schedule)
        if candidate is board.best:
            board.walks.remember(candidate, result.decisions)
        if candidate.bytes <= board.limit_bytes * NEAR_MISS and (
                cheapest is None or result.cost_s < cheapest.cost_s):
            cheapest = result
    if cheapest is not None:
        search.chained = True
        board.walks.improve(board, work, cheapest.decisions, heat=CHAIN_HEAT)


def native_search(search: Run) -> None:
    board = search.board
    board.walks.improve(board, search.work, board.walks.warm(board))


def rounded_program(search: Run) -> None:
    """One linear program, rounded and mended, while a native search runs beside it."""
    board, constrained = search.board, search.programs.constrained
    program = build(board.reduced, constrained, board.live_budget_bytes) if constrained else None
    if program is not None and highs.linear_s(program) > board.effort.left_s:
        return
    with board.walks.beside(board, search.work):
        if program is None:
            return
        solution = highs.solve_linear(program, board.effort)
        if solution.values is None:
            return
        for threshold in (0.9, 0.5):
            schedule = schedule_of_point(program, board.reduced, solution.values, threshold)
            if schedule is not None:
                board.evaluate(schedule)
        if board.walks.main and schedule is not None:
            board.walks.improve(board, search.work // 3,
                                board.walks.main.decisions_of(schedule))


def turn_row(turn: Turn, number: int) -> Row[Run]:
    """A turn as a row of the table."""
    def run(search: Run) -> None:
        board, programs = search.board, search.programs
        num_ops = search.num_timed_ops
        share = 1.0 if num_ops <= SMALL_OPS else 0.4 if num_ops <= LARGE_OPS else 0.125
        work = int(share * turn.work * search.work)
        start = board.walks.warm(board) if turn.from_best else None
        if programs.near_miss is not None and not search.wants_program:
            start, programs.near_miss = programs.near_miss[1], None
        with board.walks.beside(board, work, start, near=search.near):
            if search.wants_program:
                prove(search)
            if not search.wants_program and board.best is not None \
                    and not board.within(turn.near):
                start = None if turn.from_best and not search.chained else \
                    board.walks.warm(board)
                board.walks.improve(board, work, start, heat=CHAIN_HEAT * search.chained)

    def when(search: Run) -> bool:
        return not (number == 0 and search.chained) and not search.board.over \
            and search.affords_turn \
            and search.board.possible and not search.board.within(max(turn.near, search.near))
    return Row("turn %d" % (number + 1), "long native searches: most at deep cuts", when, run,
               "Kirkpatrick et al. 1983, Glover 1989",
               "%d searches on each core, of which a 0/1 program may take one's place" % turn.work)


def prove(search: Run) -> None:
    """One 0/1 program; patience ends where it changed neither bound nor plan by enough."""
    board = search.board
    bound_s, best = board.bound.extra_s, board.best
    mend_work = int(0.03 * work_for(board.graph))
    search.programs.refine(1, 0.5 if search.num_ops <= SMALL_OPS else 0.3, mend_work)
    least_s = 0.0003 * board.graph.time_s
    news = board.bound.extra_s - bound_s > least_s or board.best is not None and (
        best is None or best.extra_s - board.best.extra_s > least_s)
    search.in_vain = 0 if news else search.in_vain + 1


def proofs(search: Run) -> None:
    near = search.near if search.num_ops <= TINY_OPS else FAR
    while search.wants_program and not search.board.within(near):
        prove(search)


def least_memory_plan(search: Run) -> None:
    """The plan that a call without a budget gives, which must not be refused as a budget."""
    graph, options = search.board.graph, search.board.options
    forward = graph.forward_time_s / graph.time_s if graph.time_s > 0 else 0.0
    # A call without a budget has one more forward pass; a refusal names the smallest at any cost.
    within = forward if search.board.possible else AT_ANY_COST
    offer_fallback(search.board, searched_least_memory(graph, None, replace(
        options, objective="memory", max_overhead=within,
        time_limit_s=FALLBACK_SHARE * options.time_limit_s)))


def rounds(search: Run) -> None:
    """A native search that crosses plans beside a 0/1 program at the best plan's peaks, again.

    Each round is longer than the one before, while the next is paid for and the gap is open.
    Populations need a long first round, bounds need programs that run for minutes.
    """
    board, programs = search.board, search.programs
    board.effort.grant(board.options.time_limit_s - USUAL_TIME_LIMIT_S)
    work, peaks = max(work_for(board.graph), int(100e6)), 5
    while not board.within(search.near) and board.effort.steps >= work and not board.interrupted:
        crosses = board.best is not None
        with board.walks.beside(board, work, board.walks.warm(board), crosses, near=search.near):
            if search.most_programs and board.best is not None:
                programs.bound_at_peaks(peaks, board.effort.seconds(work))
            else:
                board.walks.improve(board, work, board.walks.warm(board), crosses)
        work, peaks = int(1.5 * work), peaks + 1
    if not board.within(search.near):
        board.effort.spend(board.effort.left_s)  # no round fits into the rest
