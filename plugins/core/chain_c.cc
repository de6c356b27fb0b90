/* C call for the best checkpoints of a chain: what memonger/solve/chain/program.py loads. */
#include <algorithm>
#include <exception>

#include "core/chain.h"

// boundaries: bytes of each. segments: begin, end, transient peak, gradient, number of trade-offs
// of each; forward: its time. tradeoffs, segment after segment: bytes kept, peak, nothing kept or
// not; extra: time. placed: room for (segment, trade-off, before) of as many as there are
// boundaries; stored: of each boundary. Returns the number placed, 0: nothing fits, -1: out of
// memory.
extern "C" __attribute__((visibility("default"))) int32_t memonger_chain_solve(
    int64_t budget_bytes, int32_t levels, int32_t num_boundaries, const int64_t* boundaries,
    int32_t num_segments, const int64_t* segments, const double* forward, const int64_t* tradeoffs,
    const double* extra, int32_t* placed, int32_t* stored, double* total) {
  try {
    memonger::Chain chain;
    chain.boundary_bytes.assign(boundaries, boundaries + num_boundaries);
    for (int s = 0; s < num_segments; ++s, segments += 5) {
      memonger::ChainSegment segment;
      segment.begin = static_cast<int>(segments[0]);
      segment.end = static_cast<int>(segments[1]);
      segment.forward = forward[s];
      segment.transient_peak = segments[2];
      segment.gradient = segments[3];
      for (int64_t i = 0; i < segments[4]; ++i, tradeoffs += 3) {
        segment.tradeoffs.push_back({*extra++, tradeoffs[0], tradeoffs[1], tradeoffs[2] != 0});
      }
      chain.segments.push_back(segment);
    }
    const memonger::ChainPlan plan = memonger::SolveChain(chain, budget_bytes, levels);
    for (const memonger::ChainPlan::Placed& one : plan.placed) {
      *placed++ = one.segment;
      *placed++ = one.tradeoff;
      *placed++ = one.before;
    }
    std::copy(plan.stored.begin(), plan.stored.end(), stored);
    *total = plan.extra;
    return plan.feasible ? static_cast<int32_t>(plan.placed.size()) : 0;
  } catch (const std::exception&) {
    return -1;
  }
}
