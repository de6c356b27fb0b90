#include "core/search/live.h"

#include <algorithm>

namespace memonger {

namespace {

// Graphs above this number of gaps are not searched one decision at a time from the start.
const int kManyGaps = 1500;
// Shares of the work at which parts of the search end. From a given plan, which is close: groups of
// a large graph fit, which takes longest.
const double kFitWarmGroups = 0.3;
// From a given plan: its groups are pruned.
const double kPruneWarmGroups = 0.5;
// From a given plan: single decisions are repaired.
const double kRepairWarm = 0.1;
// From a given plan: single decisions are pruned.
const double kPruneWarm = 0.15;
// Seeds of a large graph are evaluated, which takes longer; no repair follows.
const double kSeedsOfMany = 0.1;
// Seeds of other graphs are evaluated.
const double kSeedsOfFew = 0.03;
// Groups take one so many-th of the work for a start.
const int kGroupParts = 8;
// Groups take one so many-th of that again to be pruned.
const int kGroupPruneParts = 4;
// Repairs end, before annealing, which is worth more.
const double kRepairs = 0.15;
// Repairs end where groups did not fit.
const double kRepairsLate = 0.2;
// A population of plans ends: there is room for swaps and pruning behind it.
const double kCrossing = 0.95;
// The share of the work that a walk leaves for the pruning of its answer.
const double kPruneWalk = 0.01;

// One run of the table.
struct Run {
  Search* search;
  const Solution& warm;
  WorkShare share;
  bool many;     // too many gaps to decide them one by one
  bool grouped;  // groups of like values may be decided at once
  Outcome current;
};

// Starts from what is given. A plan just above the budget is repaired before seeds that fit, at any
// price, take its place.
void StartFromWarm(Run* run) {
  Search* search = run->search;
  Target& target = search->target;
  Outcome& current = run->current;
  search->decisions.LoadDefaults();
  current = target.Evaluate();
  target.Offer(current);
  search->decisions.Load(run->warm);
  current = target.Evaluate();
  target.Offer(current);
  if (!current.valid || target.Feasible(current)) return;
  if (run->grouped && run->many) {
    FitGroups(search, &current, true, run->share.Until(kFitWarmGroups),
              run->share.Until(kPruneWarmGroups));
  } else if (Repair(search, &current, run->share.Until(kRepairWarm))) {
    Prune(search, &current, run->share.Until(kPruneWarm));
    target.Offer(current);
  }
}

void StartFromSeeds(Run* run) {
  TrySeeds(run->search, false, run->share.Until(run->many ? kSeedsOfMany : kSeedsOfFew));
}

// Groups of values, with the variants that cost no time; then of variants as well.
void StartFromGroups(Run* run) {
  Search* search = run->search;
  const int64_t work = run->share.work() / kGroupParts;
  const int starts = run->many || search->decisions.num_variants() == 0 ? 1 : 2;
  for (int start = 0; start < starts; ++start) {
    search->decisions.LoadDefaults();
    UseFriendlyVariants(search, 0);
    search->decisions.Commit();
    const int64_t now = search->effort.Spent();
    FitGroups(search, &run->current, start == 1, now + work, now + work + work / kGroupPruneParts);
  }
}

// Repair of the unplanned step, of it with all variants, then of the best so far.
void StartFromRepairs(Run* run) {
  Search* search = run->search;
  Target& target = search->target;
  const double ends[] = {0.05, 0.1, 0.14};
  const double late = run->grouped && !target.best().feasible ? kRepairsLate : 0;
  const int64_t end = run->share.Until(kRepairs + late);
  for (int start = 0; start < 3 && !search->effort.OutOf(end); ++start) {
    if (start == 1 && search->decisions.num_variants() == 0) continue;
    if (start < 2) {
      search->decisions.LoadDefaults();
    } else {
      search->decisions.Load(target.best());
    }
    if (start == 1) UseFriendlyVariants(search);
    search->decisions.Commit();
    if (Repair(search, &run->current, run->share.Until(ends[start] + late))) {
      Prune(search, &run->current, end);
    }
    target.Offer(run->current);
  }
}

void IterateEarly(Run* run) { IterateRepairs(run->search, run->share.Until(kRepairs)); }

void IterateToTheEnd(Run* run) { IterateRepairs(run->search, run->share.end()); }

void CrossToTheEnd(Run* run) {
  Search* search = run->search;
  Target& target = search->target;
  Outcome& current = run->current;
  CrossPlans(search, run->share.Until(kCrossing));
  search->decisions.Load(target.best());
  current = target.Evaluate();
  if (target.Feasible(current)) SwapTwoForOne(search, &current, run->share.end());
  if (target.Feasible(current)) Prune(search, &current, run->share.end());
  target.Offer(current);
}

// Hot and warm in turn. A long hot walk is worth most at deep cuts, whose good plans are far from
// what repairs find.
void AnnealInTurn(Run* run) {
  Search* search = run->search;
  // Where annealing starts, in mean costs of one recomputation.
  const double kHot = 6;
  // The same of the second walk of three.
  const double kWarm = 0.5;
  const double first = search->options.heat > 0 ? search->options.heat : kHot;
  const Temperature rounds[] = {{first, 0.01}, {kWarm, 0.01}, {0.2, 0.005}};
  const double shares[] = {0.85, 0.9, 0.94};
  for (int round = 0; round < 3 && !search->effort.OutOf(run->share.end()); ++round) {
    if (round == 1 && !search->target.best().feasible) {
      TrySeeds(search, true, run->share.Until((shares[0] + shares[1]) / 2));
    }
    AnnealAndPrune(search, rounds[round], run->share, shares[round], kPruneWalk);
  }
}

bool Always(const Run&) { return true; }
bool Grouped(const Run& run) { return run.grouped; }
bool OneByOne(const Run& run) { return !run.many; }
bool Crosses(const Run& run) { return !run.many && run.search->options.crossover; }
bool Anneals(const Run& run) { return !Crosses(run); }
bool Iterates(const Run& run) { return !run.many && Anneals(run); }

struct Restart {
  const char* why;  // what plans gain by it
  bool (*when)(const Run&);
  void (*run)(Run*);
};

// The parts of the search, in order.
const Restart kRestarts[] = {
    {"Goes on from a plan that is given.", Always, StartFromWarm},
    {"Tries plans that need no search: one in a few is near a good one.", Always, StartFromSeeds},
    {"Decides repeated blocks at once: large networks.", Grouped, StartFromGroups},
    {"Drops what is cheapest for its bytes: easy budgets.", OneByOne, StartFromRepairs},
    {"Crosses a population of plans: long searches.", Crosses, CrossToTheEnd},
    {"Perturbs and repairs the best: budgets of medium depth.", Iterates, IterateEarly},
    {"Walks hot and warm in turn: deep cuts.", Anneals, AnnealInTurn},
    {"Perturbs and repairs what the walks found: the last percent.", Iterates, IterateToTheEnd},
};

}  // namespace

void SearchLive(Search* search, const Solution& warm, int64_t work_end) {
  Run run = {
      search,
      warm,
      WorkShare(search->effort.Spent(), work_end),
      search->decisions.num_gaps() > kManyGaps,
      search->Has(kGroups) && search->simulator->first_backward() < search->simulator->num_ops(),
      Outcome()};
  for (const Restart& restart : kRestarts) {
    if (restart.when(run)) restart.run(&run);
  }
}

void AnnealAndPrune(Search* search, Temperature temperature, const WorkShare& share, double until,
                    double gap) {
  Target& target = search->target;
  search->decisions.Load(target.best());
  Anneal(search, target.Evaluate(), temperature, share.Until(until - gap));
  search->decisions.Load(target.best());
  Outcome current = target.Evaluate();
  if (target.Feasible(current)) Prune(search, &current, share.Until(until));
  target.Offer(current);
}

}  // namespace memonger
