// The best order of checkpoints and recomputation for a chain of segments, each with several
// trade-offs of time and bytes: a dynamic program.
//
// That of Beaumont, Eyraud-Dubois, Herrmann, Joly and Shilova ("Optimal checkpointing for
// heterogeneous chains", 2019) with several trade-offs a segment as in Rockmate (Zhao et al.,
// ICML 2023). Forward of a range of segments is either run without keeping anything up to a
// checkpoint, whose both sides are ranges again, or its first segment takes one of its trade-offs
// and the others are a range. Optimal for chains among such plans, up to the rounding of bytes.
// O(n^2 (n + trade-offs) levels) time.
#ifndef MEMONGER_CORE_CHAIN_H_
#define MEMONGER_CORE_CHAIN_H_

#include <cstdint>
#include <vector>

namespace memonger {

struct ChainTradeoff {
  double extra;        // time beyond one forward and backward run
  int64_t kept, peak;  // bytes from forward to backward; the most while the segment runs
  bool nothing_kept;   // backward starts from the segment's input alone; peak is backward's
};

// From one boundary to another; boundaries are numbered along the chain.
struct ChainSegment {
  int begin, end;
  double forward;          // time
  int64_t transient_peak;  // while it runs forward and keeps nothing
  int64_t gradient;        // bytes that its backward starts with
  std::vector<ChainTradeoff> tradeoffs;
};

struct Chain {
  std::vector<int64_t> boundary_bytes;  // of what crosses each boundary; the first is the input
  std::vector<ChainSegment> segments;   // among them each from a boundary to the next
};

struct ChainPlan {
  struct Placed {
    int segment, tradeoff;
    // Its kept forward run is the first one (-1), or is right before the backward of the segment
    // that ends at this boundary.
    int before;
  };
  bool feasible = false;
  double extra = 0;
  std::vector<Placed> placed;
  std::vector<int> stored;  // for each boundary `before` as above, or -2: not a checkpoint
};

ChainPlan SolveChain(const Chain& chain, int64_t budget_bytes, int levels);

}  // namespace memonger

#endif  // MEMONGER_CORE_CHAIN_H_
