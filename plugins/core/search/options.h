// What a search is asked for, and what it answers.
#ifndef MEMONGER_CORE_SEARCH_OPTIONS_H_
#define MEMONGER_CORE_SEARCH_OPTIONS_H_

#include <cstdint>
#include <functional>
#include <vector>

namespace memonger {

// Receives cost and bytes of the best so far (negative without one); true stops.
using PollFunction = std::function<bool(double, int64_t)>;

struct Solution {
  bool known = false;         // false: nothing yet; a graph may have no gaps at all
  std::vector<char> choices;  // of each gap
  std::vector<int> advance;   // of each gap
  std::vector<char> variants;
  double cost = 0;
  int64_t peak = 0;
  int64_t pool = -1;  // with the bytes outside it, where there is a pool meter
  bool feasible = false;
};

// What a search can do without, to measure what each is worth (`memonger bench ablation`).
enum Part {
  kSeeds = 1,
  kGroups = 2,
  kRepairs = 4,  // iterated repair and pruning
  kAnnealing = 8,
  kStretches = 16,  // moves of annealing
  kShifts = 32,
  kBlocks = 64,
};

struct SearchOptions {
  int64_t budget_bytes = 0;  // of the pool and of workspace and objects outside it
  uint64_t seed = 1;
  int64_t work_limit = 0;  // simulated steps
  double time_limit_s = 10;
  bool crossover = false;  // a population of plans, in place of one that is annealed
  bool smallest = false;   // the least memory at any cost in time, from `warm` on
  double heat = 0;         // where annealing starts, in units of Target::Unit(); 0: the usual
  int64_t without = 0;     // bits of Part
  Solution warm;           // decisions to start from
};

enum class StopReason { kFinished, kTimeLimit, kInterrupted };

}  // namespace memonger

#endif  // MEMONGER_CORE_SEARCH_OPTIONS_H_
