// A fast, nearly exact estimate of a pool whose buffers are always used from their first byte.
//
// Let s(1) > s(2) > ... be the sizes of the blocks. At any step the blocks of at least s(i) bytes
// need a buffer of at least that size each, so no assignment takes less than
//   sum over i of (s(i) - s(i + 1)) * (most blocks of at least s(i) bytes alive at any step),
// the "shared-object bound" of storage.h in layers. Good assignments come close to it. Sizes are
// put into at most kLayers classes, and all classes are counted at once in the lanes of a vector.
#ifndef MEMONGER_CORE_LAYERS_H_
#define MEMONGER_CORE_LAYERS_H_

#include <cstdint>
#include <vector>

#include "core/problem.h"
#include "core/random.h"
#include "core/simulator.h"

namespace memonger {

// Classes of sizes: lanes of a vector of 16-bit counts.
const int kLayers = 32;

class LayerMeter {
 public:
  explicit LayerMeter(const Problem& problem);

  struct Estimate {
    double bytes = 0;
    // Share of the steps at which each layer is at its highest, times the layer's bytes: falls
    // before `bytes` does, and so leads a search across plateaus.
    double crowding = 0;
  };
  // Of the simulator's last evaluation. Linear in steps and values.
  const Estimate& Measure(Simulator* simulator);
  // A step at which some layer is at its highest, of what was measured last.
  int CrowdedStep(Random* random) const;

 private:
  // Less aligned than the widest registers ask for: vectors of them come from plain new.
  typedef int16_t Lanes __attribute__((vector_size(2 * kLayers), aligned(16)));
  struct Row {
    Lanes lanes;
  };

  bool Used(int lane) const;

  int num_layers_ = 0, num_steps_ = 0;
  bool two_pools_;
  std::vector<int> layer_of_tensor_;
  std::vector<double> thickness_;  // bytes of each layer
  std::vector<Simulator::Value> values_;
  std::vector<Row> change_;
  Lanes most_;
  Lanes from_[kLayers];  // ones in this lane and those below it
  Estimate estimate_;
};

}  // namespace memonger

#endif  // MEMONGER_CORE_LAYERS_H_
